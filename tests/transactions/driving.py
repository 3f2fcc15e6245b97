"""A transaction coordinator without topic, brokers or clock: what the tests ask it, and the markers it sends."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import TypeVar

from tidelog.config.coordinators import CoordinatorSettings
from tidelog.errors import KafkaError
from tidelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.structs import Response
from tidelog.protocol.transaction_groups import parse_transactional_id
from tidelog.replicated.machine import Effects, Reply
from tidelog.replicated.memory_shard import MemoryReply, MemoryShard
from tidelog.transactions.machine import TransactionMachine
from tidelog.transactions.state_manager import MarkerOrder
from tidelog.transactions.states import TransactionState
from tidelog.transactions.transaction import TV_2, ProducerIdentity, Transaction
from tidelog.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
TIMEOUT_MS = 60_000
NEWEST = 5
"""Of EndTxn: transactions version 2."""
OLD = 4


class Markers:
    """Keeps what it has to send; the test says when it arrives."""

    def __init__(self) -> None:
        self.waiting: list[MarkerOrder] = []
        self.written: dict[tuple[int, TopicPartition], list[tuple[int, bool]]] = defaultdict(list)
        """By producer id and partition: epoch and outcome of each marker, repeated ones left out."""

    def send(self, order: MarkerOrder) -> None:
        self.waiting.append(order)

    def write(self, order: MarkerOrder, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            markers = self.written[order.producer_id, partition]
            if not markers or markers[-1][0] < order.producer_epoch or order.transaction_version < 2:
                if (order.producer_epoch, order.is_committed) not in markers[-1:]:
                    markers.append((order.producer_epoch, order.is_committed))
            else:
                assert (order.producer_epoch, order.is_committed) in markers, "two markers contradict each other"


class Coordinator:
    def __init__(self, settings: CoordinatorSettings | None = None) -> None:
        self.markers = Markers()
        self.settings = settings or CoordinatorSettings()
        self._producer_ids = itertools.count(1000)
        self.take_producer_id: Callable[[], int] = lambda: next(self._producer_ids)
        self.shard = MemoryShard(self._make)

    def _make(self) -> TransactionMachine:
        return TransactionMachine(lambda: self.settings, lambda: self.take_producer_id(), self.markers.send)

    @property
    def machine(self) -> TransactionMachine:
        return self.shard.machine

    def known(self, transactional_id: str) -> Transaction | None:
        return self.machine.state_manager.get(transactional_id)

    def state(self, transactional_id: str) -> TransactionState | None:
        transaction = self.known(transactional_id)
        return None if transaction is None else transaction.state

    # ---- requests

    def _ask(self, step: Callable[[TransactionMachine, Reply, Effects], None]) -> Response | KafkaError:
        reply = MemoryReply()
        self.shard.perform(lambda machine, effects: step(machine, reply, effects))
        return reply.outcome

    def init(
        self, transactional_id: str, expected: ProducerIdentity | None = None, timeout_ms: int = TIMEOUT_MS
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(transactional_id, timeout_ms)
        if expected is not None:
            request.producer_id, request.producer_epoch = expected
        return granted(
            self._ask(
                lambda machine, reply, effects: machine.init(
                    parse_transactional_id(transactional_id), request, reply, effects
                )
            ),
            InitProducerIdResponse,
        )

    def producer(self, transactional_id: str) -> ProducerIdentity:
        """What InitProducerId gives, however often it has to be asked."""
        try:
            response = self.init(transactional_id)
        except KafkaError:
            self.deliver()
            response = self.init(transactional_id)
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    def init_for(self, transactional_id: str, timeout_ms: int) -> ProducerIdentity:
        response = self.init(transactional_id, timeout_ms=timeout_ms)
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    def add(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        *partitions: TopicPartition,
        version: int = TV_2,
    ) -> None:
        response = self._ask(
            lambda machine, reply, effects: machine.add_partitions(
                parse_transactional_id(transactional_id),
                identity,
                partitions,
                version,
                AddPartitionsToTxnResponse(),
                reply,
                effects,
            )
        )
        granted(response, AddPartitionsToTxnResponse)

    def verify(self, transactional_id: str, identity: ProducerIdentity, *partitions: TopicPartition) -> list[int]:
        response = self._ask(
            lambda machine, reply, effects: machine.verify_partitions(
                parse_transactional_id(transactional_id), identity, partitions, reply, effects
            )
        )
        (result,) = granted(response, AddPartitionsToTxnResponse).results_by_transaction
        return [each.partition_error_code for topic in result.topic_results for each in topic.results_by_partition]

    def end(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        *,
        commit: bool = True,
        version: int = NEWEST,
        batch_id: int = -1,
        winners: Collection[str] = (),
    ) -> ProducerIdentity:
        request = EndTxnRequest(transactional_id, *identity, commit, batch_id, list(winners))
        response = granted(
            self._ask(
                lambda machine, reply, effects: machine.end(
                    parse_transactional_id(transactional_id), request, version, reply, effects
                )
            ),
            EndTxnResponse,
        )
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    # ---- surroundings

    def deliver(self) -> None:
        """All markers arrive, and all that follows from them."""
        while self.markers.waiting:
            order = self.markers.waiting.pop(0)
            self.arrive(order, order.partitions)

    def arrive(self, order: MarkerOrder, partitions: frozenset[TopicPartition]) -> None:
        self.markers.write(order, partitions)
        self.shard.perform(lambda machine, effects: machine.on_markers_written(order, partitions, effects))

    def crash(self, records_kept: int | None = None) -> None:
        """Another broker takes over, with the batches that were committed."""
        self.markers.waiting.clear()
        self.shard.log = self.shard.log[:records_kept]
        self.shard = self.shard.reloaded()
        self.shard.advance(0)


R = TypeVar("R", bound=Response)


def granted(response: Response | KafkaError, kind: type[R]) -> R:
    if isinstance(response, KafkaError):
        raise response
    assert isinstance(response, kind)
    return response
