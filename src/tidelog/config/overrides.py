"""Settings that a topic or a group is given: their text, checked one by one."""

from collections.abc import Mapping, Set

from tidelog.config.setting import BadValue, Setting
from tidelog.errors import InvalidConfig


def parse_overrides(
    kind: str, overrides: Mapping[str, str], declared: Mapping[str, Setting], known_to_kafka_only: Set[str]
) -> dict[str, object]:
    """The values by attribute; InvalidConfig names the first mistake, as Kafka does."""
    for name in overrides:
        if name in known_to_kafka_only:
            raise InvalidConfig(f"{kind.capitalize()} config {name} is known to Kafka, but not supported here")
        if name not in declared:
            raise InvalidConfig(f"Unknown {kind} config name: {name}")
    values = {}
    for name, text in overrides.items():
        try:
            values[declared[name].attribute] = declared[name].parse(text)
        except BadValue as error:
            raise InvalidConfig(f"Invalid value {text} for configuration {name}: {error}") from error
    return values
