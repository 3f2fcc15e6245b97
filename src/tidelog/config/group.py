"""The settings of one group, with the names, defaults and bounds of Kafka 4.3: those of consumer groups (KIP-848)."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.config.coordinators import CoordinatorSettings
from tidelog.config.setting import setting
from tidelog.errors import InvalidConfig

KNOWN_TO_KAFKA_ONLY = frozenset(
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
"""A group that asks for one of these is refused: it would not get what it asks for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerGroupSettings:
    """Where a group has no setting of its own, the coordinator's counts."""

    consumer_heartbeat_interval_ms: int = setting(
        default=5000,
        at_least=1,
        broker_names=("group.consumer.heartbeat.interval.ms",),
        doc="How often the members are told to send heartbeats. The broker's"
        " `group.consumer.min.heartbeat.interval.ms` and `group.consumer.max.heartbeat.interval.ms` are its bounds.",
    )
    consumer_session_timeout_ms: int = setting(
        default=45_000,
        at_least=1,
        broker_names=("group.consumer.session.timeout.ms",),
        doc="A member that is silent for this long is removed. The broker's"
        " `group.consumer.min.session.timeout.ms` and `group.consumer.max.session.timeout.ms` are its bounds.",
    )


def group_defaults(broker: CoordinatorSettings) -> ConsumerGroupSettings:
    """What a group without settings of its own gets from the broker's."""
    return ConsumerGroupSettings(
        consumer_heartbeat_interval_ms=broker.group_consumer_heartbeat_interval_ms,
        consumer_session_timeout_ms=broker.group_consumer_session_timeout_ms,
    )


def bounds(broker: CoordinatorSettings) -> Mapping[str, tuple[int, int]]:
    """By attribute, the least and the most that the broker allows one group."""
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
    """What no single setting can tell; InvalidConfig in Kafka's words."""
    for attribute, (least, most) in bounds(broker).items():
        value, name = getattr(settings, attribute), attribute.replace("_", ".")
        _, _, rest = name.partition(".")
        if value < least:
            raise InvalidConfig(f"{name} must be greater than or equal to group.consumer.min.{rest}")
        if value > most:
            raise InvalidConfig(f"{name} must be less than or equal to group.consumer.max.{rest}")
    if settings.consumer_session_timeout_ms <= settings.consumer_heartbeat_interval_ms:
        raise InvalidConfig("consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms")
