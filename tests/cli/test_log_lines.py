"""Lines of the log are what the broker says, not what clients have named things."""

import json
import logging
import sys

from tidelog.cli.log_formatter import JsonFormatter, SingleLineFormatter, message_fields
from tidelog.server.audit_log import shown


def record(message: str, *arguments: object, has_failed: bool = False) -> logging.LogRecord:
    failure = sys.exc_info() if has_failed else None
    return logging.LogRecord("tidelog", logging.INFO, "somewhere.py", 1, message, arguments, failure)


def test_a_name_with_a_line_break_does_not_begin_a_line() -> None:
    line = SingleLineFormatter("%(message)s").format(record("group is empty group=%s", "a\nERROR all is lost\r\x1b[2J"))
    assert line == "group is empty group=a\\nERROR all is lost\\r\\x1b[2J"


def test_a_long_name_is_cut() -> None:
    line = SingleLineFormatter("%(message)s").format(record("group is empty group=%s", "x" * 30_000))
    assert len(line) < 5_000
    assert line.endswith("...")


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("on two\nlines")
    except ValueError:
        line = SingleLineFormatter("%(message)s").format(record("a step failed", has_failed=True))
    assert line.startswith("a step failed\nTraceback")


def test_json_has_the_pairs_of_a_message_as_fields() -> None:
    line = JsonFormatter().format(record("member left group group=%s reason=%s", "a\nb", "it was too slow"))
    assert "\n" not in line
    event = json.loads(line)
    assert (event["level"], event["message"]) == ("INFO", "member left group")
    assert event["fields"] == {"group": "a\nb", "reason": "it was too slow"}
    assert message_fields("nothing to see") == ("nothing to see", {})


def test_json_has_the_traceback_of_a_failure() -> None:
    try:
        raise ValueError("on two\nlines")
    except ValueError:
        event = json.loads(JsonFormatter().format(record("a step failed", has_failed=True)))
    assert event["exception"].endswith("ValueError: on two\nlines")


def test_names_in_the_audit_log_cannot_forge_fields() -> None:
    line = f"login failed peer=10.0.0.1 user={shown('x peer=127.0.0.1 reason=none')} reason=bad"
    assert message_fields(line)[1]["peer"] == "10.0.0.1"
    assert message_fields(line)[1]["reason"] == "bad"
