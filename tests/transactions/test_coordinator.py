"""Between handlers, machines and markers: what the coordinator of a broker passes on, and keeps."""

import asyncio
from collections.abc import Callable
from typing import cast

from tests.transactions.driving import A0, TIMEOUT_MS
from tidelog.config.coordinators import CoordinatorSettings
from tidelog.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, KafkaError
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from tidelog.protocol.messages.end_txn import EndTxnRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.replicated.machine import Effects, Reply
from tidelog.replicated.memory_shard import MemoryReply, MemoryShard
from tidelog.runtime.virtual_time import run_virtually
from tidelog.transactions.coordinator import Topic, TransactionCoordinator
from tidelog.transactions.machine import TransactionMachine
from tidelog.transactions.markers import Marker, OnWritten
from tidelog.transactions.states import COMPLETE_COMMIT, PREPARE_COMMIT
from tidelog.transactions.transaction import ProducerIdentity

ID = "payments"
PARTITION, EPOCH = 7, 3


class OnePartition:
    """A topic whose partitions are all the same one, and which may be unable to act."""

    def __init__(self, make: Callable[[int], TransactionMachine]) -> None:
        self.shard = MemoryShard(lambda: make(PARTITION))
        self.is_acting = True
        self.keys: list[str] = []

    def perform(self, key: str, reply: Reply, step: Callable[[TransactionMachine, Effects], None]) -> None:
        self.keys.append(key)
        self.shard.perform(step)

    def perform_in(self, partition: int, step: Callable[[TransactionMachine, Effects], None]) -> bool:
        if self.is_acting:
            self.shard.perform(step)
        return self.is_acting

    def coordinator_epoch(self, partition: int) -> int:
        return EPOCH

    async def close(self) -> None:
        self.shard.perform(lambda machine, effects: machine.on_unloaded(effects))


class SentMarkers:
    def __init__(self) -> None:
        self.sent: list[tuple[Marker, OnWritten]] = []
        self.forgotten: list[int] = []

    def send(self, marker: Marker, on_written: OnWritten) -> None:
        self.sent.append((marker, on_written))

    def forget(self, coordinator_partition: int) -> None:
        self.forgotten.append(coordinator_partition)


class FewProducerIds:
    """As many as a test puts in."""

    def __init__(self) -> None:
        self.at_hand: list[int] = []
        self.to_come: list[int] = []

    async def ensure(self) -> None:
        await asyncio.sleep(0.1)
        if not self.at_hand:
            if not self.to_come:
                raise CoordinatorNotAvailable("the store is away")
            self.at_hand.append(self.to_come.pop(0))

    def take(self) -> int:
        if not self.at_hand:
            raise CoordinatorLoadInProgress
        return self.at_hand.pop(0)


class Parts:
    def __init__(self) -> None:
        self.markers = SentMarkers()
        self.producer_ids = FewProducerIds()
        self.coordinator = TransactionCoordinator(
            self._make_topic,
            markers=self.markers,
            producer_ids=self.producer_ids,
            settings=CoordinatorSettings,
        )

    def _make_topic(self, make: Callable[[int], TransactionMachine]) -> Topic:
        self.topic = OnePartition(make)
        return cast("Topic", self.topic)

    @property
    def machine(self) -> TransactionMachine:
        return self.topic.shard.machine

    async def init(self, transactional_id: str = ID) -> InitProducerIdResponse | KafkaError:
        reply = MemoryReply()
        await self.coordinator.init(InitProducerIdRequest(transactional_id, TIMEOUT_MS), reply)
        return reply.outcome  # type: ignore[return-value]

    def commit(self, identity: ProducerIdentity) -> None:
        added, ended = MemoryReply(), MemoryReply()
        self.coordinator.add_partitions(ID, identity, [A0], 2, AddOffsetsToTxnResponse(), added)
        self.coordinator.end(EndTxnRequest(ID, *identity, True), 5, ended)
        assert not isinstance(ended.outcome, KafkaError)


def test_a_producer_id_is_fetched_before_the_machine_is_asked() -> None:
    async def main() -> None:
        parts = Parts()
        parts.producer_ids.to_come = [42]
        response = await parts.init()
        assert isinstance(response, InitProducerIdResponse)
        assert response.producer_id == 42

    run_virtually(main())


def test_a_store_that_is_away_makes_producers_ask_again() -> None:
    async def main() -> None:
        parts = Parts()
        assert isinstance(await parts.init(), CoordinatorLoadInProgress)
        assert not parts.topic.keys

    run_virtually(main())


def test_members_go_where_their_group_is() -> None:
    async def main() -> None:
        parts = Parts()
        parts.producer_ids.to_come = [1, 2]
        await parts.init("tidelog-group-a")
        await parts.init("tidelog-group-a#1.0-task")
        assert parts.topic.keys == ["tidelog-group-a", "tidelog-group-a"]

    run_virtually(main())


def test_markers_carry_the_epoch_of_their_coordinator() -> None:
    async def main() -> None:
        parts = Parts()
        parts.producer_ids.to_come = [42]
        await parts.init()
        parts.commit(ProducerIdentity(42, 0))
        ((marker, on_written),) = parts.markers.sent
        assert marker == Marker(42, 1, EPOCH, True, 2, frozenset({A0}), PARTITION)
        on_written(frozenset({A0}))
        transaction = parts.machine.state_manager.get(ID)
        assert transaction is not None
        assert transaction.state is COMPLETE_COMMIT

    run_virtually(main())


def test_what_is_written_while_the_broker_is_fenced_is_noted_afterwards() -> None:
    async def main() -> None:
        parts = Parts()
        parts.producer_ids.to_come = [42]
        await parts.init()
        parts.commit(ProducerIdentity(42, 0))
        ((_, on_written),) = parts.markers.sent
        parts.topic.is_acting = False
        on_written(frozenset({A0}))
        await asyncio.sleep(5)
        assert _state(parts) is PREPARE_COMMIT
        parts.topic.is_acting = True
        await asyncio.sleep(1)
        assert _state(parts) is COMPLETE_COMMIT

    run_virtually(main())


def test_a_coordinator_that_leaves_forgets_its_markers() -> None:
    async def main() -> None:
        parts = Parts()
        parts.producer_ids.to_come = [42]
        await parts.init()
        parts.commit(ProducerIdentity(42, 0))
        ((_, on_written),) = parts.markers.sent
        parts.topic.is_acting = False
        on_written(frozenset({A0}))
        await parts.coordinator.close()
        assert parts.markers.forgotten == [PARTITION]
        parts.topic.is_acting = True
        await asyncio.sleep(5)
        assert _state(parts) is PREPARE_COMMIT

    run_virtually(main())


def _state(parts: Parts) -> object:
    transaction = parts.machine.state_manager.get(ID)
    return None if transaction is None else transaction.state
