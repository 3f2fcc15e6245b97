"""Transactional producer: records of several partitions and group offsets, committed atomically."""

import contextlib
from collections.abc import Mapping

from tidelog.client.consumer.offsets import by_topic
from tidelog.client.groups.group_offsets import GroupMember
from tidelog.client.network.connection import ClientConnection
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp
from tidelog.client.producer.producer import Producer
from tidelog.client.producer.producer_batch import ProducerIdAndEpoch
from tidelog.client.producer.producer_settings import ProducerSettings
from tidelog.client.producer.transactional_identity import TransactionalIdentity
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.coordinators import Coordinators, KeyType
from tidelog.errors import KafkaError, raise_error
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tidelog.runtime.clock import Clock
from tidelog.types import NO_PRODUCER_ID, TopicPartition

LAST_EXPLICIT_END = 4
LAST_EXPLICIT_OFFSETS = 4
"""Last versions of EndTxn and TxnOffsetCommit for producers that add partitions and groups themselves (KIP-890)."""
DEFAULT_TIMEOUT_S = 60.0
DEFAULT_TRANSACTION_TIMEOUT_MS = 60_000


class TransactionalProducer(Producer):
    """`async with TransactionalProducer(...)`, then `begin`, writes, and `commit` or `abort`, as often as needed.

    A later producer with the same transactional id fences this one: its calls then raise ProducerFenced or
    InvalidProducerEpoch.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        transactional_id: str,
        settings: ProducerSettings | None = None,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS,
    ) -> None:
        self._coordinators = Coordinators(cluster)
        self._identity = TransactionalIdentity(
            self._coordinators, transactional_id, timeout_s=timeout_s, transaction_timeout_ms=transaction_timeout_ms
        )
        super().__init__(cluster, clock, settings, self._identity)
        self._has_offsets = False

    @property
    def identity(self) -> TransactionalIdentity:
        """For writers that send requests of their own."""
        return self._identity

    @classmethod
    def resumed(
        cls, cluster: Cluster, clock: Clock, transactional_id: str, identity: ProducerIdAndEpoch, *, timeout_s: float
    ) -> "TransactionalProducer":
        """A producer that only ends a transaction written by others with the same identity; must not be entered.

        Uses the protocol before KIP-890, like the others: they have added their partitions explicitly.
        """
        producer = cls(cluster, clock, transactional_id, timeout_s=timeout_s)
        producer._identity.set_identity(identity.producer_id, identity.producer_epoch)
        producer.begin()
        producer._has_offsets = True
        return producer

    async def __aenter__(self) -> "TransactionalProducer":
        await super().__aenter__()
        try:
            await self._identity.initialize()
        except BaseException as error:
            await self._writers.close(error)
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Abort an open transaction, at once if possible, else by its timeout."""
        if error is None and self._identity.is_open:
            with contextlib.suppress(KafkaError, ConnectionLost, GaveUp):
                await self.abort()
        with contextlib.suppress(KafkaError, ConnectionLost, GaveUp):  # failures of an aborted transaction
            self.raise_failure()
        await super().__aexit__(kind, error, traceback)

    def begin(self) -> None:
        self._identity.begin()
        self._has_offsets = False

    async def commit(self) -> None:
        """Returns when the commit is durable. After an error only `abort` is possible."""
        self._identity.require_open()
        await self.flush()
        await self._end(is_committed=True)

    async def flush(self) -> None:
        """After a failed flush the transaction cannot be committed."""
        try:
            await super().flush()
        except (KafkaError, ConnectionLost, GaveUp):
            self._identity.is_failed = True
            raise

    async def abort(self) -> None:
        """Also after a failure. Read-committed consumers see none of its records."""
        with contextlib.suppress(KafkaError, ConnectionLost, GaveUp):
            await self.flush()
        may_have_gaps = self._identity.is_failed and not self._identity.is_implicit
        await self._end(is_committed=False)
        if may_have_gaps:  # the next sequence is unknown: a new epoch begins at 0 (KIP-360)
            await self._identity.initialize()

    async def _end(self, *, is_committed: bool) -> None:
        identity = self._identity
        if identity.has_partitions or self._has_offsets:
            await self._ask_end(is_committed=is_committed)
        identity.end()

    async def _ask_end(self, *, is_committed: bool) -> None:
        identity = self._identity
        what = f"{'committing' if is_committed else 'aborting'} the transaction of {identity.transactional_id}"
        request = EndTxnRequest(
            transactional_id=identity.transactional_id,
            producer_id=identity.identity.producer_id,
            producer_epoch=identity.identity.producer_epoch,
            committed=is_committed,
        )

        async def attempt(connection: ClientConnection) -> EndTxnResponse:
            version = None if identity.is_implicit else LAST_EXPLICIT_END
            response = await connection.ask(request, EndTxnResponse, version=version, timeout_s=identity.timeout_s)
            raise_error(response.error_code, what)
            return response

        response = await identity.ask_coordinator(what, attempt)
        if response.producer_id != NO_PRODUCER_ID:
            identity.set_identity(response.producer_id, response.producer_epoch)

    # ---- offsets of a group

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], member: GroupMember) -> None:
        """Commit offsets of a group as part of the transaction."""
        self._identity.require_open()
        try:
            await self._send_offsets(offsets, member)
        except (KafkaError, ConnectionLost, GaveUp):
            self._identity.is_failed = True
            raise

    async def _send_offsets(self, offsets: Mapping[TopicPartition, int], member: GroupMember) -> None:
        identity = self._identity
        if not identity.is_implicit:
            await self._add_offsets(member.group_id)
        self._has_offsets = True
        topics = by_topic(
            offsets,
            lambda key: TxnOffsetCommitRequestPartition(
                partition_index=key.partition, committed_offset=offsets[key], committed_metadata=""
            ),
        )
        request = TxnOffsetCommitRequest(
            transactional_id=identity.transactional_id,
            group_id=member.group_id,
            producer_id=identity.identity.producer_id,
            producer_epoch=identity.identity.producer_epoch,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=found) for topic, found in topics.items()],
        )
        what = f"committing offsets of group {member.group_id}"

        async def attempt(connection: ClientConnection) -> None:
            version = None if identity.is_implicit else LAST_EXPLICIT_OFFSETS
            response = await connection.ask(
                request, TxnOffsetCommitResponse, version=version, timeout_s=identity.timeout_s
            )
            for topic in response.topics:
                for partition in topic.partitions:
                    raise_error(partition.error_code, what)

        await self._coordinators.ask(KeyType.GROUP, member.group_id, what, identity.timeout_s, attempt)

    async def _add_offsets(self, group_id: str) -> None:
        identity = self._identity
        request = AddOffsetsToTxnRequest(
            transactional_id=identity.transactional_id,
            producer_id=identity.identity.producer_id,
            producer_epoch=identity.identity.producer_epoch,
            group_id=group_id,
        )
        what = f"adding the offsets of group {group_id} to the transaction"

        async def attempt(connection: ClientConnection) -> None:
            response = await connection.ask(request, AddOffsetsToTxnResponse, timeout_s=identity.timeout_s)
            raise_error(response.error_code, what)

        await identity.ask_coordinator(what, attempt)
