"""Brings the batches of one task to their partitions, through the client's thread.

Who the producer is, is decided here and nowhere else: an idle one of this process, or with a ticket one that writes in
the transaction of its driver, who ends it.
"""

import asyncio
from weakref import WeakKeyDictionary

from tidelog.client.cluster import Cluster
from tidelog.client.encoded_batches import BatchProducer, EncodedBatch
from tidelog.client.metadata import TopicMetadata
from tidelog.client.pipeline import ConnectionLost
from tidelog.client.producer_batch import Identity
from tidelog.client.producer_identity import ProducerIdentity
from tidelog.client.producer_settings import ProducerSettings
from tidelog.client.retries import Attempts, GaveUp, is_retriable, reason_of
from tidelog.client.transaction_admin import TransactionAdmin
from tidelog.client.transaction_group import member_identity, shared_identity
from tidelog.client.transactional_identity import TransactionalIdentity
from tidelog.errors import (
    InvalidReplicationFactor,
    KafkaError,
    LeaderNotAvailable,
    MessageTooLarge,
    RecordListTooLarge,
    UnknownTopicOrPartition,
)
from tidelog.spark import client_thread
from tidelog.spark.errors import BrokersAway, SourceError, UnknownTopic
from tidelog.spark.options.client_settings import ClientSettings
from tidelog.spark.options.query import WriteOptions
from tidelog.spark.sink.commits import SHUT_OUT, coordinators_of, shut_out
from tidelog.spark.sink.task_messages import GroupTicket, SharedTicket, Task, Ticket, check_may_share, check_not_taken
from tidelog.types import TopicPartition

MISSING_TOPIC_S = 5.0
"""A topic that the brokers make when it is first asked for is there by then; one that is not does not exist."""


class NotWritten(SourceError):
    """Rows that the brokers did not take; the message says why, and what can be done."""


class LentProducer:
    """A producer that one task after another writes with.

    Brokers remember every producer for a day: one for each task of each micro-batch would be a million of them.
    """

    def __init__(self, producer: BatchProducer) -> None:
        self.producer = producer
        self._is_open = asyncio.Event()
        self._owner = asyncio.get_running_loop().create_task(self._own())

    @classmethod
    async def open(
        cls, cluster: Cluster, settings: ProducerSettings, identity: ProducerIdentity | None = None
    ) -> "LentProducer":
        lent = cls(BatchProducer(cluster, settings, identity))
        await lent._is_open.wait()
        return lent

    async def _own(self) -> None:
        """The producer's tasks belong to the task that enters and leaves it, and every call of ours is another."""
        async with self.producer:
            self._is_open.set()
            await asyncio.Event().wait()

    async def close(self) -> None:
        """What is under way may or may not be written."""
        self._owner.cancel()
        await asyncio.wait([self._owner])


_idle_producers: WeakKeyDictionary[Cluster, dict[ProducerSettings, list[LentProducer]]] = WeakKeyDictionary()
"""Of the clusters of the client's thread, and used by it only."""


class Delivery:
    """`begin`, then `send` as often as needed, then `finish`; or `abandon` at any time after `begin`."""

    def __init__(self, options: WriteOptions, ticket: Ticket | None = None, task: Task | None = None) -> None:
        self._options = options
        self._settings = producer_settings(options.client)
        self._ticket = ticket
        self._task = task or Task()
        self._lent: LentProducer | None = None
        self._taken: frozenset[TopicPartition] = frozenset()
        """What others have written to in a transaction that all tasks share."""
        self._sending: client_thread.Started[None] | None = None

    @property
    def member_id(self) -> str | None:
        """Who the driver lets win."""
        return self._ticket.opened.member_id(self._task.member) if isinstance(self._ticket, GroupTicket) else None

    def begin(self) -> None:
        if isinstance(self._ticket, SharedTicket):
            check_may_share(self._task)
        client_thread.run(self._begin())

    def topic(self, name: str) -> TopicMetadata:
        """Made by the brokers if they do so; raises UnknownTopic or BrokersAway."""
        return client_thread.run(_find_topic(self._cluster, name, self._options))

    def send(self, topic_partition: TopicPartition, data: bytearray, record_count: int) -> None:
        """Returns when there was room for the batch before: the next can be encoded meanwhile. This one is the
        producer's from now on."""
        self._wait_for_room()
        self._sending = client_thread.start(self._send(topic_partition, EncodedBatch(data, record_count)))

    def finish(self) -> None:
        """Returns when all in-sync replicas have everything."""
        self._wait_for_room()
        self._sending = client_thread.start(self._flush())
        self._wait_for_room()
        client_thread.run(self._end())

    def abandon(self) -> None:
        """What is under way may or may not be written."""
        if self._sending is not None:
            self._sending.cancel()
        client_thread.run(self._abandon())

    async def _begin(self) -> None:
        self._cluster = client_thread.cluster_for(self._options.bootstrap, self._options.client)
        self._idle = _idle_producers.setdefault(self._cluster, {}).setdefault(self._settings, [])

    async def _send(self, topic_partition: TopicPartition, batch: EncodedBatch) -> None:
        if self._lent is None:
            self._lent = await self._producer()
        check_not_taken(topic_partition, self._taken)
        await self._lent.producer.send(topic_partition, batch)

    async def _flush(self) -> None:
        if self._lent is not None:
            await self._lent.producer.flush()

    async def _producer(self) -> LentProducer:
        if self._ticket is None:
            return self._idle.pop() if self._idle else await LentProducer.open(self._cluster, self._settings)
        identity = await self._transactional_identity(self._ticket)
        identity.begin()
        return await LentProducer.open(self._cluster, self._settings, identity)

    async def _transactional_identity(self, ticket: Ticket) -> TransactionalIdentity:
        client, coordinators = self._options.client, coordinators_of(self._cluster)
        if isinstance(ticket, SharedTicket):
            described = await TransactionAdmin(self._cluster, timeout_s=client.timeout_s).describe(
                ticket.transactional_id
            )
            self._taken = frozenset(described.partitions)
            shared = Identity(ticket.producer_id, ticket.producer_epoch, is_transactional=True)
            return shared_identity(coordinators, ticket.transactional_id, shared, timeout_s=client.timeout_s)
        identity = member_identity(
            coordinators,
            ticket.opened,
            self._task.member,
            timeout_s=client.timeout_s,
            transaction_timeout_ms=client.transaction_timeout_ms,
        )
        await identity.initialize()
        return identity

    async def _end(self) -> None:
        if self._lent is not None and self._ticket is None:
            self._idle.append(self._lent)
        elif self._lent is not None:
            await self._lent.close()

    async def _abandon(self) -> None:
        if self._lent is not None:
            await self._lent.close()

    def _wait_for_room(self) -> None:
        sending, self._sending = self._sending, None
        try:
            if sending is not None:
                sending.result()
        except SHUT_OUT as error:
            if self._ticket is None:
                raise NotWritten(why_not_written(error, self._options.bootstrap)) from error
            raise shut_out(self._options, error) from error
        except (KafkaError, ConnectionLost, GaveUp) as error:
            raise NotWritten(why_not_written(error, self._options.bootstrap)) from error


def producer_settings(client: ClientSettings) -> ProducerSettings:
    return ProducerSettings(
        acks=client.acks,
        batch_bytes=client.batch_bytes,
        compression=client.compression,
        delivery_timeout_s=client.delivery_timeout_s,
        request_timeout_s=client.request_timeout_s,
        metadata_timeout_s=client.timeout_s,
    )


def why_not_written(error: Exception, bootstrap: str) -> str:
    reason = reason_of(error).rstrip(".")
    if isinstance(error, MessageTooLarge | RecordListTooLarge):
        return f"{reason[:1].upper()}{reason[1:]}. Raise max.message.bytes of the topic, or write smaller rows."
    if isinstance(error, ConnectionLost | GaveUp) or is_retriable(error):
        return f"Rows could not be written to the brokers at {bootstrap}: {reason}."
    return f"The brokers at {bootstrap} refused rows: {reason}."


async def _find_topic(cluster: Cluster, name: str, options: WriteOptions) -> TopicMetadata:
    """As it is now: a task before this one may have known it with fewer partitions."""
    away = cluster.attempts(f"looking for topic {name!r}", options.client.timeout_s)
    missing: Attempts | None = None
    while True:
        try:
            await cluster.topics_in_use([name], may_create=True)
            metadata = await cluster.ask_topics([name], may_create=True)
        except (ConnectionLost, KafkaError) as error:
            await _wait_for_brokers(away, error, options.bootstrap)
            continue
        if name in metadata.topics:
            return metadata.topics[name]
        refusal = metadata.errors.get(name, UnknownTopicOrPartition())
        if isinstance(refusal, InvalidReplicationFactor):
            await _wait_for_replicas(away, name, refusal)
        else:
            missing = missing or cluster.attempts(f"looking for topic {name!r}", MISSING_TOPIC_S)
            await _wait_for_topic(missing, name, refusal)


async def _wait_for_brokers(attempts: Attempts, error: Exception, bootstrap: str) -> None:
    try:
        await attempts.after(error)
    except (GaveUp, KafkaError) as failure:
        raise BrokersAway(f"The brokers at {bootstrap} could not be asked: {reason_of(failure)}") from failure


async def _wait_for_replicas(attempts: Attempts, name: str, error: InvalidReplicationFactor) -> None:
    """The topic is still to be made, and too few brokers are there for its replicas: some may be on their way back."""
    try:
        await attempts.after(LeaderNotAvailable(error.message))
    except GaveUp:
        raise UnknownTopic(
            f"Topic {name!r} does not exist, and there are too few brokers for its replicas: start those that are"
            f" missing, or make it with `tidelog topic create {name}` and fewer replicas."
        ) from None


async def _wait_for_topic(attempts: Attempts, name: str, error: KafkaError) -> None:
    try:
        await attempts.after(error)
    except GaveUp:
        raise UnknownTopic(
            f"Topic {name!r} does not exist, and the brokers do not make topics by themselves: make it with"
            f" `tidelog topic create {name}`, or correct the name."
        ) from None
    except KafkaError as refusal:
        raise UnknownTopic(f"Topic {name!r} cannot be written to: {reason_of(refusal)}") from refusal
