"""Parser for settings of a topic or a group."""

from collections.abc import Mapping, Set

from tidelog.config.setting import BadValue, Setting
from tidelog.errors import InvalidConfig


def parse_overrides(
    kind: str, overrides: Mapping[str, str], declared: Mapping[str, Setting], unsupported_kafka_names: Set[str]
) -> dict[str, object]:
    """The values by attribute; InvalidConfig for the first mistake, as in Kafka."""
    for name in overrides:
        if name in unsupported_kafka_names:
            raise InvalidConfig(f"{kind.capitalize()} config {name} is a Kafka setting that is not supported")
        if name not in declared:
            raise InvalidConfig(f"Unknown {kind} config name: {name}")
    values = {}
    for name, text in overrides.items():
        try:
            values[declared[name].attribute] = declared[name].parse(text)
        except BadValue as error:
            raise InvalidConfig(f"Invalid value {text} for configuration {name}: {error}") from error
    return values
