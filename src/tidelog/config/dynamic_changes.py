"""Checks of dynamic setting changes against the current settings of the broker."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tidelog.config.broker import BrokerSettings
from tidelog.config.consistency import contradictions
from tidelog.config.resolution import topic_defaults
from tidelog.config.sasl import OAUTHBEARER, split_sasl_name
from tidelog.config.setting import BadValue, settings_of
from tidelog.config.thread_pools import REMOTE_THREAD_POOLS, THREAD_POOLS
from tidelog.errors import InvalidConfig, InvalidRequest

ASSIGNMENT_INTERVALS = tuple(f"group.{kind}.assignment.interval.ms" for kind in ("consumer", "share", "streams"))
MAX_ASSIGNMENT_INTERVAL_MS = 15_000
"""Kafka's default of group.consumer.max.assignment.interval.ms, and of the same settings of share and streams."""
NO_LIMIT = -1
SAME_AS_RETENTION = -2
"""Value of log.local.retention.ms: that of log.retention.ms."""


def check_dynamic_change(current: BrokerSettings, changed: Mapping[str, str], *, for_one_broker: bool) -> None:
    """Raises InvalidRequest or InvalidConfig, as Kafka does, if a change would lock clients out or contradict others.

    `changed` has values that are valid by themselves (`validate_dynamic_broker_configs`).
    """
    declared = settings_of(BrokerSettings)
    of_listeners = {name: text for name, text in changed.items() if name not in declared}
    values = {
        declared[name].attribute: declared[name].parse(text) for name, text in changed.items() if name in declared
    }
    wanted = replace(current, **values, listener_overrides={**current.listener_overrides, **of_listeners})
    before = dict(contradictions(current))
    for name, message in contradictions(wanted):
        if name not in before:
            raise InvalidRequest(f"{name} {message}")
    if any(split_sasl_name(name) is not None for name in of_listeners):
        _reject_unless_allowed(_check_new_mechanisms, current, wanted)
    for name in changed:
        check = _CHECKS.get(name)
        if check is not None:
            _reject_unless_allowed(check, current, wanted)
    if for_one_broker and "min.insync.replicas" in changed:
        # Brokers must agree on it, because eligible leader replicas depend on it (KIP-966).
        raise InvalidConfig("Broker-level min.insync.replicas cannot be altered while ELR is enabled.")


Check = Callable[[BrokerSettings, BrokerSettings], None]


def _reject_unless_allowed(check: Check, current: BrokerSettings, wanted: BrokerSettings) -> None:
    try:
        check(current, wanted)
    except BadValue as error:
        raise InvalidRequest(f"Invalid dynamic configuration: {error}") from error


def _check_new_mechanisms(current: BrokerSettings, wanted: BrokerSettings) -> None:
    for endpoint in wanted.sasl_endpoints:
        listener = endpoint.listener_name
        new = set(wanted.for_listener(listener).sasl_enabled_mechanisms)
        if OAUTHBEARER in new - set(current.for_listener(listener).sasl_enabled_mechanisms):
            # Its keys are fetched before the first connection is accepted.
            raise BadValue(f"{OAUTHBEARER} cannot be enabled dynamically for existing listener {listener}")


def _check_connections(_: BrokerSettings, wanted: BrokerSettings) -> None:
    if wanted.max_connections <= 0:
        raise BadValue(f"Invalid max.connections {wanted.max_connections}")


def _check_creation_rate(_: BrokerSettings, wanted: BrokerSettings) -> None:
    if wanted.max_connection_creation_rate <= 0:
        raise BadValue(f"Invalid max.connection.creation.rate {wanted.max_connection_creation_rate}")


def _check_thread_pool(name: str, prefix: str = "Dynamic thread count update") -> Check:
    """Kafka's bounds: a mistyped number must not open thousands of threads, or connections of fetchers."""
    attribute = name.replace(".", "_")

    def check(current: BrokerSettings, wanted: BrokerSettings) -> None:
        new, old = getattr(wanted, attribute), getattr(current, attribute)
        failed = f"{prefix} validation failed for {name}={new}"
        if new < old // 2:
            raise BadValue(f"{failed}, value should be at least half the current value {old}")
        if new > old * 2:
            raise BadValue(f"{failed}, value should not be greater than double the current value {old}")

    return check


def _check_cleaner_threads(current: BrokerSettings, wanted: BrokerSettings) -> None:
    new, old = wanted.log_cleaner_threads, current.log_cleaner_threads
    if new < 1:
        raise BadValue("Log cleaner threads should be at least 1")
    if new < old // 2:
        raise BadValue(f"Log cleaner threads cannot be reduced to less than half the current value {old}")
    if new > old * 2:
        raise BadValue(f"Log cleaner threads cannot be increased to more than double the current value {old}")


def _check_assignment_interval(name: str) -> Check:
    attribute = name.replace(".", "_")

    def check(_: BrokerSettings, wanted: BrokerSettings) -> None:
        if getattr(wanted, attribute) > MAX_ASSIGNMENT_INTERVAL_MS:
            raise BadValue(f"{name} must be less than or equal to {MAX_ASSIGNMENT_INTERVAL_MS}")

    return check


def _check_local_retention(_: BrokerSettings, wanted: BrokerSettings) -> None:
    """The setting has no effect here, but a mistake in it is reported as in Kafka."""
    local_ms, retention_ms = wanted.log_local_retention_ms, topic_defaults(wanted).retention_ms
    if retention_ms == NO_LIMIT or local_ms == SAME_AS_RETENTION:
        return
    if not NO_LIMIT < local_ms <= retention_ms:
        raise BadValue(
            f"log.local.retention.ms is {local_ms}, and log.retention.ms is {retention_ms}: it must not be more"
        )


_CHECKS: Mapping[str, Check] = {
    **{name: _check_assignment_interval(name) for name in ASSIGNMENT_INTERVALS},
    "log.local.retention.ms": _check_local_retention,
    "max.connection.creation.rate": _check_creation_rate,
    "max.connections": _check_connections,
    "log.cleaner.threads": _check_cleaner_threads,
    **{name: _check_thread_pool(name) for name in THREAD_POOLS},
    **{name: _check_thread_pool(name, "Dynamic remote log manager config update") for name in REMOTE_THREAD_POOLS},
}
