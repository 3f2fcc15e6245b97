"""Numbers in settings: what Kafka accepts, and nothing that only Python would."""

import pytest

from tidelog.config.connection_limits import parse_overrides_per_ip
from tidelog.config.listeners import parse_address
from tidelog.config.setting import BadValue, Setting, settings_of
from tidelog.config.topic import TopicSettings

SETTINGS = {each.name: each for each in settings_of(TopicSettings).values()}
RATIO = SETTINGS["min.cleanable.dirty.ratio"]
RETENTION = SETTINGS["retention.ms"]
THROTTLED = SETTINGS["leader.replication.throttled.replicas"]


@pytest.mark.parametrize("setting", [RATIO, RETENTION])
@pytest.mark.parametrize("text", ["0_1", "1_0", "１", "nan", "NaN", "inf", "0x1", "\u00a01", "1 0", "", "9" * 5_000])
def test_what_is_no_number_is_rejected(setting: Setting, text: str) -> None:
    with pytest.raises(BadValue):
        setting.parse(text)


@pytest.mark.parametrize(
    ("text", "value"), [("0.5", 0.5), (" 1 ", 1.0), ("1e-1", 0.1), (".5", 0.5), ("1.", 1.0), ("0", 0.0)]
)
def test_decimal_numbers_are_read_as_kafka_reads_them(text: str, value: float) -> None:
    assert RATIO.parse(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("+5", 5), ("-1", -1), (" 5\t", 5), ("007", 7), ("9223372036854775807", 2**63 - 1)]
)
def test_whole_numbers_are_read_as_kafka_reads_them(text: str, value: int) -> None:
    assert RETENTION.parse(text) == value


def test_a_throttled_replica_with_thousands_of_digits_is_rejected() -> None:
    """Python cannot convert it: the broker would fail on it at each fetch."""
    with pytest.raises(BadValue):
        THROTTLED.parse("0:" + "9" * 5_000)


def test_ports_and_limits_have_plain_digits() -> None:
    for port in ("９０９２", "9_0", "9" * 5_000):
        with pytest.raises(BadValue):
            parse_address(f"localhost:{port}")
        with pytest.raises(BadValue):
            parse_overrides_per_ip(f"10.0.0.1:{port}")
