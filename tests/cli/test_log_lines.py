"""Lines of the log are what the broker says, not what clients have named things."""

import logging
import sys

from tidelog.cli.log_formatter import SingleLineFormatter


def record(message: str, *arguments: object, has_failed: bool = False) -> logging.LogRecord:
    failure = sys.exc_info() if has_failed else None
    return logging.LogRecord("tidelog", logging.INFO, "somewhere.py", 1, message, arguments, failure)


def test_a_name_with_a_line_break_does_not_begin_a_line() -> None:
    told = SingleLineFormatter("%(message)s").format(record("group is empty group=%s", "a\nERROR all is lost\r\x1b[2J"))
    assert told == "group is empty group=a\\nERROR all is lost\\r\\x1b[2J"


def test_a_long_name_is_cut() -> None:
    told = SingleLineFormatter("%(message)s").format(record("group is empty group=%s", "x" * 30_000))
    assert len(told) < 5_000
    assert told.endswith("...")


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("on two\nlines")
    except ValueError:
        told = SingleLineFormatter("%(message)s").format(record("a step failed", has_failed=True))
    assert told.startswith("a step failed\nTraceback")
