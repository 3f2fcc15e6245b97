"""Replay: the tables of a pipeline built again from its topics while it runs."""
