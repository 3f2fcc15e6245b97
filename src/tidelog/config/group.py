"""The settings of one group, with the names, defaults and bounds of Kafka 4.3: those of consumer groups (KIP-848)."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.config.coordinators import CoordinatorSettings
from tidelog.config.setting import BadValue, Setting, setting, settings_of
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


def group_settings(broker: CoordinatorSettings, stored: Mapping[str, str]) -> ConsumerGroupSettings:
    """What counts for a group. The broker's bounds may have changed since a value was stored: the nearest counts."""
    values = {}
    for name, known in settings_of(ConsumerGroupSettings).items():
        value = _stored_value(known, stored)
        if value is None:
            values[known.attribute] = broker_value(broker, known)
        else:
            least, most = _bounds(broker, name)
            values[known.attribute] = max(least, min(value, most))
    return ConsumerGroupSettings(**values)


def validate_group_settings(broker: CoordinatorSettings, overrides: Mapping[str, str]) -> None:
    """Whether a group may be given this; InvalidConfig, as Kafka says it, if not."""
    declared = settings_of(ConsumerGroupSettings)
    values = {name: broker_value(broker, known) for name, known in declared.items()}
    for name in overrides:
        if name in KNOWN_TO_KAFKA_ONLY:
            raise InvalidConfig(f"Group config {name} is known to Kafka, but not supported here")
        if name not in declared:
            raise InvalidConfig(f"Unknown group config name: {name}")
    for name, text in overrides.items():
        try:
            values[name] = declared[name].parse(text)
        except BadValue as error:
            raise InvalidConfig(f"Invalid value {text} for configuration {name}: {error}") from error
    for name, value in values.items():
        least, most = _bounds(broker, name)
        if value < least:
            raise InvalidConfig(f"{name} must be greater than or equal to {_bound_name('min', name)}")
        if value > most:
            raise InvalidConfig(f"{name} must be less than or equal to {_bound_name('max', name)}")
    if values["consumer.session.timeout.ms"] <= values["consumer.heartbeat.interval.ms"]:
        raise InvalidConfig("consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms")


def broker_value(broker: CoordinatorSettings, known: Setting) -> int:
    (name,) = known.broker_names
    value: int = getattr(broker, name.replace(".", "_"))
    return value


def _stored_value(known: Setting, stored: Mapping[str, str]) -> int | None:
    """A newer or another broker of the cluster may have stored what this one cannot read."""
    try:
        value: int | None = known.parse(stored[known.name]) if known.name in stored else None
    except BadValue:
        return None
    return value


def _bounds(broker: CoordinatorSettings, name: str) -> tuple[int, int]:
    least, most = (getattr(broker, _bound_name(end, name).replace(".", "_")) for end in ("min", "max"))
    return least, most


def _bound_name(end: str, name: str) -> str:
    kind, _, rest = name.partition(".")
    return f"group.{kind}.{end}.{rest}"
