"""Deterministic simulation: clusters of production classes in one process, on virtual time and in memory."""
