"""Whole clusters of the production classes in one process, on virtual time, over memory."""
