"""Checks of a pipeline before Spark starts: its file, this machine, the cluster."""
