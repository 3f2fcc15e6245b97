"""Delivery of the batches of one task to their partitions, through the client thread.

The producer is chosen here and nowhere else: an idle one of this process or, in a transaction, one that writes in the
driver's transaction, which the driver ends.
"""

import asyncio
from weakref import WeakKeyDictionary

from tidelog.client.admin.transaction_admin import TransactionAdmin
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import Attempts, GaveUp, is_retriable, reason_of
from tidelog.client.producer.encoded_batches import BatchProducer, EncodedBatch
from tidelog.client.producer.producer_batch import ProducerIdAndEpoch
from tidelog.client.producer.producer_identity import ProducerIdSource
from tidelog.client.producer.producer_settings import ProducerSettings
from tidelog.client.producer.transaction_group import member_identity, shared_identity
from tidelog.client.producer.transactional_identity import TransactionalIdentity
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.metadata import TopicMetadata
from tidelog.errors import (
    InvalidReplicationFactor,
    KafkaError,
    LeaderNotAvailable,
    MessageTooLarge,
    RecordListTooLarge,
    UnknownTopicOrPartition,
)
from tidelog.spark import client_thread
from tidelog.spark.errors import BrokersUnavailable, SourceError, UnknownTopic
from tidelog.spark.options.client_settings import ClientSettings
from tidelog.spark.options.query import WriteOptions
from tidelog.spark.sink.commits import FENCING_ERRORS, coordinators_of, fenced_error
from tidelog.spark.sink.task_messages import (
    GroupTransaction,
    SharedTransaction,
    Task,
    WriteTransaction,
    check_may_share,
    check_not_taken,
)
from tidelog.types import TopicPartition

MISSING_TOPIC_S = 5.0
"""A topic that brokers create on first use exists by then; a topic that does not is missing."""


class NotWritten(SourceError):
    """The brokers rejected rows; the message says why and what to do."""


class PooledProducer:
    """A producer that tasks use one after the other.

    Brokers remember every producer id for a day: one per task and micro-batch would be a million.
    """

    def __init__(self, producer: BatchProducer) -> None:
        self.producer = producer
        self._is_open = asyncio.Event()
        self._owner = asyncio.get_running_loop().create_task(self._own())

    @classmethod
    async def open(
        cls, cluster: Cluster, settings: ProducerSettings, identity: ProducerIdSource | None = None
    ) -> "PooledProducer":
        lent = cls(BatchProducer(cluster, settings, identity))
        await lent._is_open.wait()
        return lent

    async def _own(self) -> None:
        """Enters the producer in a task of its own, which also leaves it: our calls come from different tasks."""
        async with self.producer:
            self._is_open.set()
            await asyncio.Event().wait()

    async def close(self) -> None:
        """Batches in flight may or may not be written."""
        self._owner.cancel()
        await asyncio.wait([self._owner])


_idle_producers: WeakKeyDictionary[Cluster, dict[ProducerSettings, list[PooledProducer]]] = WeakKeyDictionary()
"""By cluster of the client thread; used only by that thread."""


class Delivery:
    """`begin`, then `send` any number of times, then `finish`; or `abandon` at any time after `begin`."""

    def __init__(
        self, options: WriteOptions, transaction: WriteTransaction | None = None, task: Task | None = None
    ) -> None:
        self._options = options
        self._settings = producer_settings(options.client)
        self._transaction = transaction
        self._task = task or Task()
        self._pooled: PooledProducer | None = None
        self._taken: frozenset[TopicPartition] = frozenset()
        """Partitions that other tasks have written to in a shared transaction."""
        self._sending: client_thread.Started[None] | None = None

    @property
    def member_id(self) -> str | None:
        """Member id of this task in the transaction group; the driver chooses the members to commit."""
        return (
            self._transaction.opened.member_id(self._task.member)
            if isinstance(self._transaction, GroupTransaction)
            else None
        )

    def begin(self) -> None:
        if isinstance(self._transaction, SharedTransaction):
            check_may_share(self._task)
        client_thread.run(self._begin())

    def topic(self, name: str) -> TopicMetadata:
        """Created by the brokers if they allow it; raises UnknownTopic or BrokersUnavailable."""
        return client_thread.run(_find_topic(self._cluster, name, self._options))

    def send(self, topic_partition: TopicPartition, data: bytearray, record_count: int) -> None:
        """Returns when there was room for the previous batch, so that the next can be encoded meanwhile. The producer
        owns `data` from now on."""
        self._wait_for_room()
        self._sending = client_thread.start(self._send(topic_partition, EncodedBatch(data, record_count)))

    def finish(self) -> None:
        """Returns when all batches are acknowledged."""
        self._wait_for_room()
        self._sending = client_thread.start(self._flush())
        self._wait_for_room()
        client_thread.run(self._end())

    def abandon(self) -> None:
        """Batches in flight may or may not be written."""
        if self._sending is not None:
            self._sending.cancel()
        client_thread.run(self._abandon())

    async def _begin(self) -> None:
        self._cluster = client_thread.cluster_for(self._options.bootstrap, self._options.client)
        self._idle = _idle_producers.setdefault(self._cluster, {}).setdefault(self._settings, [])

    async def _send(self, topic_partition: TopicPartition, batch: EncodedBatch) -> None:
        if self._pooled is None:
            self._pooled = await self._producer()
        check_not_taken(topic_partition, self._taken)
        await self._pooled.producer.send(topic_partition, batch)

    async def _flush(self) -> None:
        if self._pooled is not None:
            await self._pooled.producer.flush()

    async def _producer(self) -> PooledProducer:
        if self._transaction is None:
            return self._idle.pop() if self._idle else await PooledProducer.open(self._cluster, self._settings)
        identity = await self._transactional_identity(self._transaction)
        identity.begin()
        return await PooledProducer.open(self._cluster, self._settings, identity)

    async def _transactional_identity(self, transaction: WriteTransaction) -> TransactionalIdentity:
        client, coordinators = self._options.client, coordinators_of(self._cluster)
        if isinstance(transaction, SharedTransaction):
            described = await TransactionAdmin(self._cluster, timeout_s=client.timeout_s).describe(
                transaction.transactional_id
            )
            self._taken = frozenset(described.partitions)
            shared = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch, is_transactional=True)
            return shared_identity(coordinators, transaction.transactional_id, shared, timeout_s=client.timeout_s)
        identity = member_identity(
            coordinators,
            transaction.opened,
            self._task.member,
            timeout_s=client.timeout_s,
            transaction_timeout_ms=client.transaction_timeout_ms,
        )
        await identity.initialize()
        return identity

    async def _end(self) -> None:
        if self._pooled is not None and self._transaction is None:
            self._idle.append(self._pooled)
        elif self._pooled is not None:
            await self._pooled.close()

    async def _abandon(self) -> None:
        if self._pooled is not None:
            await self._pooled.close()

    def _wait_for_room(self) -> None:
        sending, self._sending = self._sending, None
        try:
            if sending is not None:
                sending.result()
        except FENCING_ERRORS as error:
            if self._transaction is None:
                raise NotWritten(why_not_written(error, self._options.bootstrap)) from error
            raise fenced_error(self._options, error) from error
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
        return f"{reason[:1].upper()}{reason[1:]}. Increase max.message.bytes of the topic, or write smaller rows."
    if isinstance(error, ConnectionLost | GaveUp) or is_retriable(error):
        return f"Rows could not be written to the brokers at {bootstrap}: {reason}."
    return f"The brokers at {bootstrap} rejected rows: {reason}."


async def _find_topic(cluster: Cluster, name: str, options: WriteOptions) -> TopicMetadata:
    """Current metadata: an earlier task may have seen fewer partitions."""
    away = cluster.attempts(f"finding topic {name!r}", options.client.timeout_s)
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
        rejection = metadata.errors.get(name, UnknownTopicOrPartition())
        if isinstance(rejection, InvalidReplicationFactor):
            await _wait_for_replicas(away, name, rejection)
        else:
            missing = missing or cluster.attempts(f"finding topic {name!r}", MISSING_TOPIC_S)
            await _wait_for_topic(missing, name, rejection)


async def _wait_for_brokers(attempts: Attempts, error: Exception, bootstrap: str) -> None:
    try:
        await attempts.after(error)
    except (GaveUp, KafkaError) as failure:
        raise BrokersUnavailable(f"The brokers at {bootstrap} did not answer: {reason_of(failure)}") from failure


async def _wait_for_replicas(attempts: Attempts, name: str, error: InvalidReplicationFactor) -> None:
    """The topic cannot be created yet, because too few brokers are up for its replicas; some may come back."""
    try:
        await attempts.after(LeaderNotAvailable(error.message))
    except GaveUp:
        raise UnknownTopic(
            f"Topic {name!r} does not exist, and there are too few brokers for its replicas: start the missing brokers,"
            f" or create it with `tidelog topic create {name}` and fewer replicas."
        ) from None


async def _wait_for_topic(attempts: Attempts, name: str, error: KafkaError) -> None:
    try:
        await attempts.after(error)
    except GaveUp:
        raise UnknownTopic(
            f"Topic {name!r} does not exist, and the brokers do not create topics automatically: create it with"
            f" `tidelog topic create {name}`, or correct the name."
        ) from None
    except KafkaError as rejection:
        raise UnknownTopic(f"Topic {name!r} cannot be written to: {reason_of(rejection)}") from rejection
