"""Sink of `format("tidelog")`: tasks encode and deliver rows, the driver commits."""
