"""Messages between driver and tasks of an exactly-once write: the transaction out, the written partitions back."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from tidelog.client.producer.transaction_group import NO_BATCH, OpenGroup
from tidelog.spark.errors import SourceError
from tidelog.types import TopicPartition

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
SPECULATION = "spark.speculation"


class NotExactlyOnce(SourceError):
    """Rows cannot be written exactly once; the message says what to do."""


class Task(NamedTuple):
    """One attempt of a task, from Spark's task context."""

    partition: int = 0
    attempt: int = 0
    task_attempt_id: int = 0
    """Unique among all attempts of an application, including stages that run again."""
    batch_id: int | None = None
    query_id: str | None = None
    is_speculative: bool = False

    @property
    def member(self) -> str:
        return f"{self.partition}.{self.task_attempt_id}"


def this_task() -> Task:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return Task()
    batch_id = context.getLocalProperty(BATCH_ID)
    return Task(
        context.partitionId(),
        context.attemptNumber(),
        context.taskAttemptId(),
        None if batch_id is None else int(batch_id),
        context.getLocalProperty(QUERY_ID),
        (context.getLocalProperty(SPECULATION) or "").lower() == "true",
    )


@dataclass(frozen=True, slots=True)
class GroupTransaction:
    """Transaction group: each attempt writes as a member, and the driver chooses the members to commit."""

    name: str
    opened: OpenGroup
    query_id: str | None = None
    batch_id: int | None = None
    """Batch id given by the option `batchId`; in a stream, tasks know it."""

    @property
    def last_batch_id(self) -> int:
        return self.opened.last_batch_id


@dataclass(frozen=True, slots=True)
class SharedTransaction:
    """For brokers without transaction groups: all tasks write as one producer, in one transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    last_batch_id: int = NO_BATCH
    query_id: str | None = None
    batch_id: int | None = None


@dataclass(frozen=True, slots=True)
class FailedTransaction:
    """The driver's error, for tasks to raise: raised in `__getstate__`, Spark would report a pickling error."""

    error: Exception


WriteTransaction = GroupTransaction | SharedTransaction


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """Rows that one task wrote, acknowledged. Without a transaction they are visible at once."""

    record_counts: Mapping[TopicPartition, int]
    transaction: WriteTransaction | None = None
    member_id: str | None = None
    """None if nothing was written."""

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.record_counts)


def is_written_already(transaction: WriteTransaction, task: Task) -> bool:
    """True if an earlier run committed the batch of this task. Raises NotExactlyOnce if that cannot be decided."""
    if transaction.query_id is not None and task.query_id not in (None, transaction.query_id):
        raise NotExactlyOnce(
            f"The checkpoint changed while the query was running: it belongs to query {transaction.query_id}, but this"
            f" is query {task.query_id}. Restart the query."
        )
    batch_id = transaction.batch_id if task.batch_id is None or transaction.batch_id is not None else task.batch_id
    if batch_id is None or batch_id > transaction.last_batch_id:
        return False
    if batch_id < transaction.last_batch_id:
        raise NotExactlyOnce(
            f"Batch {batch_id} cannot be written exactly once: batch {transaction.last_batch_id} was already written,"
            " so the checkpoint is an older copy, or a new one with an old 'kafka.transactional.id'. Restore the"
            " latest checkpoint, or change 'kafka.transactional.id' to write the rows again."
        )
    return True


def check_may_share(task: Task) -> None:
    """With one producer for all tasks, the writes of an earlier attempt cannot be aborted alone."""
    if task.attempt > 0:
        raise NotExactlyOnce(
            f"Task {task.partition} was attempted before, and its earlier writes cannot be separated from its new ones:"
            f" the whole batch has to run again. {_WITHOUT_GROUPS}"
        )
    if task.is_speculative:
        raise NotExactlyOnce(
            f"With spark.speculation two copies of a task would write the same rows: set it to false. {_WITHOUT_GROUPS}"
        )


def check_not_taken(partition: TopicPartition, taken: Collection[TopicPartition]) -> None:
    """Also covers a stage that runs again, whose tasks look like new ones."""
    if partition in taken:
        raise NotExactlyOnce(_two_tasks(partition))


def _two_tasks(partition: TopicPartition) -> str:
    return (
        f"Two tasks wrote to partition {partition}, which one producer cannot do exactly once: write each partition in"
        " one task (repartition the rows by the column 'partition', or coalesce(1)), or set the option 'delivery' to"
        f" 'at-least-once'. {_WITHOUT_GROUPS}"
    )


_WITHOUT_GROUPS = (
    "(These brokers have no transaction groups, unlike Tidelog's; the option 'delivery' = 'at-least-once' writes"
    " without transactions.)"
)


def written(messages: Iterable[WriterCommitMessage | None]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]


def transaction_of(messages: Sequence[Written]) -> WriteTransaction | None:
    return next((message.transaction for message in messages if message.transaction is not None), None)


def winners(messages: Iterable[Written]) -> list[str]:
    return [message.member_id for message in messages if message.member_id is not None]


def check_one_task_each(messages: Iterable[Written]) -> None:
    """Raises NotExactlyOnce if two tasks wrote to one partition: both use the same sequence numbers."""
    seen: set[TopicPartition] = set()
    for message in messages:
        if twice := seen & message.partitions:
            raise NotExactlyOnce(_two_tasks(min(twice)))
        seen |= message.partitions
