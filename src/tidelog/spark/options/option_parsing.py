"""Parsed options of one query: unknown options are rejected, the others validated."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from tidelog.config.nearest import nearest_name
from tidelog.spark.options.client_settings import reject
from tidelog.spark.options.kafka_settings import (
    KAFKA_SETTINGS,
    PREFIX,
    REJECTED,
    WITHOUT_EFFECT,
    Side,
    is_security_setting,
)
from tidelog.spark.options.option_table import BY_LOWER_NAME, CHECKPOINT, OPTIONS, Option, Query, is_spark_option
from tidelog.spark.options.values import OptionError, parsed

logger = logging.getLogger(__name__)


class ParsedOptions:
    """Raises OptionError for an unknown option, an option of another kind of query, or an invalid value."""

    def __init__(self, options: Mapping[str, str], query: Query) -> None:
        self._query = query
        self._values: dict[str, Any] = {}
        self.kafka: dict[str, str] = {}
        """Kafka client settings, by name without the prefix."""
        self.checkpoint: str | None = None
        """Checkpoint location of the query."""
        self.without_effect: list[str] = []
        """Valid options without effect on this query."""
        for name, text in options.items():
            self._add(name, text)

    def warn(self) -> None:
        if self.without_effect:
            logger.warning("options have no effect names=%s query=%s", ",".join(self.without_effect), self._query.value)

    def get(self, name: str, default: Any = None) -> Any:
        """Parsed value of an option, by its documented name."""
        return self._values.get(name, default)

    def given(self, *names: str) -> list[str]:
        return [name for name in names if name in self._values]

    def _add(self, name: str, text: str) -> None:
        lower = name.lower()
        option = BY_LOWER_NAME.get(lower)
        if lower == CHECKPOINT:
            self.checkpoint = text
        if option is not None:
            self._add_option(option, text)
        elif lower.startswith(PREFIX):
            self._add_kafka_setting(lower.removeprefix(PREFIX), text)
        elif not is_spark_option(lower):
            raise _unknown(name, self._query)

    def _add_option(self, option: Option, text: str) -> None:
        value = parsed(option.name, option.parse, text)
        if self._query not in option.queries:
            _check_query_kind(option, self._query)
        if self._query in option.queries and option.has_effect:
            self._values[option.name] = value
        else:
            self.without_effect.append(option.name)

    def _add_kafka_setting(self, name: str, text: str) -> None:
        reject(name)
        side = Side.WRITE if self._query is Query.WRITE else Side.READ
        known = {setting.name: setting for setting in KAFKA_SETTINGS}
        if is_security_setting(name) or (name in known and known[name].is_for(side)):
            self.kafka[name] = text
        elif name in known or name in WITHOUT_EFFECT:
            self.without_effect.append(PREFIX + name)
        else:
            raise _unknown(PREFIX + name, self._query)


def _check_query_kind(option: Option, query: Query) -> None:
    """Limits of micro-batches are allowed in batch queries, as with Spark's Kafka source."""
    if query is Query.WRITE:
        raise OptionError(f"Option '{option.name}' is for reading and cannot be used for writing")
    if option.queries == (Query.WRITE,):
        raise OptionError(f"Option '{option.name}' is for writing; use 'subscribe' to select what to read")
    if query is Query.STREAM:
        raise OptionError(f"Option '{option.name}' is for batch queries; a stream has no end")


def _unknown(name: str, query: Query) -> OptionError:
    spellings = {known.lower(): known for known in _valid_names(query)}
    near = spellings.get(PREFIX + name.lower()) or nearest_name(name, spellings.values())
    return OptionError(f"Option '{name}' is not known{f'; did you mean {near!r}?' if near else ''}")


def _valid_names(query: Query) -> Iterator[str]:
    yield from (option.name for option in OPTIONS if query in option.queries)
    yield from (PREFIX + setting.name for setting in KAFKA_SETTINGS)
    yield from (PREFIX + name for name in (*WITHOUT_EFFECT, *REJECTED))
