"""Source of `format("tidelog")`: the driver plans offset ranges, tasks read them."""
