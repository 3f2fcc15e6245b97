"""A broker's settings from a server.properties file and flags, with all mistakes reported at once."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from tidelog.config.broker import GENERATED_ID, BrokerSettings
from tidelog.config.kafka_names import REFUSED, is_known_to_kafka_only
from tidelog.config.listeners import parse_address
from tidelog.config.nearest import nearest_name
from tidelog.config.properties import parse_properties
from tidelog.config.resolution import topic_defaults
from tidelog.config.setting import BadValue, settings_of

logger = logging.getLogger(__name__)

NEAREST_CUTOFF = 0.7


class SettingsError(Exception):
    """Everything that is wrong with the settings; `str(error)` is ready for a terminal, a line per mistake."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


class Given(NamedTuple):
    name: str
    value: str
    place: str
    """`file:line` or `--set`."""


def load_broker_settings(path: str | None, overrides: Iterable[str] = ()) -> BrokerSettings:
    """Flags win over the file; SettingsError lists every mistake in both."""
    mistakes: list[str] = []
    given = [*_from_file(path, mistakes), *_from_flags(overrides, mistakes)]
    known = _only_known(given, mistakes)
    values = _parse(known, mistakes)
    originals = {name: found.value for name, found in known.items()}
    settings = BrokerSettings(**values, originals=originals)  # type: ignore[arg-type]
    settings = _without_controller_listeners(settings, given)
    mistakes.extend(_place(known, name) + message for name, message in _contradictions(settings))
    if mistakes:
        raise SettingsError(mistakes)
    return _with_one_id(settings)


def _from_file(path: str | None, mistakes: list[str]) -> list[Given]:
    if path is None:
        return []
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise SettingsError([f"{path}: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise SettingsError([f"{path}: not a text file in UTF-8"]) from error
    return [Given(found.key, found.value, f"{path}:{found.line}") for found in parse_properties(text)]


def _from_flags(overrides: Iterable[str], mistakes: list[str]) -> Iterator[Given]:
    for override in overrides:
        name, equals, value = override.partition("=")
        if equals and name.strip():
            yield Given(name.strip(), value.strip(), "--set")
        else:
            mistakes.append(f"--set {override}: expected key=value")


def _only_known(given: list[Given], mistakes: list[str]) -> dict[str, Given]:
    """The last of each name that is ours; about the others a warning or a mistake."""
    declared = settings_of(BrokerSettings)
    known: dict[str, Given] = {}
    for found in given:
        if found.name in declared:
            if found.name in known and known[found.name].place != "--set" and found.place != "--set":
                logger.warning("setting given twice, the last one counts: %s name=%s", found.place, found.name)
            known[found.name] = found
        elif found.name in REFUSED and found.value:
            mistakes.append(f"{found.place}: {found.name}: not supported; a broker without it would not be guarded")
        elif is_known_to_kafka_only(found.name):
            logger.warning("setting is known to Kafka, without effect here: %s name=%s", found.place, found.name)
        else:
            mistakes.append(f"{found.place}: {found.name}: unknown setting{nearest(found.name, declared)}")
    return known


def nearest(name: str, valid: Iterable[str]) -> str:
    """`; did you mean x?`, or nothing if no valid name is like it."""
    found = nearest_name(name, valid, NEAREST_CUTOFF)
    return "" if found is None else f"; did you mean {found}?"


def _parse(known: Mapping[str, Given], mistakes: list[str]) -> dict[str, object]:
    declared = settings_of(BrokerSettings)
    values: dict[str, object] = {}
    for name, found in known.items():
        try:
            values[declared[name].attribute] = declared[name].parse(found.value)
        except BadValue as error:
            reason = str(error)
            mistakes.append(f"{found.place}: {name}={found.value}: {reason[0].lower()}{reason[1:]}")
    return values


def _without_controller_listeners(settings: BrokerSettings, given: list[Given]) -> BrokerSettings:
    """A file for KRaft also lists the listener of Kafka's own quorum, which does not exist here."""
    names = {
        f"{name.strip().upper()}://"
        for found in given
        if found.name == "controller.listener.names"
        for name in found.value.split(",")
        if name.strip()
    }
    if not names:
        return settings

    def kept(listeners: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(text for text in listeners if not text.upper().startswith(tuple(names)))

    advertised = settings.advertised_listeners
    return replace(
        settings,
        listeners=kept(settings.listeners),
        advertised_listeners=None if advertised is None else kept(advertised),
    )


def _contradictions(settings: BrokerSettings) -> Iterator[tuple[str, str]]:
    """Mistakes that no single setting can tell, each with the name of the setting to look at."""
    for name, check in _CHECKS:
        try:
            check(settings)
        except BadValue as error:
            yield name, str(error)


def _place(known: Mapping[str, Given], name: str) -> str:
    return f"{known[name].place}: {name}: " if name in known else f"{name}: "


def _with_one_id(settings: BrokerSettings) -> BrokerSettings:
    broker_id = settings.configured_broker_id
    return settings if broker_id is None else replace(settings, broker_id=broker_id, node_id=broker_id)


def _check_ids(settings: BrokerSettings) -> None:
    if GENERATED_ID not in (settings.broker_id, settings.node_id) and settings.broker_id != settings.node_id:
        raise BadValue(f"broker.id is {settings.broker_id}, but node.id, which means the same, is {settings.node_id}")


def _check_log_directories(settings: BrokerSettings) -> None:
    if not settings.log_directories:
        raise BadValue("at least one log directory must be given")


def _check_retention(settings: BrokerSettings) -> None:
    if topic_defaults(settings).retention_ms == 0:
        raise BadValue("must be unlimited (-1) or at least 1")


def _check_roll(settings: BrokerSettings) -> None:
    if topic_defaults(settings).segment_ms < 1:
        raise BadValue("must be at least 1")


def _check_roll_jitter(settings: BrokerSettings) -> None:
    if topic_defaults(settings).segment_jitter_ms < 0:
        raise BadValue("must be at least 0")


def _check_queued_bytes(settings: BrokerSettings) -> None:
    if 0 < settings.queued_max_request_bytes < settings.socket_request_max_bytes:
        raise BadValue("must be at least socket.request.max.bytes, or the largest request could never be read")


def _check_lease(settings: BrokerSettings) -> None:
    if settings.broker_heartbeat_interval_ms >= settings.broker_session_timeout_ms:
        raise BadValue("must be less than broker.session.timeout.ms, or the broker would lose its session")


def _check_listeners(settings: BrokerSettings) -> None:
    if not settings.endpoints:
        raise BadValue("at least one listener must be given")


def _check_advertised_listeners(settings: BrokerSettings) -> None:
    advertised = settings.advertised_listeners
    if advertised is None:
        return
    if any(endpoint.host in ("0.0.0.0", "::") for endpoint in settings.advertised_endpoints):
        raise BadValue("clients cannot connect to the address of all interfaces; name the machine")
    names = {text.partition(":")[0].upper() for text in settings.listeners}
    unknown = [
        endpoint.listener_name for endpoint in settings.advertised_endpoints if endpoint.listener_name not in names
    ]
    if unknown:
        raise BadValue(f"{', '.join(unknown)} is not among the listeners")


def _check_inter_broker_listener(settings: BrokerSettings) -> None:
    name = settings.inter_broker_listener_name
    if name is not None and name.upper() not in {endpoint.listener_name for endpoint in settings.advertised_endpoints}:
        raise BadValue(f"{name} is not among the listeners that this broker advertises")


def _check_metrics_listener(settings: BrokerSettings) -> None:
    if settings.metrics_listener:
        parse_address(settings.metrics_listener)


def _check_group_sessions(settings: BrokerSettings) -> None:
    if settings.group_min_session_timeout_ms > settings.group_max_session_timeout_ms:
        raise BadValue("must not be less than group.min.session.timeout.ms")


def _check_consumer_sessions(settings: BrokerSettings) -> None:
    shortest, longest = settings.group_consumer_min_session_timeout_ms, settings.group_consumer_max_session_timeout_ms
    if not shortest <= settings.group_consumer_session_timeout_ms <= longest:
        raise BadValue(f"must lie between the shortest and the longest allowed, {shortest} and {longest}")


def _check_consumer_heartbeats(settings: BrokerSettings) -> None:
    shortest = settings.group_consumer_min_heartbeat_interval_ms
    longest = settings.group_consumer_max_heartbeat_interval_ms
    if not shortest <= settings.group_consumer_heartbeat_interval_ms <= longest:
        raise BadValue(f"must lie between the shortest and the longest allowed, {shortest} and {longest}")
    if settings.group_consumer_heartbeat_interval_ms >= settings.group_consumer_session_timeout_ms:
        raise BadValue("must be less than group.consumer.session.timeout.ms, or members would lose their sessions")


def _check_assignors(settings: BrokerSettings) -> None:
    if not settings.group_consumer_assignors:
        raise BadValue("at least one assignor must be given")


_CHECKS: tuple[tuple[str, Callable[[BrokerSettings], None]], ...] = (
    ("node.id", _check_ids),
    ("log.dirs", _check_log_directories),
    ("log.retention.ms", _check_retention),
    ("log.roll.ms", _check_roll),
    ("log.roll.jitter.ms", _check_roll_jitter),
    ("queued.max.request.bytes", _check_queued_bytes),
    ("broker.heartbeat.interval.ms", _check_lease),
    ("listeners", _check_listeners),
    ("advertised.listeners", _check_advertised_listeners),
    ("inter.broker.listener.name", _check_inter_broker_listener),
    ("metrics.listener", _check_metrics_listener),
    ("group.max.session.timeout.ms", _check_group_sessions),
    ("group.consumer.session.timeout.ms", _check_consumer_sessions),
    ("group.consumer.heartbeat.interval.ms", _check_consumer_heartbeats),
    ("group.consumer.assignors", _check_assignors),
)
