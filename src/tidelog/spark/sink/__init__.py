"""The writing half of `format("tidelog")`: rows encoded and delivered by tasks, committed by the driver."""
