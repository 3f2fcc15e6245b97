"""Loader for broker settings from a server.properties file and flags; reports all mistakes at once."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from tidelog.config.broker import BrokerSettings
from tidelog.config.config_providers import CONFIG_PROVIDERS, UnresolvedSecret, named_providers, resolve_named
from tidelog.config.consistency import rejected_at_start
from tidelog.config.jaas import parse_jaas_sections
from tidelog.config.kafka_names import is_unsupported_kafka_name
from tidelog.config.listener_settings import SERVER_SECTION
from tidelog.config.nearest import SETTING_CUTOFF, did_you_mean
from tidelog.config.properties import parse_properties
from tidelog.config.sasl import JAAS_CONFIG, check_override, split_sasl_name
from tidelog.config.security import guards
from tidelog.config.setting import BadValue, settings_of
from tidelog.config.ssl import SslSettings, split_listener_name
from tidelog.config.thread_pools import NO_EFFECT
from tidelog.config.zookeeper_login import KAFKA_OPTS, read_jaas_file, system_properties, warn_if_readable

logger = logging.getLogger(__name__)


class SettingsError(Exception):
    """All mistakes in the settings; `str(error)` has one line per mistake."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


class Given(NamedTuple):
    name: str
    value: str
    place: str
    """`file:line`, `--set` or `KAFKA_OPTS`."""


def load_broker_settings(path: str | None, overrides: Iterable[str] = ()) -> BrokerSettings:
    """Flags override the file, the file `KAFKA_OPTS`; SettingsError has every mistake in them."""
    mistakes: list[str] = []
    given = [*_from_environment(), *_from_file(path, mistakes), *_from_flags(overrides, mistakes)]
    _check_roles(given)
    given = _without_controllers(_resolved(given, mistakes))
    known = _supported(given, mistakes)
    values = _parse(known, mistakes)
    originals = {name: found.value for name, found in known.items()}
    settings = BrokerSettings(**values, originals=originals)  # type: ignore[arg-type]
    settings = _with_jaas_file(_without_controller_listeners(settings, given), mistakes)
    mistakes.extend(_place(known, name) + message for name, message in rejected_at_start(settings))
    if mistakes:
        raise SettingsError(mistakes)
    return _with_one_id(settings)


def _from_environment() -> Iterator[Given]:
    for name, value in system_properties(os.environ):
        yield Given(name, value, KAFKA_OPTS)


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


def _check_roles(given: list[Given]) -> None:
    roles = {found.name: found for found in given}.get("process.roles")
    if roles is not None and {each.strip() for each in roles.value.split(",")} == {"controller"}:
        raise SettingsError([f"{roles.place}: process.roles: every broker can be the controller; start brokers only"])


def _resolved(given: list[Given], mistakes: list[str]) -> list[Given]:
    """With the values of Kafka's config providers, which have no effect themselves."""
    values = {found.name: found.value for found in given if found.name.startswith(CONFIG_PROVIDERS)}
    if CONFIG_PROVIDERS not in values:
        return given
    try:
        providers = named_providers(values)
    except UnresolvedSecret as error:
        raise SettingsError([str(error)]) from error
    resolved = []
    for found in given:
        try:
            if found.name not in values:
                resolved.append(found._replace(value=resolve_named(found.value, providers)))
        except UnresolvedSecret as error:
            mistakes.append(f"{found.place}: {found.name}: {error}")
    return resolved


def _controllers(given: list[Given]) -> list[str]:
    """Names of the listeners of KRaft's controllers, which do not exist here."""
    found = {each.name: each.value for each in given}.get("controller.listener.names", "")
    return [name.strip().upper() for name in found.split(",") if name.strip()]


def _without_controllers(given: list[Given]) -> list[Given]:
    prefixes = tuple(f"LISTENER.NAME.{name}." for name in _controllers(given))
    left_out = [found for found in given if prefixes and found.name.upper().startswith(prefixes)]
    for found in left_out:
        _warn_of_no_effect(found)
    return [found for found in given if found not in left_out]


def _supported(given: list[Given], mistakes: list[str]) -> dict[str, Given]:
    """The last value of each supported name; warnings or mistakes for the others."""
    declared = settings_of(BrokerSettings)
    known: dict[str, Given] = {}
    for found in given:
        if found.name in declared:
            if found.name in known and not {known[found.name].place, found.place} & {"--set", KAFKA_OPTS}:
                logger.warning("setting given twice, using the last one place=%s name=%s", found.place, found.name)
            if found.name in NO_EFFECT:
                _warn_of_no_effect(found)
            known[found.name] = found
        elif split_listener_name(found.name) is not None or split_sasl_name(found.name) is not None:
            known[found.name] = found
        elif found.name == JAAS_CONFIG:
            mistakes.append(
                f"{found.place}: {found.name}: needs a listener and a mechanism, as in"
                f" listener.name.NAME.plain.{JAAS_CONFIG}"
            )
        elif guards(found.name, found.value):
            mistakes.append(f"{found.place}: {found.name}: not supported; without it the broker would be unprotected")
        elif is_unsupported_kafka_name(found.name):
            _warn_of_no_effect(found)
        else:
            hint = did_you_mean(found.name, declared, cutoff=SETTING_CUTOFF)
            mistakes.append(f"{found.place}: {found.name}: unknown setting{hint}")
    return known


def _warn_of_no_effect(found: Given) -> None:
    logger.warning("Kafka setting has no effect place=%s name=%s", found.place, found.name)


def _parse(known: Mapping[str, Given], mistakes: list[str]) -> dict[str, object]:
    declared = settings_of(BrokerSettings)
    values: dict[str, object] = {}
    overrides: dict[str, str] = {}
    for name, found in known.items():
        try:
            if name in declared:
                values[declared[name].attribute] = declared[name].parse(found.value)
            else:
                _check_override(name, found.value)
                overrides[name] = found.value
        except BadValue as error:
            reason = str(error)
            shown = name if _is_secret(name) else f"{name}={found.value}"
            mistakes.append(f"{found.place}: {shown}: {reason[0].lower()}{reason[1:]}")
    return {**values, "listener_overrides": overrides}


def _check_override(name: str, text: str) -> None:
    """Check a setting of one listener. Raises BadValue."""
    of_tls, of_sasl = split_listener_name(name), split_sasl_name(name)
    if of_tls is not None:
        settings_of(SslSettings)[of_tls[1]].parse(text)
    elif of_sasl is not None:
        check_override(of_sasl, text)


def _is_secret(name: str) -> bool:
    """Whether the value must not be shown."""
    of_tls = split_listener_name(name)
    declared = settings_of(BrokerSettings).get(name if of_tls is None else of_tls[1])
    return name.endswith(JAAS_CONFIG) or (declared is not None and declared.is_sensitive)


def _without_controller_listeners(settings: BrokerSettings, given: list[Given]) -> BrokerSettings:
    """A file for KRaft also has the controller listener, which does not exist here."""
    names = tuple(f"{name}://" for name in _controllers(given))
    if not names:
        return settings

    def kept(listeners: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(text for text in listeners if not text.upper().startswith(names))

    advertised = settings.advertised_listeners
    return replace(
        settings,
        listeners=kept(settings.listeners),
        advertised_listeners=None if advertised is None else kept(advertised),
    )


def _with_jaas_file(settings: BrokerSettings, mistakes: list[str]) -> BrokerSettings:
    """With the login modules of listeners that stand in a JAAS file."""
    path = settings.java_security_auth_login_config
    try:
        if not path or not settings.sasl_endpoints:
            return settings
    except BadValue:  # in the listeners, which another check reports
        return settings
    try:
        sections = read_jaas_file(
            path, lambda text: parse_jaas_sections(text, lambda name: name.rpartition(".")[2] == SERVER_SECTION)
        )
    except BadValue as error:
        mistakes.append(str(error))
        return settings
    if sections:
        warn_if_readable(path)
    return replace(settings, jaas_sections=sections)


def _place(known: Mapping[str, Given], name: str) -> str:
    return f"{known[name].place}: {name}: " if name in known else f"{name}: "


def _with_one_id(settings: BrokerSettings) -> BrokerSettings:
    broker_id = settings.configured_broker_id
    return settings if broker_id is None else replace(settings, broker_id=broker_id, node_id=broker_id)
