"""Columns of views, as far as the pipeline file declares them."""

from tidelog.pipelines.definition.ddl import BadSchema, read_schema
from tidelog.pipelines.definition.model import FormatKind, JdbcSource, NullValues, Source, Step, TopicSource, WindowStep

RAW_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
POSITION_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp")
"""Columns for the position of a parsed record in its topic."""
CHANGE_COLUMNS = ("_deleted", "_op", "_changed_at", "_source")
"""Columns of a parsed change: whether it is a delete, and Debezium's operation, time and source."""
RESERVED_COLUMNS = (*POSITION_COLUMNS, *CHANGE_COLUMNS, "_value", "_error", "_row")
"""Column names that the pipeline uses itself while it parses records."""
WINDOW_COLUMNS = ("window_start", "window_end")


def columns_of_source(source: Source) -> list[str] | None:
    """None if only Spark can know."""
    if isinstance(source, TopicSource) and source.format.kind is FormatKind.RAW:
        return list(RAW_COLUMNS)
    if isinstance(source, JdbcSource) or source.format.schema is None:
        return None
    try:
        columns = [column.name for column in read_schema(source.format.schema)]
    except BadSchema:
        return None
    if not isinstance(source, TopicSource):
        return columns
    if source.format.kind is FormatKind.DEBEZIUM:
        return [*columns, *POSITION_COLUMNS, *CHANGE_COLUMNS]
    deleted = CHANGE_COLUMNS[:1] if source.format.null_values is NullValues.DELETE else ()
    return [*columns, *POSITION_COLUMNS, *deleted]


def type_in_schema(source: Source, name: str) -> str | None:
    """The declared type; None if only Spark can know."""
    if isinstance(source, JdbcSource):
        return None
    try:
        columns = read_schema(source.format.schema) if source.format.schema else []
    except BadSchema:
        return None
    return next((column.type for column in columns if column.name.lower() == name.lower()), None)


def columns_of_step(step: Step) -> list[str] | None:
    if isinstance(step, WindowStep):
        return [*WINDOW_COLUMNS, *step.group, *step.aggregates]
    return None
