"""The settings of groups: what Kafka 4.3.1 answers to the same, and what counts when bounds have changed."""

import pytest

from tidelog.config.coordinators import CoordinatorSettings
from tidelog.config.group import ConsumerGroupSettings
from tidelog.config.resolution import group_settings, validate_group_settings
from tidelog.errors import InvalidConfig

BROKER = CoordinatorSettings()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"consumer.session.timeout.ms": "1000"},
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {"consumer.session.timeout.ms": "100000"},
            "consumer.session.timeout.ms must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        (
            {"consumer.heartbeat.interval.ms": "100"},
            "consumer.heartbeat.interval.ms must be greater than or equal to group.consumer.min.heartbeat.interval.ms",
        ),
        (
            {"consumer.heartbeat.interval.ms": "50000"},
            "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (
            {"consumer.session.timeout.ms": "-1"},
            "Invalid value -1 for configuration consumer.session.timeout.ms: Value must be at least 1",
        ),
        (
            {"consumer.heartbeat.interval.ms": ""},
            "Invalid value  for configuration consumer.heartbeat.interval.ms: Not a number of type INT",
        ),
        ({"consumer.heartbeat.interval.ms": "6000", "bad": "2"}, "Unknown group config name: bad"),
        (
            {"share.isolation.level": "read_committed"},
            "Group config share.isolation.level is a Kafka setting that is not supported",
        ),
    ],
)
def test_what_a_group_may_not_be_given(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig) as rejected:
        validate_group_settings(BROKER, overrides)
    assert rejected.value.message == message


def test_what_a_group_may_be_given() -> None:
    validate_group_settings(BROKER, {"consumer.session.timeout.ms": "60000", "consumer.heartbeat.interval.ms": "15000"})


def test_a_session_must_be_longer_than_the_interval_that_the_broker_gives() -> None:
    broker = CoordinatorSettings(group_consumer_min_session_timeout_ms=1, group_consumer_heartbeat_interval_ms=6000)
    with pytest.raises(InvalidConfig, match="must be greater than consumer"):
        validate_group_settings(broker, {"consumer.session.timeout.ms": "6000"})


def test_a_group_without_settings_has_the_brokers() -> None:
    broker = CoordinatorSettings(group_consumer_session_timeout_ms=50_000, group_consumer_heartbeat_interval_ms=7000)
    expected = ConsumerGroupSettings(consumer_session_timeout_ms=50_000, consumer_heartbeat_interval_ms=7000)
    assert group_settings(broker, {}) == expected
    assert group_settings(broker, {"unknown": "1", "consumer.session.timeout.ms": "many"}) == expected


def test_stored_values_outside_the_bounds_of_now_are_brought_inside() -> None:
    stored = {"consumer.session.timeout.ms": "100000", "consumer.heartbeat.interval.ms": "1"}
    assert group_settings(BROKER, stored) == ConsumerGroupSettings(
        consumer_session_timeout_ms=60_000, consumer_heartbeat_interval_ms=5000
    )
