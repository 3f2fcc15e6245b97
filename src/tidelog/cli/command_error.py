"""Failure of a command, reported to the user as one sentence."""


class CommandError(Exception):
    """The message says what is wrong and what to do. Exit code 1."""
