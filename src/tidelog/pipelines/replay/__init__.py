"""Replay: a pipeline's tables rebuilt from its topics while it runs."""
