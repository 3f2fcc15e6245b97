"""Bounds of a change of broker settings that depend on the settings a broker runs with."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tidelog.config.broker import BrokerSettings
from tidelog.config.consistency import contradictions
from tidelog.config.setting import BadValue, settings_of
from tidelog.errors import InvalidConfig, InvalidRequest


def check_dynamic_change(current: BrokerSettings, changed: Mapping[str, str], *, for_one_broker: bool) -> None:
    """InvalidRequest or InvalidConfig, as Kafka answers, where a change would lock clients out or contradict others.

    `changed` has values that are valid by themselves (`validate_dynamic_broker_configs`).
    """
    declared = settings_of(BrokerSettings)
    values = {declared[name].attribute: declared[name].parse(text) for name, text in changed.items()}
    wanted = replace(current, **values)
    before = dict(contradictions(current))
    for name, message in contradictions(wanted):
        if name not in before:
            raise InvalidRequest(f"{name} {message}")
    for name in changed:
        check = _CHECKS.get(name)
        if check is not None:
            _refuse_unless_allowed(check, current, wanted)
    if for_one_broker and "min.insync.replicas" in changed:
        # Eligible leader replicas are counted by it: brokers must agree (KIP-966).
        raise InvalidConfig("Broker-level min.insync.replicas cannot be altered while ELR is enabled.")


Check = Callable[[BrokerSettings, BrokerSettings], None]


def _refuse_unless_allowed(check: Check, current: BrokerSettings, wanted: BrokerSettings) -> None:
    try:
        check(current, wanted)
    except BadValue as error:
        raise InvalidRequest(f"Invalid dynamic configuration: {error}") from error


def _check_connections(_: BrokerSettings, wanted: BrokerSettings) -> None:
    if wanted.max_connections <= 0:
        raise BadValue(f"Invalid max.connections {wanted.max_connections}")


def _check_fetchers(current: BrokerSettings, wanted: BrokerSettings) -> None:
    """As Kafka bounds its thread pools: a mistyped number must not cost thousands of connections."""
    new, old = wanted.num_replica_fetchers, current.num_replica_fetchers
    failed = f"Dynamic thread count update validation failed for num.replica.fetchers={new}"
    if new < old // 2:
        raise BadValue(f"{failed}, value should be at least half the current value {old}")
    if new > old * 2:
        raise BadValue(f"{failed}, value should not be greater than double the current value {old}")


_CHECKS: Mapping[str, Check] = {"max.connections": _check_connections, "num.replica.fetchers": _check_fetchers}
