"""Tidelog for Spark: `format("tidelog")`, found without registration, and a session with the settings that matter."""
