"""Targets of an offset reset, as the command line and the console write them."""

import pytest

from tidelog.client.admin.offset_reset import ResetKind, ResetTarget, parse_target


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", ResetTarget(ResetKind.EARLIEST)),
        ("latest", ResetTarget(ResetKind.LATEST)),
        ("42", ResetTarget(ResetKind.OFFSET, 42)),
        ("@1700000000000", ResetTarget(ResetKind.TIME, 1_700_000_000_000)),
        ("-5", ResetTarget(ResetKind.SHIFT, -5)),
        ("+5", ResetTarget(ResetKind.SHIFT, 5)),
    ],
)
def test_a_target_is_read(text: str, expected: ResetTarget) -> None:
    assert parse_target(text) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "@", "@NaN", "1.5", "--5", "9223372036854775808", "²"])
def test_what_is_no_target_gets_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="expected earliest, latest"):
        parse_target(text)
