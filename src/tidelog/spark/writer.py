"""The writing half of `format("tidelog")`: what Spark calls on the driver and in every task."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tidelog.config.nearest import nearest_name
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.randomness import SystemRandomness
from tidelog.spark.option_values import OptionError
from tidelog.spark.options import WriteOptions
from tidelog.types import NO_BROKER, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from tidelog.spark.delivery import Delivery
    from tidelog.spark.writing import RowEncoder

log = logging.getLogger(__name__)

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""What a row may have, and in which types; `value` it must have. Other columns are not written."""

BATCH_ID = "streaming.sql.batchId"
_MANY_PARTITIONS = 1 << 16


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task wrote: all in-sync replicas have it."""

    record_counts: Mapping[TopicPartition, int]


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, schema: "StructType") -> None:
        check_columns(schema, options)
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        return write_rows(iterator, self._options, batch_id=None)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _log_written("rows written", messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _log_written("writing was broken off, and what tasks wrote stays", messages)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, schema: "StructType") -> None:
        check_columns(schema, options)
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        return write_rows(iterator, self._options, batch_id=_batch_id())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _log_written(f"rows of a micro-batch written: batch_id={batchId}", messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _log_written(f"a micro-batch was broken off, and what tasks wrote stays: batch_id={batchId}", messages)


# -- on the driver


def check_columns(schema: "StructType", options: WriteOptions) -> None:
    """Raises OptionError if rows with these columns could not become records."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in types:
        near = nearest_name("value", types)
        hint = f"did you mean '{near}' to be it?" if near else "select what is to be written AS value"
        raise OptionError(f"The rows have no column 'value', which every record needs; {hint}")
    if "topic" not in types and options.topic is None:
        raise OptionError("There is no topic to write to: set the option 'topic', or give the rows a column 'topic'")
    for name, allowed in COLUMNS.items():
        found = types.get(name, allowed[0])
        if found not in allowed:
            raise OptionError(f"Column '{name}' is {found}, but to be written it must be {' or '.join(allowed)}")


def refuse_overwriting(is_overwriting: bool) -> None:
    if is_overwriting:
        raise OptionError("Mode 'overwrite' cannot empty a topic first: write with mode('append')")


def _log_written(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    total: Counter[TopicPartition] = Counter()
    for message in messages:
        if isinstance(message, Written):
            total.update(message.record_counts)
    log.info("%s records=%d partitions=%d", what, total.total(), len(total))


# -- in a task


def _batch_id() -> int | None:
    from pyspark import TaskContext

    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(BATCH_ID)
    return None if text is None else int(text)


def write_rows(batches: "Iterator[pa.RecordBatch]", options: WriteOptions, batch_id: int | None) -> Written:
    """Returns when everything is acknowledged. Rows are encoded here while the client's thread sends those before."""
    from tidelog.spark.delivery import Delivery
    from tidelog.spark.writing import RowEncoder

    client = options.client
    first_partition = SystemRandomness().below(_MANY_PARTITIONS)
    encoder = RowEncoder(options.topic, client.compression, client.batch_bytes, first_partition)
    delivery = Delivery(options)
    delivery.begin(batch_id)
    try:
        for rows in batches:
            _write(rows, encoder, delivery)
        for batch in encoder.finish():
            delivery.send(*batch)
        delivery.finish()
    except BaseException:
        delivery.abandon()
        raise
    return Written(dict(encoder.counts))


def _write(rows: "pa.RecordBatch", encoder: "RowEncoder", delivery: "Delivery") -> None:
    for name in encoder.new_topics(rows):
        topic = delivery.topic(name)
        led = [number for number, partition in topic.partitions.items() if partition.leader != NO_BROKER]
        for batch in encoder.add_topic(name, len(topic.partitions), led):
            delivery.send(*batch)
    for batch in encoder.encode(rows, SystemClock().now_ms()):
        delivery.send(*batch)
