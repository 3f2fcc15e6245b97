"""Identity of a transactional producer: producer id, epoch and the open transaction with its partitions."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidelog.client.network.connection import ClientConnection
from tidelog.client.producer.producer_batch import ProducerIdAndEpoch
from tidelog.client.routing.coordinators import Coordinators, KeyType
from tidelog.errors import InvalidTxnState, raise_error
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.produce import ProduceRequest
from tidelog.protocol.transaction_groups import coordinator_key
from tidelog.types import TopicPartition

T = TypeVar("T")

TRANSACTION_FEATURE = "transaction.version"
IMPLICIT_PARTITIONS_FROM_LEVEL = 2
"""KIP-890: brokers add partitions to a transaction implicitly, and each transaction has its own epoch."""
LAST_EXPLICIT_PRODUCE = 11
LAST_EXPLICIT_ADD = 3
"""Version 4 of AddPartitionsToTxn is for brokers only."""


class TransactionalIdentity:
    """`begin` opens a transaction. `get` fails without an open transaction, and after a failure in it."""

    def __init__(
        self, coordinators: Coordinators, transactional_id: str, *, timeout_s: float, transaction_timeout_ms: int
    ) -> None:
        self._coordinators = coordinators
        self.transactional_id = transactional_id
        self.timeout_s = timeout_s
        self._transaction_timeout_ms = transaction_timeout_ms
        self.identity = ProducerIdAndEpoch(is_transactional=True)
        self.is_implicit = False
        """Whether brokers add partitions implicitly (KIP-890)."""
        self._partitions: set[TopicPartition] = set()
        self._adding = asyncio.Lock()
        self.is_open = False
        self.is_failed = False

    @property
    def last_produce_version(self) -> int:
        return ProduceRequest.__versions__.last if self.is_implicit else LAST_EXPLICIT_PRODUCE

    # ---- producer id

    async def initialize(self) -> InitProducerIdResponse:
        """InitProducerId: fences earlier producers of this id and aborts their open transaction."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self._transaction_timeout_ms
        )
        what = f"asking for the producer id of {self.transactional_id}"

        async def attempt(connection: ClientConnection) -> InitProducerIdResponse:
            response = await connection.ask(request, InitProducerIdResponse, timeout_s=self.timeout_s)
            raise_error(response.error_code, what)
            self.update_features(connection)
            return response

        response = await self.ask_coordinator(what, attempt)
        self.set_identity(response.producer_id, response.producer_epoch)
        return response

    def set_identity(self, producer_id: int, producer_epoch: int) -> None:
        self.identity = ProducerIdAndEpoch(producer_id, producer_epoch, is_transactional=True)

    def update_features(self, connection: ClientConnection) -> None:
        level = connection.finalized_features.get(TRANSACTION_FEATURE, 0)
        self.is_implicit = level >= IMPLICIT_PARTITIONS_FROM_LEVEL

    async def ask_coordinator(self, what: str, attempt: Callable[[ClientConnection], Awaitable[T]]) -> T:
        key = coordinator_key(self.transactional_id)
        return await self._coordinators.ask(KeyType.TRANSACTION, key, what, self.timeout_s, attempt)

    # ---- transactions

    def begin(self) -> None:
        if self.is_open:
            raise InvalidTxnState("a transaction is already open: commit or abort it first")
        self.is_open, self.is_failed = True, False
        self._partitions.clear()

    def end(self) -> None:
        self.is_open = self.is_failed = False

    @property
    def has_partitions(self) -> bool:
        return bool(self._partitions)

    async def get(self, topic_partition: TopicPartition) -> ProducerIdAndEpoch:
        self.require_open()
        if topic_partition not in self._partitions:
            async with self._adding:
                if topic_partition not in self._partitions and not self.is_implicit:
                    await self._add(topic_partition)
                self._partitions.add(topic_partition)
        self.require_open()
        return self.identity

    def require_open(self) -> None:
        if not self.is_open:
            raise InvalidTxnState("no transaction is open: begin one first")
        if self.is_failed:
            raise InvalidTxnState("an earlier write of this transaction failed: abort it")

    def renew(self, spent: ProducerIdAndEpoch) -> None:
        """A transaction with lost writes cannot be committed."""
        if spent == self.identity:
            self.is_failed = True

    async def _add(self, added: TopicPartition) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=added.topic, partitions=[added.partition])],
        )
        what = f"adding {added} to the transaction"

        async def attempt(connection: ClientConnection) -> None:
            response = await connection.ask(
                request, AddPartitionsToTxnResponse, version=LAST_EXPLICIT_ADD, timeout_s=self.timeout_s
            )
            for topic in response.results_by_topic_v3_and_below:
                for result in topic.results_by_partition:
                    raise_error(result.partition_error_code, what)

        await self.ask_coordinator(what, attempt)
