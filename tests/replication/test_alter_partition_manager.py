"""Changes of in-sync replicas on their way to the store and to the controller, on virtual time."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from tests.replication.leaders import LAG_MS, ORDERS, Replicas, assignment_of, fetch_as_follower
from tests.storage.logs import batch_of
from tidelog.cluster.image import PartitionRegistration as PartitionState
from tidelog.cluster.znodes import (
    IN_SYNC_CHANGES,
    PERSISTENT_PATHS,
    decode_partition_list,
    encode_state,
    partition_path,
    partitions_path,
    state_path,
    topic_path,
)
from tidelog.errors import NotLeaderOrFollower
from tidelog.replication.partition import Partition
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.runtime.virtual_time import VirtualClock, VirtualTimeLoop, run_virtually
from tidelog.store.interface import Node, Operation, Result, SessionExpired, StoreError, StoreUnavailable
from tidelog.store.memory import MemoryStore, MemoryStoreState
from tidelog.types import TopicPartition

LAG_S = LAG_MS / 1000


class LossyStore(MemoryStore):
    """Fails, or loses the answer, as often as the test says."""

    fails = 0
    error: type[StoreError] = StoreUnavailable
    loses_responses = 0
    reads = 0

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        self.reads += 1
        return await super().get_many(paths)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        if self.fails:
            self.fails -= 1
            raise self.error("/", "as the test says")
        results = await super().multi(operations)
        if self.loses_responses:
            self.loses_responses -= 1
            raise StoreUnavailable("/", "the answer was lost, as the test says")
        return results


class Harness:
    """A leader of `orders` with a store; broker 1 is the one that runs."""

    def __init__(
        self, store_state: MemoryStoreState, store: LossyStore, replicas: Replicas, clock: VirtualClock
    ) -> None:
        self.store_state = store_state
        self.store = store
        self.replicas = replicas
        self.clock = clock

    async def create(self, count: int, *, in_sync: tuple[int, ...] = (1, 2)) -> None:
        for path in (*PERSISTENT_PATHS, topic_path("orders"), partitions_path("orders")):
            await self.store.create(path)
        for index in range(count):
            state = PartitionState(index, (1, 2), 1, 5, in_sync, controller_epoch=1)
            await self.store.create(partition_path("orders", index))
            await self.store.create(state_path("orders", index), encode_state(state))
            topic_partition = TopicPartition("orders", index)
            self.replicas.take(assignment_of(1, 2, in_sync=in_sync, topic_partition=topic_partition))

    @property
    def orders(self) -> Partition:
        return self.replicas.orders()

    def fetch(self, offset: int) -> None:
        fetch_as_follower(self.orders, 2, offset, 0, self.clock.now_ms())

    async def state(self, index: int = 0) -> dict[str, object]:
        content: dict[str, object] = json.loads((await self.store.get(state_path("orders", index))).data)
        return content

    async def announced(self) -> list[TopicPartition]:
        paths = [f"{IN_SYNC_CHANGES}/{name}" for name in await self.store.children(IN_SYNC_CHANGES)]
        return [each for path in paths for each in decode_partition_list((await self.store.get(path)).data, path)]


def with_harness(scenario: Callable[[Harness], Awaitable[None]]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        clock = VirtualClock(loop)
        store_state = MemoryStoreState()
        store = LossyStore(store_state)
        replicas = await Replicas.on(MemoryDisk(), clock=clock, store=store)
        running = asyncio.ensure_future(replicas.manager.run())
        await scenario(Harness(store_state, store, replicas, clock))
        assert not running.done()
        running.cancel()

    run_virtually(main())


def test_a_silent_follower_is_dropped_in_the_store_and_the_controller_is_notified() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create(1)
        harness.orders.append_as_leader(batch_of(b"x"), 1)
        await asyncio.sleep(LAG_S)
        assert (await harness.state())["isr"] == [1, 2]
        await asyncio.sleep(LAG_S / 2 + 0.1)
        assert await harness.state() == {
            "controller_epoch": 1,
            "leader": 1,
            "version": 1,
            "leader_epoch": 5,
            "isr": [1],
        }
        assert harness.orders.log.high_watermark == 1
        assert await harness.announced() == [ORDERS]
        assert (
            harness.replicas.manager.alter_partition_manager.shrinks,
            harness.replicas.manager.alter_partition_manager.expands,
        ) == (1, 0)

    with_harness(scenario)


def test_the_log_says_why_a_replica_left_and_that_it_joined(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: Harness) -> None:
        caplog.set_level(logging.INFO, "tidelog.replication.alter_partition_manager")
        await harness.create(1)
        harness.orders.append_as_leader(batch_of(b"x"), 1)
        await asyncio.sleep(1.6 * LAG_S)
        harness.fetch(1)
        await asyncio.sleep(1)
        notified = [
            record.message for record in caplog.records if record.name == "tidelog.replication.alter_partition_manager"
        ]
        assert notified == [
            "replica left the in-sync replicas partition=orders-0 in_sync=1 log_end=1 high_watermark=1 replica=2"
            " behind=unknown reason=not caught up for 30000 ms (replica.lag.time.max.ms)"
            " remedy=broker 2 has not fetched from this leader yet",
            "replica joined the in-sync replicas partition=orders-0 in_sync=1,2 log_end=1 high_watermark=1 replica=2",
        ]

    with_harness(scenario)


def test_a_follower_that_catches_up_is_added_in_the_store() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create(1, in_sync=(1,))
        harness.fetch(0)
        await asyncio.sleep(0.1)
        assert (await harness.state())["isr"] == [1, 2]
        leader = harness.orders.require_leader()
        assert (set(leader.in_sync_replicas), leader.version, leader.pending) == ({1, 2}, 1, None)
        assert harness.replicas.manager.alter_partition_manager.expands == 1

    with_harness(scenario)


def test_a_change_whose_answer_was_lost_is_found_to_be_written() -> None:
    """KAFKA-14144."""

    async def scenario(harness: Harness) -> None:
        await harness.create(1, in_sync=(1,))
        harness.store.loses_responses = 1
        harness.fetch(0)
        await asyncio.sleep(1)
        leader = harness.orders.require_leader()
        assert (set(leader.in_sync_replicas), leader.version, leader.is_superseded) == ({1, 2}, 1, False)
        harness.orders.append_as_leader(batch_of(b"x"), -1)
        harness.fetch(1)
        assert harness.orders.log.high_watermark == 1

    with_harness(scenario)


@pytest.mark.parametrize("error", [StoreUnavailable, SessionExpired, StoreError])
def test_a_store_that_cannot_be_reached_or_refuses_is_asked_again(error: type[StoreError]) -> None:
    """It may refuse for reasons of its own: ZooKeeper has access control lists."""

    async def scenario(harness: Harness) -> None:
        await harness.create(1, in_sync=(1,))
        harness.store.fails, harness.store.error = 10, error
        harness.fetch(0)
        await asyncio.sleep(60)
        assert (await harness.state())["isr"] == [1, 2]

    with_harness(scenario)


def test_a_leader_that_lost_a_compare_and_set_waits_for_the_controller() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create(1, in_sync=(1,))
        newer = PartitionState(0, (1, 2), 2, 6, (2,), controller_epoch=2)
        await harness.store.set(state_path("orders", 0), encode_state(newer))
        harness.fetch(0)
        await asyncio.sleep(1)
        assert (await harness.state())["leader"] == 2
        assert harness.replicas.manager.alter_partition_manager.failed_updates == 1
        assert await harness.announced() == []
        with pytest.raises(NotLeaderOrFollower):
            harness.orders.append_as_leader(batch_of(b"x"), 1)
        harness.replicas.manager.suspend()
        harness.replicas.manager.resume()
        assert harness.orders.leader is None
        assert harness.replicas.take(assignment_of(1, 2, leader=1, epoch=7, in_sync=(1,), version=2)) == [None]
        harness.orders.append_as_leader(batch_of(b"x"), 1)
        assert harness.orders.log.high_watermark == 1

    with_harness(scenario)


def test_questions_that_wait_share_a_read_and_later_ones_do_not() -> None:
    """The state may change while it is read: a question that comes then needs a read of its own."""

    async def scenario(harness: Harness) -> None:
        await harness.create(1, in_sync=(1,))
        confirmation, reads = harness.replicas.manager.leader_confirmation, harness.store.reads
        first, second = confirmation.ask(harness.orders), confirmation.ask(harness.orders)
        while harness.store.reads == reads:  # noqa: ASYNC110
            await asyncio.sleep(0)
        third = confirmation.ask(harness.orders)
        assert [await first.wait(), await second.wait(), await third.wait()] == [True, True, True]
        assert harness.store.reads == reads + 2

    with_harness(scenario)


def test_an_older_state_does_not_end_a_leadership() -> None:
    """A server of a ZooKeeper ensemble may lag behind the controller's request."""

    async def scenario(harness: Harness) -> None:
        await harness.create(1, in_sync=(1,))
        older = PartitionState(0, (1, 2), 2, harness.orders.require_leader().leader_epoch - 1, (2,), controller_epoch=1)
        await harness.store.set(state_path("orders", 0), encode_state(older))
        assert not await harness.replicas.manager.leader_confirmation.ask(harness.orders).wait()
        harness.orders.append_as_leader(batch_of(b"x"), 1)

    with_harness(scenario)


def test_a_leader_does_not_take_a_state_of_its_own_later_epoch_for_its_write() -> None:
    """The controller has begun a new epoch with the same leader, which has not heard of it yet."""

    async def scenario(harness: Harness) -> None:
        await harness.create(1, in_sync=(1,))
        newer = PartitionState(0, (1, 2), 1, 6, (1, 2), controller_epoch=2)
        await harness.store.set(state_path("orders", 0), encode_state(newer))
        harness.fetch(0)
        await asyncio.sleep(1)
        leader = harness.orders.require_leader()
        assert leader.is_superseded
        assert (leader.version, leader.in_sync_replicas) == (0, frozenset({1}))
        assert (await harness.state())["leader_epoch"] == 6

    with_harness(scenario)


def test_incarnations_and_eligible_replicas_are_written_to_the_store() -> None:
    """R41, R42; a lost answer makes no difference."""

    async def scenario(harness: Harness) -> None:
        await harness.create(1)
        assignment = assignment_of(1, 2, epoch=6)._replace(
            in_sync_epochs={1: 10, 2: 20}, broker_epoch=10, eligible_leader_epochs={}
        )
        harness.replicas.take(assignment)
        harness.orders.configure(replace(harness.orders.log.settings, min_insync_replicas=2))
        harness.orders.append_as_leader(batch_of(b"x"), 1)
        harness.store.loses_responses = 1
        await asyncio.sleep(1.6 * LAG_S)
        state = await harness.state()
        assert (state["isr"], state["isr_epochs"]) == ([1], [10])
        assert (state["elr"], state["elr_epochs"]) == ([2], [20])
        await asyncio.sleep(5)
        assert harness.orders.require_leader().eligible_leader_epochs == {2: 20}
        assert harness.orders.log.high_watermark == 0

    with_harness(scenario)


def test_a_proposal_of_an_earlier_epoch_is_not_written_any_more() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create(1, in_sync=(1,))
        harness.store.fails = 10**9
        harness.fetch(0)
        await asyncio.sleep(5)
        harness.replicas.take(assignment_of(1, 2, leader=2, epoch=6))
        harness.store.fails = 0
        await asyncio.sleep(5)
        assert (await harness.state())["isr"] == [1]

    with_harness(scenario)


def test_a_leader_that_resigned_while_another_write_was_answered_writes_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store of the next session may be another one, in which the expected version means something else (R44)."""

    async def scenario(harness: Harness) -> None:
        await harness.create(2)
        for partition in harness.replicas.manager:
            partition.append_as_leader(batch_of(b"x"), 1)
        newer = PartitionState(0, (1, 2), 2, 6, (2,), controller_epoch=2)
        await harness.store.set(state_path("orders", 0), encode_state(newer))
        get = harness.store.get

        async def get_as_the_session_ends(path: str) -> Node:
            harness.replicas.manager.resign_all()
            return await get(path)

        monkeypatch.setattr(harness.store, "get", get_as_the_session_ends)
        await asyncio.sleep(1.6 * LAG_S)
        monkeypatch.undo()
        assert harness.orders.leader is None
        assert (await harness.state(1))["isr"] == [1, 2]

    with_harness(scenario)


def test_the_partition_may_be_gone_from_the_store() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create(1, in_sync=(1,))
        await harness.store.delete(state_path("orders", 0))
        harness.fetch(0)
        await asyncio.sleep(1)
        assert harness.orders.require_leader().is_superseded

    with_harness(scenario)


def test_many_changes_go_in_few_transactions_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create(250)
        for partition in harness.replicas.manager:
            partition.append_as_leader(batch_of(b"x"), 1)
        newer = PartitionState(7, (1, 2), 2, 6, (2,), controller_epoch=2)
        await harness.store.set(state_path("orders", 7), encode_state(newer))
        with caplog.at_level(logging.INFO, "tidelog.replication.alter_partition_manager"):
            await asyncio.sleep(1.6 * LAG_S)
        states = [(await harness.state(index))["isr"] for index in range(250)]
        assert states == [[1] if index != 7 else [2] for index in range(250)]
        assert (
            harness.replicas.manager.alter_partition_manager.shrinks,
            harness.replicas.manager.alter_partition_manager.failed_updates,
        ) == (249, 1)
        assert sorted(await harness.announced()) == [
            TopicPartition("orders", index) for index in range(250) if index != 7
        ]
        lines = [record.message for record in caplog.records if "partitions=100" in record.message]
        assert lines == [
            "in-sync replicas changed partitions=100 left=2 joined=-"
            " reason=not caught up for 30000 ms (replica.lag.time.max.ms)"
        ]

    with_harness(scenario)


def test_announcements_come_at_once_after_a_quiet_time_and_then_in_bulk() -> None:
    """R21."""

    async def scenario(harness: Harness) -> None:
        await harness.create(1, in_sync=(1,))
        started = harness.clock.monotonic()
        harness.fetch(0)
        await asyncio.sleep(0.1)
        assert len(await harness.announced()) == 1
        announcements = harness.replicas.manager._isr_change_propagation
        for _ in range(3):
            announcements.add([TopicPartition("orders", 8), TopicPartition("orders", 9)])
            await asyncio.sleep(1)
        assert len(await harness.announced()) == 1
        await asyncio.sleep(started + 5.2 - harness.clock.monotonic())
        assert len(await harness.announced()) == 3

    with_harness(scenario)


def test_what_could_not_be_announced_is_announced_later() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create(1, in_sync=(1,))
        harness.store_state.cut_off(harness.store.session_id)
        harness.replicas.manager._isr_change_propagation.add([ORDERS])
        await asyncio.sleep(3)
        harness.store_state.reconnect(harness.store.session_id)
        await asyncio.sleep(3)
        assert await harness.announced() == [ORDERS]

    with_harness(scenario)


def test_a_change_written_while_suspended_counts_when_the_leader_goes_on() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create(1, in_sync=(1,))
        harness.fetch(0)
        harness.replicas.manager.suspend()
        await asyncio.sleep(1)
        harness.replicas.manager.resume()
        assert set(harness.orders.require_leader().in_sync_replicas) == {1, 2}

    with_harness(scenario)


def test_a_replica_that_a_reassignment_added_is_reported_at_once() -> None:
    """The move ends when the controller knows; other changes of the last seconds must not delay it."""

    async def scenario(harness: Harness) -> None:
        await harness.create(1)
        harness.replicas.manager._isr_change_propagation.add([TopicPartition("orders", 7)])
        await asyncio.sleep(0.2)
        state = PartitionState(0, (1, 2), 1, 6, (1,), controller_epoch=1)
        node = await harness.store.set(state_path("orders", 0), encode_state(state))
        moving = assignment_of(1, 2, in_sync=(1,), epoch=6, version=node.version, is_new=False)
        harness.replicas.take(moving._replace(adding_replicas=(2,)))
        harness.fetch(0)
        await asyncio.sleep(0.2)
        assert (await harness.state())["isr"] == [1, 2]
        assert ORDERS in await harness.announced()

    with_harness(scenario)
