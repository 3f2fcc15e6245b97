"""View of the settings of a topic, broker or group: values, and where each comes from. No I/O."""

# Core: no clock, no I/O, no await.

from collections.abc import Iterable, Mapping, Sequence

from tidelog.client.admin.config_admin import Resource, ResourceKind
from tidelog.protocol.messages.describe_configs import DescribeConfigsResourceResult
from tidelog.terminal.tables import table

DEFAULT_SOURCE = 5
SOURCES = {
    1: "set on the topic",
    2: "set on the broker at run time",
    3: "set for all brokers at run time",
    4: "from the broker's file",
    DEFAULT_SOURCE: "default",
    6: "set at run time",
    7: "set for client metrics",
    8: "set on the group",
}
"""By the numbers of DescribeConfigs."""
SOURCE_NAMES = {
    1: "topic",
    2: "broker",
    3: "all_brokers",
    4: "file",
    DEFAULT_SOURCE: "default",
    6: "logger",
    7: "client_metrics",
    8: "group",
}
HIDDEN = "(hidden)"
ROOT_LOGGER = "root"


def is_set(entry: DescribeConfigsResourceResult) -> bool:
    return entry.config_source != DEFAULT_SOURCE


def own_levels(entries: Sequence[DescribeConfigsResourceResult]) -> list[DescribeConfigsResourceResult]:
    """Loggers whose level is not that of the logger above them, and the root: brokers report the levels of all."""
    levels = {each.name: each.value for each in entries}
    return [each for each in entries if each.name == ROOT_LOGGER or each.value != _level_above(each.name, levels)]


def _level_above(name: str, levels: Mapping[str, str | None]) -> str | None:
    while "." in name:
        name = name.rpartition(".")[0]
        if name in levels:
            return levels[name]
    return levels.get(ROOT_LOGGER)


def level_lines(entries: Iterable[DescribeConfigsResourceResult]) -> list[str]:
    return table(["LOGGER", "LEVEL"], [(each.name, each.value or "") for each in entries])


def settings_lines(entries: Iterable[DescribeConfigsResourceResult]) -> list[str]:
    rows = [(each.name, _value(each), source_text(each)) for each in entries]
    return table(["SETTING", "VALUE", "SOURCE"], rows)


def _value(entry: DescribeConfigsResourceResult) -> str:
    return HIDDEN if entry.is_sensitive else entry.value or ""


def source_text(entry: DescribeConfigsResourceResult) -> str:
    """With the broker's name of the setting, if a topic or group inherits it under another one."""
    text = SOURCES.get(entry.config_source, "unknown source")
    name = next((each.name for each in entry.synonyms if each.source == entry.config_source), entry.name)
    return text if name == entry.name or entry.config_source == DEFAULT_SOURCE else f"{text} ({name})"


def settings_json(entries: Iterable[DescribeConfigsResourceResult]) -> list[dict[str, object]]:
    return [
        {
            "name": each.name,
            "value": None if each.is_sensitive else each.value,
            "source": SOURCE_NAMES.get(each.config_source, "unknown"),
            "is_read_only": each.read_only,
            "is_sensitive": each.is_sensitive,
            "inherited": [
                {"name": inner.name, "value": inner.value, "source": SOURCE_NAMES.get(inner.source, "unknown")}
                for inner in each.synonyms
            ],
        }
        for each in entries
    ]


def resource_text(resource: Resource) -> str:
    """`topic orders`, `broker 1`, `all brokers`."""
    if resource.kind is ResourceKind.BROKER and not resource.name:
        return "all brokers"
    kind = "log levels of broker" if resource.kind is ResourceKind.LOGGER else resource.kind.name.lower()
    return f"{kind} {resource.name}"


def changed_text(resource: Resource, values: Sequence[tuple[str, str]], unset: Sequence[str]) -> str:
    parts = [f"{name}={value}" for name, value in values] + [f"{name} is unset" for name in unset]
    return f"{resource_text(resource)}: {', '.join(parts)}"
