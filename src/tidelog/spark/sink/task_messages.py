"""What a driver gives its tasks so that what they write counts together or not at all, and what they bring back."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from tidelog.client.transaction_group import NO_BATCH, OpenGroup
from tidelog.spark.errors import SourceError
from tidelog.types import TopicPartition

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
SPECULATION = "spark.speculation"


class NotExactlyOnce(SourceError):
    """Why rows cannot be written exactly once; the message says what can be done."""


class Task(NamedTuple):
    """One attempt at a part of a batch, as Spark tells it."""

    partition: int = 0
    attempt: int = 0
    task_attempt_id: int = 0
    """No two attempts of an application share it, not even those of a stage that is run again."""
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
class GroupTicket:
    """Of a transaction group: each attempt writes as a member of it, and the driver says which of them count."""

    name: str
    opened: OpenGroup
    query_id: str | None = None
    batch_id: int | None = None
    """Of a batch that says so itself; in a stream tasks know it."""

    @property
    def last_batch_id(self) -> int:
        return self.opened.last_batch_id


@dataclass(frozen=True, slots=True)
class SharedTicket:
    """For brokers without transaction groups: all tasks write as one producer, in one transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    last_batch_id: int = NO_BATCH
    query_id: str | None = None
    batch_id: int | None = None


@dataclass(frozen=True, slots=True)
class NoTicket:
    """Why there is none, for tasks to raise. An error of the driver's in `__getstate__` would tell of pickling."""

    error: Exception


Ticket = GroupTicket | SharedTicket


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task wrote: all in-sync replicas have it. Without a ticket it counts at once."""

    record_counts: Mapping[TopicPartition, int]
    ticket: Ticket | None = None
    member_id: str | None = None
    """None where nothing was written."""

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.record_counts)


# -- in a task


def is_written_already(ticket: Ticket, task: Task) -> bool:
    """Whether the batch of the task was committed by an earlier run. Raises NotExactlyOnce if that cannot be told."""
    if ticket.query_id is not None and task.query_id not in (None, ticket.query_id):
        raise NotExactlyOnce(
            f"The checkpoint has changed while the query ran: it belongs to query {ticket.query_id}, and this is query"
            f" {task.query_id}. Start the query again."
        )
    batch_id = ticket.batch_id if task.batch_id is None or ticket.batch_id is not None else task.batch_id
    if batch_id is None or batch_id > ticket.last_batch_id:
        return False
    if batch_id < ticket.last_batch_id:
        raise NotExactlyOnce(
            f"Batch {batch_id} cannot be written exactly once: batch {ticket.last_batch_id} was written already, so the"
            " checkpoint is an older copy, or a new one under an old 'kafka.transactional.id'. Restore the latest"
            " checkpoint, or set 'kafka.transactional.id' to another name to have the rows written again."
        )
    return True


def check_may_share(task: Task) -> None:
    """One producer for all tasks: nothing that an earlier attempt wrote could be taken back alone."""
    if task.attempt > 0:
        raise NotExactlyOnce(
            f"Task {task.partition} was tried before, and what it wrote then cannot be told from what it writes now:"
            f" the batch has to be run again as a whole. {_WITHOUT_GROUPS}"
        )
    if task.is_speculative:
        raise NotExactlyOnce(
            f"With spark.speculation two copies of a task would write the same rows: set it to false. {_WITHOUT_GROUPS}"
        )


def check_not_taken(partition: TopicPartition, taken: Collection[TopicPartition]) -> None:
    """Also of a stage that is run again, whose tasks look like new ones."""
    if partition in taken:
        raise NotExactlyOnce(_two_tasks(partition))


def _two_tasks(partition: TopicPartition) -> str:
    return (
        f"Two tasks wrote to partition {partition}, which one producer cannot do exactly once: give each partition to"
        " one task (repartition the rows by the column 'partition', or coalesce(1)), or set the option 'delivery' to"
        f" 'at-least-once'. {_WITHOUT_GROUPS}"
    )


_WITHOUT_GROUPS = (
    "(These brokers have no transaction groups, as Tidelog's have; the option 'delivery' = 'at-least-once' writes"
    " without transactions.)"
)

# -- on the driver


def written(messages: Iterable[WriterCommitMessage | None]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]


def ticket_of(messages: Sequence[Written]) -> Ticket | None:
    return next((message.ticket for message in messages if message.ticket is not None), None)


def winners(messages: Iterable[Written]) -> list[str]:
    return [message.member_id for message in messages if message.member_id is not None]


def check_one_task_each(messages: Iterable[Written]) -> None:
    """Raises NotExactlyOnce if two tasks wrote to one partition: they number their batches alike."""
    seen: set[TopicPartition] = set()
    for message in messages:
        if twice := seen & message.partitions:
            raise NotExactlyOnce(_two_tasks(min(twice)))
        seen |= message.partitions
