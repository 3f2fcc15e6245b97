"""Transaction coordinator: routes requests to the state machine of a `__transaction_state` partition."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from tidelog.cluster.topic_names import TRANSACTION_TOPIC
from tidelog.config.coordinators import CoordinatorSettings
from tidelog.errors import (
    CoordinatorLoadInProgress,
    InvalidRequest,
    InvalidTransactionTimeout,
    KafkaError,
    RetriableError,
)
from tidelog.protocol.messages.end_txn import EndTxnRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.structs import Response
from tidelog.protocol.transaction_groups import PREFIX, PlainId, TransactionalId, parse_transactional_id
from tidelog.replicated.machine import Effects, Reply
from tidelog.replicated.topic import ReplicatedTopic
from tidelog.runtime.side_tasks import SideTasks
from tidelog.transactions.machine import TransactionMachine
from tidelog.transactions.markers import Marker, OnWritten
from tidelog.transactions.state_manager import MarkerOrder
from tidelog.transactions.states import TransactionState
from tidelog.transactions.statistics import TransactionCounts
from tidelog.transactions.transaction import ProducerIdentity, Transaction
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

logger = logging.getLogger(__name__)

WRITTEN_RETRY_S = 0.5


class ProducerIdSource(Protocol):
    async def ensure(self) -> None: ...

    def take(self) -> int: ...


class Markers(Protocol):
    """Interface of `MarkerSender`."""

    def send(self, marker: Marker, on_written: OnWritten) -> None: ...

    def forget(self, coordinator_partition: int) -> None: ...


Topic = ReplicatedTopic[TransactionMachine]


class TransactionCoordinator:
    """Each call completes its `reply` exactly once, now or later."""

    def __init__(
        self,
        make_topic: Callable[[Callable[[int], TransactionMachine]], Topic],
        *,
        markers: Markers,
        producer_ids: ProducerIdSource,
        settings: Callable[[], CoordinatorSettings],
    ) -> None:
        self._markers = markers
        self._producer_ids = producer_ids
        self._settings = settings
        self.counts = TransactionCounts()
        self._tasks = SideTasks(_on_failure)
        self.topic = make_topic(self._make_machine)

    def partition_of(self, transactional_id: str) -> TopicPartition:
        return TopicPartition(
            TRANSACTION_TOPIC, self.topic.partition_of(parse_transactional_id(transactional_id).coordinator_key)
        )

    # ---- requests

    async def init(self, request: InitProducerIdRequest, reply: Reply) -> None:
        """InitProducerId of a producer with a transactional id."""
        assert request.transactional_id is not None
        try:
            self._check_init(request)
            await self._producer_ids.ensure()
        except RetriableError:  # older clients retry no other code
            reply.fail(CoordinatorLoadInProgress("the producer id block is used up"))
        except KafkaError as error:
            reply.fail(error)
        else:
            self._perform(
                request.transactional_id,
                reply,
                lambda machine, parsed, effects: machine.init(parsed, request, reply, effects),
            )

    def _check_init(self, request: InitProducerIdRequest) -> None:
        assert request.transactional_id is not None
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            raise InvalidRequest("a producer names both its id and its epoch, or neither")
        if not request.transactional_id:
            raise InvalidRequest("the transactional id is empty")
        longest_ms = self._settings().transaction_max_timeout_ms
        if not 0 < request.transaction_timeout_ms <= longest_ms:
            raise InvalidTransactionTimeout(
                f"{request.transaction_timeout_ms} ms is not between 1 and transaction.max.timeout.ms ({longest_ms})"
            )
        _check_group(request.transactional_id)

    def add_partitions(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: Collection[TopicPartition],
        client_version: int,
        granted: Response,
        reply: Reply,
    ) -> None:
        self._perform(
            transactional_id,
            reply,
            lambda machine, parsed, effects: machine.add_partitions(
                parsed, identity, partitions, client_version, granted, reply, effects
            ),
        )

    def verify_partitions(
        self, transactional_id: str, identity: ProducerIdentity, partitions: Collection[TopicPartition], reply: Reply
    ) -> None:
        self._perform(
            transactional_id,
            reply,
            lambda machine, parsed, effects: machine.verify_partitions(parsed, identity, partitions, reply, effects),
        )

    def end(self, request: EndTxnRequest, api_version: int, reply: Reply) -> None:
        self._perform(
            request.transactional_id,
            reply,
            lambda machine, parsed, effects: machine.end(parsed, request, api_version, reply, effects),
        )

    def describe(self, transactional_id: str, reply: Reply) -> None:
        self._perform(
            transactional_id, reply, lambda machine, parsed, effects: machine.describe(parsed, reply, effects)
        )

    def transactions(self) -> Iterator[Transaction]:
        """All transactions coordinated by this broker. Raises CoordinatorLoadInProgress."""
        if self.topic.is_loading:
            raise CoordinatorLoadInProgress("the coordinator is still reading its records")
        for _, machine in self.topic.loaded():
            yield from machine.state_manager

    def count_by_state(self) -> Counter[TransactionState]:
        """Transactions of loaded partitions by state."""
        return Counter(each.state for _, machine in self.topic.loaded() for each in machine.state_manager)

    def _perform(
        self,
        transactional_id: str,
        reply: Reply,
        step: Callable[[TransactionMachine, TransactionalId, Effects], None],
    ) -> None:
        """Parse the id. Code below gets a PlainId, GroupId or MemberId."""
        if transactional_id:
            parsed = parse_transactional_id(transactional_id)
            self.topic.perform(parsed.coordinator_key, reply, lambda machine, effects: step(machine, parsed, effects))
        else:
            reply.fail(InvalidRequest("the transactional id is empty"))

    # ---- dependencies of the state machines

    def _make_machine(self, partition: int) -> TransactionMachine:
        machine: TransactionMachine

        def send(order: MarkerOrder) -> None:
            self._send(partition, machine, order)

        machine = TransactionMachine(self._settings, self._take_producer_id, send, self.counts)
        machine.on_gone = lambda: self._markers.forget(partition)
        return machine

    def _take_producer_id(self) -> int:
        try:
            return self._producer_ids.take()
        except KafkaError:
            self._tasks.start(self._producer_ids.ensure())  # for the client's retry
            raise

    def _send(self, partition: int, machine: TransactionMachine, order: MarkerOrder) -> None:
        marker = Marker(
            order.producer_id,
            order.producer_epoch,
            self.topic.coordinator_epoch(partition),
            order.is_committed,
            order.transaction_version,
            order.partitions,
            partition,
        )
        self._markers.send(marker, lambda written: self._on_written(partition, machine, order, written))

    def _on_written(
        self, partition: int, machine: TransactionMachine, order: MarkerOrder, written: frozenset[TopicPartition]
    ) -> None:
        """Retried while the partition cannot be written: the marker sender reports a marker only once."""
        if machine.is_gone:
            return
        is_recorded = self.topic.perform_in(
            partition, lambda present, effects: present.on_markers_written(order, written, effects)
        )
        if not is_recorded:
            loop = asyncio.get_running_loop()
            loop.call_later(WRITTEN_RETRY_S, self._on_written, partition, machine, order, written)

    async def close(self) -> None:
        await self._tasks.cancel()
        await self.topic.close()


def _on_failure(error: BaseException) -> None:
    logger.warning("failed to claim producer ids error=%s", error)


def _check_group(transactional_id: str) -> None:
    """An id with the prefix of transaction groups must be a valid group or member id."""
    if transactional_id.startswith(PREFIX) and isinstance(parse_transactional_id(transactional_id), PlainId):
        raise InvalidRequest(
            f"{transactional_id!r} is neither a transaction group ({PREFIX}<name>)"
            f" nor a member of one ({PREFIX}<name>#<producer id>.<epoch>-<member>)"
        )
