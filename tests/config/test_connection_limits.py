"""Limits on connections from single addresses."""

import pytest

from tidelog.config.connection_limits import parse_overrides_per_ip
from tidelog.config.setting import BadValue


def test_overrides_are_counts_by_address() -> None:
    assert parse_overrides_per_ip("10.0.0.1:5, [::0001]:7,") == {"10.0.0.1": 5, "::1": 7}
    assert parse_overrides_per_ip("") == {}


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1:", "10.0.0.1:-1", "10.0.0.1:x", "somewhere:5", ":5"])
def test_an_entry_that_is_no_address_with_a_count_is_rejected(text: str) -> None:
    with pytest.raises(BadValue):
        parse_overrides_per_ip(text)
