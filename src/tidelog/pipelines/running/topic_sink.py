"""Topic sink: rows written as records of a topic."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.pipelines.definition.model import FormatKind, TopicSink
from tidelog.pipelines.formats import serialise
from tidelog.pipelines.running.progress import WRITTEN
from tidelog.pipelines.tables.foreach_batch import QUERY_ID_PROPERTY
from tidelog.spark.options.delivery_guarantee import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SOURCE_FORMAT = "tidelog"
APPEND = "append"
UPDATE = "update"
RAW_COLUMNS = ("key", "headers", "timestamp")
"""Columns kept when raw records are copied; not the partition, because the other topic may have fewer."""


def topic_writer(frame: "DataFrame", sink: TopicSink, on_written: Callable[[int], None]) -> "DataStreamWriter":
    """Python streaming sinks of Spark only append; updates are written by foreachBatch."""
    if sink.output_mode == APPEND:
        writer = written_to(with_rows_counted(records(frame, sink)), sink.bootstrap, sink.topic)
        return writer.options(**sink.options).outputMode(APPEND)
    batches = TopicBatches(sink, on_written)
    return frame.writeStream.foreachBatch(batches.write).outputMode(sink.output_mode)


class TopicBatches:
    """Writes micro-batches; calls `on_written` with the number of rows of each."""

    def __init__(self, sink: TopicSink, on_written: Callable[[int], None], *, is_shared: bool = False) -> None:
        """`is_shared`: other sinks of the query have transactions, too."""
        self._sink = sink
        self._suffix = f"-{sink.name}" if is_shared else ""
        self._on_written = on_written

    def write(self, rows: "DataFrame", batch_id: int) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        observation = Observation()
        counted = records(rows, self._sink).observe(observation, F.count(F.lit(1)).alias("rows"))
        options = topic_options(counted, self._sink.bootstrap, self._sink.topic)
        query_id = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
        options |= {"kafka.transactional.id": f"spark-{query_id}{self._suffix}", "batchId": str(batch_id)}
        counted.write.format(SOURCE_FORMAT).options(**options).options(**self._sink.options).mode(APPEND).save()
        self._on_written(int(observation.get["rows"]))


def records(frame: "DataFrame", sink: TopicSink) -> "DataFrame":
    value = serialise(frame, sink.format).alias("value")
    if sink.key is not None:
        return frame.select(_key(frame, sink.key).alias("key"), value, *_raw_columns(frame, sink, without="key"))
    return frame.select(value, *_raw_columns(frame, sink))


def _key(frame: "DataFrame", expression: str) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    column = F.expr(expression)
    is_binary = frame.select(column.alias("key")).dtypes[0][1] == "binary"
    return column if is_binary else column.cast("string").cast("binary")


def _raw_columns(frame: "DataFrame", sink: TopicSink, without: str = "") -> list[str]:
    if sink.format.kind is not FormatKind.RAW:
        return []
    return [name for name in RAW_COLUMNS if name in frame.columns and name != without]


def with_rows_counted(frame: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    return frame.observe(WRITTEN, F.count(F.lit(1)).alias("rows"))


def written_to(frame: "DataFrame", bootstrap: str, topic: str) -> "DataStreamWriter":
    return frame.writeStream.format(SOURCE_FORMAT).options(**topic_options(frame, bootstrap, topic))


def topic_options(frame: "DataFrame", bootstrap: str, topic: str) -> dict[str, str]:
    headers = {"includeHeaders": "true"} if "headers" in frame.columns else {}
    return {"kafka.bootstrap.servers": bootstrap, "topic": topic, "delivery": Guarantee.AUTO.value, **headers}
