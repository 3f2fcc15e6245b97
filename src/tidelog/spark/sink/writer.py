"""Writers of `format("tidelog")`: the methods that Spark calls on the driver and in every task."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tidelog.config.nearest import nearest_name
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.randomness import SystemRandomness
from tidelog.spark.accelerators.error_texts import only_the_sentence
from tidelog.spark.errors import SourceError
from tidelog.spark.options.query import WriteOptions
from tidelog.spark.options.values import OptionError
from tidelog.spark.sink import commits
from tidelog.spark.sink.task_messages import (
    FailedTransaction,
    GroupTransaction,
    SharedTransaction,
    Task,
    WriteTransaction,
    Written,
    is_written_already,
    this_task,
    transaction_of,
    written,
)
from tidelog.spark.sink.transaction_names import QueryName, stream_name
from tidelog.types import NO_BROKER, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from tidelog.spark.sink.delivery import Delivery
    from tidelog.spark.sink.row_encoding import RowEncoder

logger = logging.getLogger(__name__)

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""Columns that are written, with their types; `value` is required. Other columns are not written."""

_MANY_PARTITIONS = 1 << 16


class _TransactionalWriter:
    """Opens the transaction when Spark sends the writer to the tasks."""

    def __init__(self, options: WriteOptions, schema: "StructType") -> None:
        check_columns(schema, options)
        self._options = options
        self._transaction: WriteTransaction | FailedTransaction | None = None

    def __getstate__(self) -> dict[str, object]:
        if self._options.uses_transactions and self._transaction is None:
            self._transaction = _transaction_or_error(self._options, self._query_name)
        return self.__dict__.copy()

    @staticmethod
    def _query_name(options: WriteOptions) -> QueryName:
        raise NotImplementedError


class BatchWriter(_TransactionalWriter, DataSourceArrowWriter):
    """One object writes, commits and aborts: Spark keeps it in the state in which it was sent to the tasks."""

    @staticmethod
    def _query_name(options: WriteOptions) -> QueryName:
        return QueryName(options.transactional_id or f"spark-job-{uuid4()}")

    @only_the_sentence()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        return write_rows(
            iterator, self._options, self._transaction, this_task()._replace(batch_id=None, query_id=None)
        )

    @only_the_sentence()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if isinstance(self._transaction, GroupTransaction | SharedTransaction):
            commits.commit(self._options, self._transaction, written(messages), self._options.batch_id)
        _log_written("batch written", messages)

    @only_the_sentence()
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if isinstance(self._transaction, GroupTransaction | SharedTransaction):
            commits.abort(self._options, self._transaction)
        _log_written("batch aborted", messages)


class StreamWriter(_TransactionalWriter, DataSourceStreamArrowWriter):
    """Spark makes two per micro-batch: one is sent to the tasks, the other only gets their commit messages.

    Fencing of earlier runs happens in `__getstate__`: the second writer must not do it, and is never sent.
    """

    _query_name = staticmethod(stream_name)

    @only_the_sentence()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        return write_rows(iterator, self._options, self._transaction, this_task())

    @only_the_sentence()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._options.uses_transactions:
            found = written(messages)
            transaction = transaction_of(found) or _transaction(self._options, stream_name)
            if transaction is not None:
                commits.commit(self._options, transaction, found, batchId)
        _log_written(f"micro-batch written batch_id={batchId}", messages)

    @only_the_sentence()
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        transaction = transaction_of(written(messages))
        if transaction is not None:
            commits.abort(self._options, transaction)
        _log_written(f"micro-batch aborted batch_id={batchId}", messages)


def check_columns(schema: "StructType", options: WriteOptions) -> None:
    """Raises OptionError if rows with these columns cannot become records."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in types:
        near = nearest_name("value", types)
        hint = f"did you mean column '{near}'?" if near else "rename the column to write: SELECT ... AS value"
        raise OptionError(f"The rows have no column 'value', which every record needs; {hint}")
    if "topic" not in types and options.topic is None:
        raise OptionError("There is no topic to write to: set the option 'topic', or add a column 'topic'")
    for name, allowed in COLUMNS.items():
        found = types.get(name, allowed[0])
        if found not in allowed:
            raise OptionError(f"Column '{name}' is {found}, but must be {' or '.join(allowed)}")


def reject_overwriting(is_overwriting: bool) -> None:
    if is_overwriting:
        raise OptionError("Mode 'overwrite' is not supported for topics: use mode('append')")


def _log_written(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    total: Counter[TopicPartition] = Counter()
    for message in written(messages):
        total.update(message.record_counts)
    logger.info("%s records=%d partitions=%d", what, total.total(), len(total))


def _transaction(options: WriteOptions, name: Callable[[WriteOptions], QueryName]) -> WriteTransaction | None:
    try:
        named = name(options)
    except OptionError as error:
        if not options.is_best_effort:
            raise
        logger.warning("delivery is at least once reason=%s", error)
        return None
    return commits.open_transaction(options, named, options.batch_id)


def _transaction_or_error(
    options: WriteOptions, name: Callable[[WriteOptions], QueryName]
) -> WriteTransaction | FailedTransaction | None:
    try:
        return _transaction(options, name)
    except (SourceError, OptionError) as error:
        return FailedTransaction(error)


def write_rows(
    batches: "Iterator[pa.RecordBatch]",
    options: WriteOptions,
    transaction: WriteTransaction | FailedTransaction | None = None,
    task: Task | None = None,
) -> Written:
    """Returns when all rows are acknowledged. Encodes rows while the client thread sends the previous ones."""
    if isinstance(transaction, FailedTransaction):
        raise transaction.error
    task = task or Task()
    if transaction is not None and is_written_already(transaction, task):
        for _ in batches:
            pass
        return Written({}, transaction)
    from tidelog.spark.sink.delivery import Delivery
    from tidelog.spark.sink.row_encoding import RowEncoder

    client = options.client
    first_partition = SystemRandomness().below(_MANY_PARTITIONS)
    encoder = RowEncoder(options.topic, client.compression, client.batch_bytes, first_partition)
    delivery = Delivery(options, transaction, task)
    delivery.begin()
    try:
        for rows in batches:
            _write(rows, encoder, delivery)
        for batch in encoder.finish():
            delivery.send(*batch)
        delivery.finish()
    except BaseException:
        delivery.abandon()
        raise
    return Written(dict(encoder.counts), transaction, delivery.member_id if encoder.counts else None)


def _write(rows: "pa.RecordBatch", encoder: "RowEncoder", delivery: "Delivery") -> None:
    for name in encoder.new_topics(rows):
        topic = delivery.topic(name)
        led = [number for number, partition in topic.partitions.items() if partition.leader != NO_BROKER]
        for batch in encoder.add_topic(name, len(topic.partitions), led):
            delivery.send(*batch)
    for batch in encoder.encode(rows, SystemClock().now_ms()):
        delivery.send(*batch)
