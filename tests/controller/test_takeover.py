"""The takeover by a controller, over a store: what it writes, and what its successor makes of half of it."""

import asyncio
from collections.abc import Sequence

import pytest

from tidelog.cluster import znodes
from tidelog.cluster.image import BrokerRegistration
from tidelog.cluster.inventory import Backup, FoundLog, Inventory
from tidelog.cluster.znodes import ClusterNode, TakeoverState
from tidelog.config.listeners import Endpoint
from tidelog.controller.context_loading import load_topics
from tidelog.controller.producer_ids import ProducerIds
from tidelog.controller.registration import claim_controller, find_cluster_id, prepare_store, register_broker
from tidelog.controller.takeover import (
    KEEP_ALL,
    TakeoverRules,
    has_foreign_controller,
    publish_inventory,
    raise_controller_epoch,
    take_over,
)
from tidelog.controller.takeover_plan import SPARE_LEADER_EPOCHS
from tidelog.runtime.clock import Clock
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import VirtualClock, VirtualTimeLoop, run_virtually
from tidelog.store.interface import Operation, Result, StoreUnavailable, Watch
from tidelog.store.memory import MemoryStore, MemoryStoreState
from tidelog.types import TopicPartition, Uuid

ORDERS_ID: Uuid = bytes(range(16))


class FailingStore(MemoryStore):
    """The controller dies before its n-th write."""

    def __init__(self, state: MemoryStoreState, writes_left: int) -> None:
        super().__init__(state)
        self._writes_left = writes_left

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        if self._writes_left == 0:
            raise StoreUnavailable
        self._writes_left -= 1
        return await super().multi(operations)


def clock() -> Clock:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return VirtualClock(loop)


def rules(*, is_forced: bool = False) -> TakeoverRules:
    return TakeoverRules(clock(), 1000, is_forced, lambda: b"n" * 16, lambda name, factor: None)


def logs(*topics: str) -> list[FoundLog]:
    return [FoundLog(TopicPartition(topic, index), ORDERS_ID, 3, 0, 10) for topic in topics for index in range(3)]


async def joined(state: MemoryStoreState, *inventories: Inventory) -> dict[int, MemoryStore]:
    stores: dict[int, MemoryStore] = {}
    for inventory in inventories:
        store = stores[inventory.broker_id] = MemoryStore(state)
        await prepare_store(store)
        await find_cluster_id(store, SeededRandomness(1), "cluster")
        await publish_inventory(store, inventory)
        endpoint = Endpoint("PLAINTEXT", f"host-{inventory.broker_id}", 9092, "PLAINTEXT")
        await register_broker(store, BrokerRegistration(inventory.broker_id, (endpoint,)), clock())
    return stores


async def elected(store: MemoryStore, *, is_forced: bool = False) -> None:
    fence = await claim_controller(store, 1, clock())
    assert fence is not None
    await take_over(store, fence, 1, rules(is_forced=is_forced))


def node(state: MemoryStoreState) -> ClusterNode:
    return znodes.decode_cluster(state.nodes[znodes.CLUSTER_ID].data)


def test_a_new_cluster_is_in_use_at_once() -> None:
    async def scenario() -> None:
        state = MemoryStoreState()
        stores = await joined(state, Inventory(1))
        await elected(stores[1])
        assert node(state) == ClusterNode("cluster", TakeoverState.DONE)

    run_virtually(scenario())


def test_a_store_that_knew_topics_before_there_were_takeovers_is_in_use() -> None:
    async def scenario() -> None:
        state = MemoryStoreState()
        stores = await joined(state, Inventory(1, logs("payments")))
        await stores[1].create(znodes.topic_path("orders"), znodes.encode_topic(ORDERS_ID, ()))
        await elected(stores[1])
        assert node(state).takeover is TakeoverState.DONE
        assert await stores[1].children(znodes.TOPICS) == ["orders"]

    run_virtually(scenario())


@pytest.mark.parametrize("writes", range(1, 9))
def test_a_takeover_that_its_controller_did_not_finish_is_finished_by_the_next(
    writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.controller.takeover.NODES_PER_WRITE", 4)

    async def scenario() -> None:
        state = MemoryStoreState()
        backup = Backup(frozenset({1, 2}), 5, 7, 4999, {"orders": {"cleanup.policy": "compact"}})
        inventories = [Inventory(each, logs("orders", "payments"), backup) for each in (1, 2)]
        stores = await joined(state, *inventories)
        first = FailingStore(state, writes)
        with pytest.raises(StoreUnavailable):
            await elected(first)
        state.expire(first.session_id)
        await elected(stores[2])
        orders, payments = await load_topics(stores[2], ["orders", "payments"])
        assert (orders.topic_id, orders.configs) == (ORDERS_ID, {"cleanup.policy": "compact"})
        assert payments.configs == KEEP_ALL  # the backup is a moment older than this topic
        assert [each.leader for each in (*orders.partitions, *payments.partitions)] == [1, 2, 1, 2, 1, 2]
        assert {each.leader_epoch for each in orders.partitions} == {8 + SPARE_LEADER_EPOCHS}
        assert all(each.in_sync_epochs.keys() == {1, 2} for each in orders.partitions)
        assert await ProducerIds(stores[2], 2).next() == 5000
        assert node(state).takeover is TakeoverState.DONE

    run_virtually(scenario())


@pytest.mark.parametrize("writes", range(1, 8))
def test_no_topic_is_seen_without_its_settings(writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.controller.takeover.NODES_PER_WRITE", 1)

    async def scenario() -> None:
        state = MemoryStoreState()
        backup = Backup(frozenset({1}), topic_configs={"orders": {"retention.ms": "-1"}})
        await joined(state, Inventory(1, logs("orders"), backup))
        with pytest.raises(StoreUnavailable):
            await elected(FailingStore(state, writes))
        assert all(topic.configs for topic in await load_topics(MemoryStore(state), ["orders"]))

    run_virtually(scenario())


def test_it_waits_and_says_what_for() -> None:
    async def scenario() -> None:
        state = MemoryStoreState()
        stores = await joined(state, Inventory(1, logs("orders"), Backup(frozenset({1, 2}))))
        taking = asyncio.ensure_future(elected(stores[1]))
        await asyncio.sleep(5.0)
        assert node(state).takeover is TakeoverState.WAITING
        assert "hold 1 topic with 3 partitions, and broker 2 of this cluster is not running" in node(state).reason
        await joined(state, Inventory(2, logs("orders"), Backup(frozenset({1, 2}))))
        await taking
        assert node(state) == ClusterNode("cluster", TakeoverState.DONE)

    run_virtually(scenario())


def test_it_waits_for_the_broker_whose_log_directories_had_the_cluster_id() -> None:
    """It has not published its inventory yet, and a broker with new log directories was faster."""

    async def scenario() -> None:
        state = MemoryStoreState()
        slow = MemoryStore(state)
        await prepare_store(slow)
        assert await find_cluster_id(slow, SeededRandomness(1), "cluster", 2) == "cluster"
        stores = await joined(state, Inventory(1))
        taking = asyncio.ensure_future(elected(stores[1]))
        await asyncio.sleep(5.0)
        assert node(state).takeover is TakeoverState.WAITING
        assert "broker 2 of this cluster is not running" in node(state).reason
        await joined(state, Inventory(2, logs("orders"), Backup(frozenset({2}))))
        await taking
        assert await slow.children(znodes.TOPICS) == ["orders"]

    run_virtually(scenario())


def test_it_goes_on_without_a_member_only_where_that_was_allowed_and_it_has_waited() -> None:
    async def scenario() -> None:
        state = MemoryStoreState()
        stores = await joined(state, Inventory(1, logs("orders"), Backup(frozenset({1, 2}))))
        taking = asyncio.ensure_future(elected(stores[1], is_forced=True))
        await asyncio.sleep(0.9)
        assert not taking.done()
        await taking
        assert await stores[1].children(znodes.TOPICS) == ["orders"]

    run_virtually(scenario())


def test_topics_whose_settings_nobody_knows_keep_everything() -> None:
    async def scenario() -> None:
        stores = await joined(MemoryStoreState(), Inventory(1, logs("orders")))
        await elected(stores[1])
        (topic,) = await load_topics(stores[1], ["orders"])
        assert topic.configs == KEEP_ALL

    run_virtually(scenario())


def test_a_controller_whose_epoch_brokers_would_refuse_steps_back() -> None:
    async def scenario() -> None:
        state = MemoryStoreState()
        stores = await joined(state, Inventory(1, logs("orders"), Backup(frozenset({1, 2}))))
        taking = asyncio.ensure_future(elected(stores[1]))
        await asyncio.sleep(1.0)
        await raise_controller_epoch(stores[1], 12)
        with pytest.raises(StoreUnavailable):
            await taking
        assert state.nodes[znodes.CONTROLLER_EPOCH].data == b"12"
        await raise_controller_epoch(stores[1], 3)
        assert state.nodes[znodes.CONTROLLER_EPOCH].data == b"12"

    run_virtually(scenario())


def test_controller_without_inventory_is_one_of_apache_kafka() -> None:
    async def scenario() -> None:
        store = MemoryStore(MemoryStoreState())
        await prepare_store(store)
        assert not await has_foreign_controller(store), "nobody is controller yet"
        await publish_inventory(store, Inventory(2, []))
        await store.create(znodes.CONTROLLER, b'{"version":2,"brokerid":1,"timestamp":"1"}', ephemeral=True)
        assert await has_foreign_controller(store)
        await publish_inventory(store, Inventory(1, []))
        assert not await has_foreign_controller(store)

    asyncio.run(scenario())


class EndingStore(MemoryStore):
    """The session of the controller ends before the inventories are read."""

    def __init__(self, state: MemoryStoreState, controller: MemoryStore) -> None:
        super().__init__(state)
        self._controller = controller

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        await self._controller.close()
        return await super().children(path, watch)


def test_a_controller_whose_session_ends_meanwhile_is_no_foreign_one() -> None:
    """Seed 801489: a broker without logs took the store for that of a Kafka controller, and withdrew its inventory."""

    async def scenario() -> None:
        state = MemoryStoreState()
        controller = MemoryStore(state)
        await prepare_store(controller)
        await publish_inventory(controller, Inventory(2, logs("orders")))
        await controller.create(znodes.CONTROLLER, b'{"version":2,"brokerid":2,"timestamp":"1"}', ephemeral=True)
        assert not await has_foreign_controller(EndingStore(state, controller))

    run_virtually(scenario())
