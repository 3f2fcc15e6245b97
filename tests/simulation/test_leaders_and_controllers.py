"""Partitions without a leader, and brokers that cannot become controller (R31, R35)."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from tests.simulation.broken_elections import dead_leaders_stay_leaders, unfenced_controller_writes
from tests.simulation.scenario import (
    all_well_again,
    ask,
    controller_of,
    create_topic,
    in_sync,
    produce,
    read_all,
    simulate,
    stored,
    wait_for,
)
from tidelog.cluster.znodes import CONTROLLER, TOPICS
from tidelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.inspection import registered_epoch
from tidelog.simulation.invariants import Invariants, InvariantViolated
from tidelog.store.interface import NO_OWNER, Create, Delete, Operation, Result, Set
from tidelog.store.memory import MemoryStore

# ---- KAFKA-3096


async def lose_the_only_leader(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2])
    cluster.cut(1, [2])
    await produce(cluster, b"a")
    assert in_sync(cluster) == {1}
    cluster.kill(1)
    await asyncio.sleep(5)
    state = stored(cluster)
    assert (state.leader, state.in_sync_replicas) == (-1, (1,)), "a dead broker is leader"
    assert cluster.broker(2).fetchers.statistics().fetchers == (), "somebody fetches from a dead leader"
    await all_well_again(cluster)
    assert await read_all(cluster) == [b"a"]


def test_nobody_follows_where_nobody_can_lead() -> None:
    """KAFKA-3096, R35"""
    simulate(lose_the_only_leader, controller=3, replica_lag_time_max_ms=2000)


def test_a_dead_leader_is_followed_where_it_stays_leader() -> None:
    with dead_leaders_stay_leaders(), pytest.raises(AssertionError, match="a dead broker is leader"):
        simulate(lose_the_only_leader, controller=3, replica_lag_time_max_ms=2000)


# ---- KAFKA-6082


@contextmanager
def held_writes(cluster: SimulatedCluster, broker_id: int) -> Iterator[asyncio.Event]:
    """What this broker writes of partitions is on its way until the block ends; set when there is something."""
    multi, is_held, may_pass = MemoryStore.multi, asyncio.Event(), asyncio.Event()

    async def hold(store: MemoryStore, operations: Sequence[Operation]) -> list[Result]:
        is_ours = store.session_id in cluster.machines[broker_id].sessions
        if is_ours and any(isinstance(each, Create | Set) and each.path.startswith(TOPICS) for each in operations):
            is_held.set()
            await may_pass.wait()
        return await multi(store, operations)

    with patch.object(MemoryStore, "multi", hold):
        yield is_held
    may_pass.set()


async def let_a_write_arrive_after_the_term(cluster: SimulatedCluster) -> None:
    """The first controller moves a leader, on request; before its write arrives, another broker is controller."""
    invariants = Invariants(cluster)
    await create_topic(cluster, [3, 2, 1])
    await produce(cluster, b"a")
    before = stored(cluster)
    with held_writes(cluster, 1) as is_held:
        epoch = registered_epoch(cluster.store_state, 3) or -1
        request = ControlledShutdownRequest(broker_id=3, broker_epoch=epoch)
        asking = asyncio.ensure_future(ask(cluster, 1, request, ControlledShutdownResponse))
        await is_held.wait()
        cluster.store_state.perform([Delete(CONTROLLER)], NO_OWNER)
        await wait_for(lambda: controller_of(cluster) in (2, 3))
        await asyncio.sleep(1)
    await asking
    await asyncio.sleep(1)
    invariants.check()
    assert stored(cluster) == before
    await produce(cluster, b"b")
    assert await read_all(cluster) == [b"a", b"b"]


def test_a_write_of_a_deposed_controller_changes_nothing() -> None:
    """KAFKA-6082, R31"""
    simulate(let_a_write_arrive_after_the_term)


def test_a_deposed_controller_overwrites_the_state_where_its_writes_are_not_fenced() -> None:
    with unfenced_controller_writes(), pytest.raises(InvariantViolated, match=r"I6.*controller epoch 2 has begun"):
        simulate(let_a_write_arrive_after_the_term)
