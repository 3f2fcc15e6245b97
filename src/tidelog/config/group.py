"""Settings of one consumer group (KIP-848), with Kafka 4.3's names, defaults and bounds."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.config.coordinators import CoordinatorSettings
from tidelog.config.setting import setting
from tidelog.errors import InvalidConfig

UNSUPPORTED_KAFKA_NAMES = frozenset(
    {
        "consumer.assignment.interval.ms",
        "share.assignment.interval.ms",
        "share.auto.offset.reset",
        "share.delivery.count.limit",
        "share.heartbeat.interval.ms",
        "share.isolation.level",
        "share.partition.max.record.locks",
        "share.record.lock.duration.ms",
        "share.renew.acknowledge.enable",
        "share.session.timeout.ms",
        "streams.assignment.interval.ms",
        "streams.heartbeat.interval.ms",
        "streams.initial.rebalance.delay.ms",
        "streams.num.standby.replicas",
        "streams.session.timeout.ms",
    }
)
"""Not supported: a group that sets one of these is rejected."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerGroupSettings:
    """Settings that the group does not override come from the coordinator."""

    consumer_heartbeat_interval_ms: int = setting(
        default=5000,
        at_least=1,
        broker_names=("group.consumer.heartbeat.interval.ms",),
        doc="The heartbeat interval of members. Bounded by the broker's"
        " `group.consumer.min.heartbeat.interval.ms` and `group.consumer.max.heartbeat.interval.ms`.",
    )
    consumer_session_timeout_ms: int = setting(
        default=45_000,
        at_least=1,
        broker_names=("group.consumer.session.timeout.ms",),
        doc="A member without a heartbeat for this long is removed. Bounded by the broker's"
        " `group.consumer.min.session.timeout.ms` and `group.consumer.max.session.timeout.ms`.",
    )


def group_defaults(broker: CoordinatorSettings) -> ConsumerGroupSettings:
    """Defaults of a group, from the broker settings."""
    return ConsumerGroupSettings(
        consumer_heartbeat_interval_ms=broker.group_consumer_heartbeat_interval_ms,
        consumer_session_timeout_ms=broker.group_consumer_session_timeout_ms,
    )


def bounds(broker: CoordinatorSettings) -> Mapping[str, tuple[int, int]]:
    """Minimum and maximum that the broker allows, by attribute."""
    return {
        "consumer_heartbeat_interval_ms": (
            broker.group_consumer_min_heartbeat_interval_ms,
            broker.group_consumer_max_heartbeat_interval_ms,
        ),
        "consumer_session_timeout_ms": (
            broker.group_consumer_min_session_timeout_ms,
            broker.group_consumer_max_session_timeout_ms,
        ),
    }


def check_group_settings(broker: CoordinatorSettings, settings: ConsumerGroupSettings) -> None:
    """Checks that involve several settings; InvalidConfig with Kafka's message."""
    for attribute, (least, most) in bounds(broker).items():
        value, name = getattr(settings, attribute), attribute.replace("_", ".")
        _, _, rest = name.partition(".")
        if value < least:
            raise InvalidConfig(f"{name} must be greater than or equal to group.consumer.min.{rest}")
        if value > most:
            raise InvalidConfig(f"{name} must be less than or equal to group.consumer.max.{rest}")
    if settings.consumer_session_timeout_ms <= settings.consumer_heartbeat_interval_ms:
        raise InvalidConfig("consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms")
