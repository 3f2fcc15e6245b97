"""Tidelog: a replicated event log that installs with pip and speaks Kafka."""

__version__ = "0.1.0"
