"""The reading half of `format("tidelog")`: offsets planned on the driver, ranges read by tasks."""
