"""Admin client for transactions: list, describe, abort, and end hanging ones (KIP-664)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from tidelog.client.network.connection import ClientConnection
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.coordinators import Coordinators, KeyType
from tidelog.errors import NO_ERROR, InvalidTxnState, KafkaError, error_of, raise_error
from tidelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.protocol.transaction_groups import GroupId, MemberId, parse_transactional_id
from tidelog.types import BrokerId, TopicPartition

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 30.0
FENCING_TIMEOUT_MS = 60_000


class TransactionSummary(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str
    coordinator: BrokerId


class TransactionDescription(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    """Start of the open or last transaction; -1 if there was none."""
    partitions: tuple[TopicPartition, ...]


class TransactionAdmin:
    """Retriable errors are retried until `timeout_s`; others are raised."""

    def __init__(self, cluster: Cluster, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster)
        self._timeout_s = timeout_s

    async def list_transactions(self, states: Sequence[str] = ()) -> list[TransactionSummary]:
        """Transactions of all live brokers, sorted by transactional id."""
        metadata = await self._cluster.refresh()
        found = await asyncio.gather(*(self._listed_by(broker_id, states) for broker_id in metadata.brokers))
        return sorted(summary for summaries in found for summary in summaries)

    async def _listed_by(self, broker_id: BrokerId, states: Sequence[str]) -> Sequence[TransactionSummary]:
        what = f"listing the transactions of broker {broker_id}"
        attempts = self._cluster.attempts(what, self._timeout_s)
        request = ListTransactionsRequest(state_filters=states)
        while True:
            response = await self._cluster.ask_broker(broker_id, request, ListTransactionsResponse)
            if response.error_code == NO_ERROR:
                return [
                    TransactionSummary(each.transactional_id, each.producer_id, each.transaction_state, broker_id)
                    for each in response.transaction_states
                ]
            await attempts.after(error_of(response.error_code, what))

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """Raises TransactionalIdNotFound."""

        async def attempt(connection: ClientConnection) -> TransactionDescription:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            response = await connection.ask(request, DescribeTransactionsResponse, timeout_s=self._timeout_s)
            (found,) = response.transaction_states
            raise_error(found.error_code, f"transactional id {transactional_id}")
            return TransactionDescription(
                transactional_id,
                found.producer_id,
                found.producer_epoch,
                found.transaction_state,
                found.transaction_timeout_ms,
                found.transaction_start_time_ms,
                tuple(sorted(TopicPartition(topic.topic, each) for topic in found.topics for each in topic.partitions)),
            )

        return await self._ask(transactional_id, f"describing transactional id {transactional_id}", attempt)

    async def fence(self, transactional_id: str) -> None:
        """Abort the open transaction of this id and fence its producer."""
        parsed = parse_transactional_id(transactional_id)
        if isinstance(parsed, MemberId):
            raise InvalidTxnState(f"{transactional_id} is a member of {parsed.group_id}; abort {parsed.group_id}")

        async def attempt(connection: ClientConnection) -> InitProducerIdResponse:
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=FENCING_TIMEOUT_MS
            )
            response = await connection.ask(request, InitProducerIdResponse, timeout_s=self._timeout_s)
            raise_error(response.error_code, f"transactional id {transactional_id}")
            return response

        successor = await self._ask(transactional_id, f"aborting the transaction of {transactional_id}", attempt)
        if isinstance(parsed, GroupId):
            await self._close_group(transactional_id, successor)

    async def _close_group(self, group_id: str, opened: InitProducerIdResponse) -> None:
        """Fencing the driver of a transaction group opens the group: close it."""

        async def attempt(connection: ClientConnection) -> None:
            request = EndTxnRequest(
                transactional_id=group_id,
                producer_id=opened.producer_id,
                producer_epoch=opened.producer_epoch,
                committed=False,
            )
            response = await connection.ask(request, EndTxnResponse, timeout_s=self._timeout_s)
            raise_error(response.error_code, f"transaction group {group_id}")

        await self._ask(group_id, f"closing transaction group {group_id}", attempt)

    async def producers(self, topic_partition: TopicPartition) -> list[ProducerState]:
        """Producer state of the partition, from its leader."""
        topic, partition = topic_partition
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])

        async def attempt(connection: ClientConnection) -> list[ProducerState]:
            response = await connection.ask(request, DescribeProducersResponse, timeout_s=self._timeout_s)
            (answer,) = response.topics[0].partitions
            raise_error(answer.error_code, str(topic_partition), answer.error_message)
            return answer.active_producers

        return await self._ask_leader(topic_partition, f"asking for the producers of {topic_partition}", attempt)

    async def abort_hanging(self, topic_partition: TopicPartition, producer: ProducerState) -> None:
        """Write an abort marker for a transaction that no coordinator knows (KIP-664)."""
        topic, partition = topic_partition
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
            coordinator_epoch=producer.coordinator_epoch,
        )

        async def attempt(connection: ClientConnection) -> None:
            request = WriteTxnMarkersRequest(markers=[marker])
            response = await connection.ask(request, WriteTxnMarkersResponse, timeout_s=self._timeout_s)
            (answer,) = response.markers[0].topics[0].partitions
            raise_error(answer.error_code, str(topic_partition))

        await self._ask_leader(topic_partition, f"aborting in {topic_partition}", attempt)

    # ---- requests

    async def _ask(self, transactional_id: str, what: str, attempt: Callable[[ClientConnection], Awaitable[T]]) -> T:
        return await self._coordinators.ask(KeyType.TRANSACTION, transactional_id, what, self._timeout_s, attempt)

    async def _ask_leader(
        self, topic_partition: TopicPartition, what: str, attempt: Callable[[ClientConnection], Awaitable[T]]
    ) -> T:
        attempts = self._cluster.attempts(what, self._timeout_s)
        while True:
            try:
                metadata = await self._cluster.ask_topics([topic_partition.topic])
                leader = metadata.leader_of(topic_partition)
                return await attempt(await self._cluster.connections.to(leader.broker.address))
            except (KafkaError, ConnectionLost) as error:
                await attempts.after(error)
