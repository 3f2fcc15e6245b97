"""Resolution of effective settings and their sources: topic or group, broker, cluster, file, default."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from tidelog.config import group, topic
from tidelog.config.broker import BrokerSettings
from tidelog.config.coordinators import CoordinatorSettings
from tidelog.config.dynamic_sasl import sasl_changes, usable_sasl_changes, validate_sasl_changes
from tidelog.config.group import ConsumerGroupSettings, bounds, check_group_settings, group_defaults
from tidelog.config.kafka_names import is_read_only_in_kafka, is_unsupported_kafka_name
from tidelog.config.overrides import parse_overrides
from tidelog.config.quotas import DESCRIBED_WHERE_SET
from tidelog.config.sasl import JAAS_CONFIG, split_sasl_name
from tidelog.config.setting import BadValue, ConfigType, Setting, UpdateMode, default_text, settings_of
from tidelog.config.ssl import split_listener_name, ssl_setting_names
from tidelog.config.topic import TopicSettings, check_topic_settings
from tidelog.errors import InvalidRequest

MILLISECONDS = {"ms": 1, "minutes": 60_000, "hours": 3_600_000}

_ROLL = ("log.roll.ms", "log.roll.hours")
_ROLL_JITTER = ("log.roll.jitter.ms", "log.roll.jitter.hours")
_RETENTION = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
SYNONYMS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_ROLL, _ROLL),
    **dict.fromkeys(_ROLL_JITTER, _ROLL_JITTER),
    **dict.fromkeys(_RETENTION, _RETENTION),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}
"""Broker settings with the same meaning, by precedence."""


class ConfigSource(IntEnum):
    """Numbers of DescribeConfigs."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_GROUP_CONFIG = 8


Layer: TypeAlias = tuple[ConfigSource, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class DynamicBrokerConfigs:
    """Settings stored by AlterConfigs for one broker and for all brokers, by Kafka's name."""

    per_broker: Mapping[str, str] = field(default_factory=dict)
    cluster_wide: Mapping[str, str] = field(default_factory=dict)


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class DescribedSetting(NamedTuple):
    """One entry of a DescribeConfigs response."""

    name: str
    value: str | None
    source: ConfigSource
    synonyms: tuple[Synonym, ...]
    is_sensitive: bool
    is_read_only: bool
    type: ConfigType
    documentation: str


def effective_broker_settings(static: BrokerSettings, dynamic: DynamicBrokerConfigs) -> BrokerSettings:
    """The effective settings of a broker. Stored values that are not valid here are ignored."""
    stored = {**dynamic.cluster_wide, **dynamic.per_broker}
    if not stored:
        return static
    of_listeners = {name: text for name, text in dynamic.per_broker.items() if split_listener_name(name) is not None}
    of_listeners |= usable_sasl_changes(dynamic.per_broker)
    overrides = {**static.listener_overrides, **of_listeners} if of_listeners else static.listener_overrides
    return replace(static, **_usable(settings_of(BrokerSettings), stored), listener_overrides=overrides)


def topic_defaults(broker: BrokerSettings) -> TopicSettings:
    """Defaults of a topic, from the broker settings."""
    values = {
        setting.attribute: _broker_value(broker, setting.broker_names)
        for setting in settings_of(TopicSettings).values()
        if setting.broker_names
    }
    values["retention_ms"] = max(values["retention_ms"], -1)
    return TopicSettings(**values)


def topic_settings(defaults: TopicSettings, stored: Mapping[str, str]) -> TopicSettings:
    """The effective settings of a topic. Stored values that are not valid here are ignored."""
    return replace(defaults, **_usable(settings_of(TopicSettings), stored)) if stored else defaults


def validated_topic_settings(defaults: TopicSettings, overrides: Mapping[str, str]) -> TopicSettings:
    """The settings of a topic with a client's overrides; raises InvalidConfig."""
    declared = settings_of(TopicSettings)
    values: dict[str, Any] = parse_overrides("topic", overrides, declared, topic.UNSUPPORTED_KAFKA_NAMES)
    settings = replace(defaults, **values)
    check_topic_settings(settings)
    return settings


def group_settings(broker: CoordinatorSettings, stored: Mapping[str, str]) -> ConsumerGroupSettings:
    """The effective settings of a group, clamped to the broker's bounds, which may have changed since."""
    defaults = group_defaults(broker)
    if not stored:
        return defaults
    allowed = bounds(broker)
    values = {
        attribute: max(allowed[attribute][0], min(value, allowed[attribute][1]))
        for attribute, value in _usable(settings_of(ConsumerGroupSettings), stored).items()
    }
    return replace(defaults, **values)


def validate_group_settings(broker: CoordinatorSettings, overrides: Mapping[str, str]) -> None:
    """Raises InvalidConfig if a group cannot have these settings."""
    declared = settings_of(ConsumerGroupSettings)
    values: dict[str, Any] = parse_overrides("group", overrides, declared, group.UNSUPPORTED_KAFKA_NAMES)
    check_group_settings(broker, replace(group_defaults(broker), **values))


def validate_dynamic_broker_configs(overrides: Mapping[str, str], *, for_one_broker: bool) -> None:
    """Raises InvalidRequest, as Kafka does, if AlterConfigs must not store these settings for one or all brokers.

    Checks against the broker's other settings are in `dynamic_changes`.
    """
    declared = settings_of(BrokerSettings)
    of_listeners = {name: text for name, text in overrides.items() if split_listener_name(name) is not None}
    _validate_listener_configs(of_listeners, for_one_broker=for_one_broker)
    _reject(
        (name for name in overrides if name in ssl_setting_names()),
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )
    validate_sasl_changes(overrides, for_one_broker=for_one_broker)
    of_sasl = sasl_changes(overrides)
    overrides = {name: text for name, text in overrides.items() if name not in of_listeners and name not in of_sasl}
    _reject(
        (name for name in overrides if _is_read_only(declared.get(name), name)),
        "Cannot update these configs dynamically",
    )
    _reject((name for name in overrides if name == JAAS_CONFIG), "Cannot update these configs dynamically")
    _reject((name for name in overrides if is_unsupported_kafka_name(name)), "Not supported")
    _reject((name for name in overrides if name not in declared), "Unknown broker configs")
    for name, text in overrides.items():
        try:
            declared[name].parse(text)
        except BadValue as error:
            raise InvalidRequest(f"Invalid value {text} for configuration {name}: {error}") from error
    if not for_one_broker:
        _reject(
            (name for name in overrides if declared[name].update is UpdateMode.PER_BROKER),
            "Cannot update these configs at default cluster level, broker id must be specified",
        )


def _is_read_only(setting: Setting | None, name: str) -> bool:
    return is_read_only_in_kafka(name) if setting is None else setting.update is UpdateMode.READ_ONLY


def _validate_listener_configs(overrides: Mapping[str, str], *, for_one_broker: bool) -> None:
    declared = settings_of(BrokerSettings)
    of_listeners = {name: declared[found[1]] for name in overrides if (found := split_listener_name(name)) is not None}
    _reject(
        (name for name, setting in of_listeners.items() if setting.update is UpdateMode.READ_ONLY),
        "Cannot update these configs dynamically",
    )
    _reject(
        (name for name, setting in of_listeners.items() if setting.is_sensitive),
        "Passwords and keys cannot be stored, because password.encoder.secret is not supported",
    )
    if not for_one_broker:
        _reject(of_listeners, "Cannot update these configs at default cluster level, broker id must be specified")
    for name, setting in of_listeners.items():
        try:
            setting.parse(overrides[name])
        except BadValue as error:
            raise InvalidRequest(f"Invalid value for configuration {name}: {error}") from error


def describe_topic(
    static: BrokerSettings, dynamic: DynamicBrokerConfigs, stored: Mapping[str, str]
) -> list[DescribedSetting]:
    """All settings of a topic, for DescribeConfigs."""
    settings = topic_settings(topic_defaults(effective_broker_settings(static, dynamic)), stored)
    return _describe_overrides(settings, stored, ConfigSource.DYNAMIC_TOPIC_CONFIG, _layers(static, dynamic))


def describe_group(
    static: BrokerSettings, dynamic: DynamicBrokerConfigs, stored: Mapping[str, str]
) -> list[DescribedSetting]:
    """All settings of a group, for DescribeConfigs."""
    settings = group_settings(effective_broker_settings(static, dynamic), stored)
    return _describe_overrides(settings, stored, ConfigSource.DYNAMIC_GROUP_CONFIG, _layers(static, dynamic))


def describe_broker(static: BrokerSettings, dynamic: DynamicBrokerConfigs) -> list[DescribedSetting]:
    """All settings of a broker, for DescribeConfigs; some only where they are set."""
    settings = effective_broker_settings(static, dynamic)
    layers = _layers(static, dynamic)
    described = [
        _described(
            setting,
            setting.text(getattr(settings, setting.attribute)),
            synonyms,
            is_read_only=setting.update is UpdateMode.READ_ONLY,
        )
        for setting in settings_of(BrokerSettings).values()
        if (synonyms := _broker_synonyms(setting.name, layers)) or setting.name not in DESCRIBED_WHERE_SET
    ]
    return described + [_described_of_listener(static, dynamic, name) for name in sorted(settings.listener_overrides)]


def _described_of_listener(static: BrokerSettings, dynamic: DynamicBrokerConfigs, name: str) -> DescribedSetting:
    """A setting with a listener's prefix. Kafka describes those that are set."""
    of_tls, of_sasl = split_listener_name(name), split_sasl_name(name)
    setting_name = of_tls[1] if of_tls is not None else of_sasl.setting if of_sasl is not None else name
    setting = settings_of(BrokerSettings).get(setting_name)
    is_sensitive = setting is None or setting.is_sensitive  # also login modules, which are no setting by themselves
    layers = (
        (ConfigSource.DYNAMIC_BROKER_CONFIG, dynamic.per_broker),
        (ConfigSource.STATIC_BROKER_CONFIG, static.listener_overrides),
    )
    synonyms = tuple(
        Synonym(name, None if is_sensitive else values[name], source) for source, values in layers if name in values
    )
    return DescribedSetting(
        name=name,
        value=synonyms[0].value,
        source=synonyms[0].source,
        synonyms=synonyms,
        is_sensitive=is_sensitive,
        is_read_only=False,
        type=ConfigType.PASSWORD if setting is None else setting.type,
        documentation="" if setting is None else setting.documentation,
    )


def describe_cluster_defaults(dynamic: DynamicBrokerConfigs) -> list[DescribedSetting]:
    """Settings stored for all brokers, for DescribeConfigs of the default broker."""
    declared = settings_of(BrokerSettings)
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return [
        _described(declared[name], value, (Synonym(name, value, source),), is_read_only=False)
        for name, value in dynamic.cluster_wide.items()
        if name in declared
    ]


def static_values(broker: BrokerSettings) -> dict[str, str]:
    """Settings of the broker that were set at its start, by a file, a flag or code."""
    values = dict(broker.originals)
    for setting in settings_of(BrokerSettings).values():
        text = setting.text(getattr(broker, setting.attribute))
        if text is not None and text != default_text(setting):
            values.setdefault(setting.name, text)
    return values


def _usable(declared: Mapping[str, Setting], stored: Mapping[str, str]) -> dict[str, Any]:
    """Ignores what this broker cannot read: a newer broker of the cluster may have stored it."""
    values = {}
    for name, text in stored.items():
        setting = declared.get(name)
        if setting is None:
            continue
        try:
            values[setting.attribute] = setting.parse(text)
        except BadValue:
            continue
    return values


def _broker_value(broker: BrokerSettings, names: tuple[str, ...]) -> Any:
    for attribute, factor in _attributes(names):
        value = getattr(broker, attribute)
        if value is not None:
            return value * factor if type(value) is int else value
    raise AssertionError(f"no broker setting gives a default: {names}")


@cache
def _attributes(names: tuple[str, ...]) -> list[tuple[str, int]]:
    """Attributes of broker settings, with the milliseconds in their unit."""
    return [(name.replace(".", "_"), MILLISECONDS.get(name.rpartition(".")[2], 1)) for name in names]


def _layers(static: BrokerSettings, dynamic: DynamicBrokerConfigs) -> list[Layer]:
    return [
        (ConfigSource.DYNAMIC_BROKER_CONFIG, dynamic.per_broker),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, dynamic.cluster_wide),
        (ConfigSource.STATIC_BROKER_CONFIG, static_values(static)),
        (ConfigSource.DEFAULT_CONFIG, _default_values()),
    ]


def _broker_synonyms(name: str, layers: list[Layer]) -> tuple[Synonym, ...]:
    found = [
        Synonym(synonym, values[synonym], source)
        for source, values in layers
        for synonym in SYNONYMS.get(name, (name,))
        if synonym in values
    ]
    # Kafka drops everything before the first synonym of the same name.
    first = next((index for index, synonym in enumerate(found) if synonym.name == name), len(found))
    return tuple(found[first:])


def _default_values() -> dict[str, str]:
    defaults = {setting.name: default_text(setting) for setting in settings_of(BrokerSettings).values()}
    return {name: text for name, text in defaults.items() if text is not None and name not in DESCRIBED_WHERE_SET}


def _describe_overrides(
    settings: TopicSettings | ConsumerGroupSettings,
    stored: Mapping[str, str],
    source: ConfigSource,
    layers: list[Layer],
) -> list[DescribedSetting]:
    declaring: type = type(settings)
    described = []
    for setting in settings_of(declaring).values():
        value = setting.text(getattr(settings, setting.attribute))
        synonyms = _broker_synonyms(setting.broker_names[0], layers) if setting.broker_names else ()
        if setting.name in stored:
            synonyms = (Synonym(setting.name, value, source), *synonyms)
        described.append(_described(setting, value, synonyms, is_read_only=False))
    return described


def _described(
    setting: Setting, value: str | None, synonyms: tuple[Synonym, ...], *, is_read_only: bool
) -> DescribedSetting:
    if setting.is_sensitive:
        synonyms = tuple(synonym._replace(value=None) for synonym in synonyms)
    return DescribedSetting(
        name=setting.name,
        value=None if setting.is_sensitive else value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
        is_sensitive=setting.is_sensitive,
        is_read_only=is_read_only,
        type=setting.type,
        documentation=setting.documentation,
    )


def _reject(names: Iterable[str], message: str) -> None:
    rejected = ", ".join(names)
    if rejected:
        raise InvalidRequest(f"{message}: {rejected}")
