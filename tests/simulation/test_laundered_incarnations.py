"""States that are written late: they are about the incarnations that were decided on, not those of then (R41)."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from tests.simulation.broken_elections import incarnations_forgotten_at_elections
from tests.simulation.scenario import (
    Scenario,
    all_well_again,
    controller_of,
    create_topic,
    produce,
    read_all,
    simulate,
    stored,
    wait_for,
)
from tidelog.server.broker import Broker
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.inspection import registered_epoch
from tidelog.store.interface import Operation, Result, Set
from tidelog.store.memory import MemoryStore

CONTROLLER = 4
VALUES = [b"%d" % number for number in range(20)]


class HeldWrite:
    """The first write of a partition's state by one broker: on its way to the store until it is let through."""

    def __init__(self) -> None:
        self.is_sent = asyncio.Event()
        self.may_pass = asyncio.Event()
        self.is_written = False


@contextmanager
def held_write(cluster: SimulatedCluster, broker_id: int) -> Iterator[HeldWrite]:
    """Its answer is lost."""
    held, multi = HeldWrite(), MemoryStore.multi

    async def slowly(store: MemoryStore, operations: Sequence[Operation]) -> list[Result]:
        is_state = any(isinstance(each, Set) and each.path.endswith("/state") for each in operations)
        if held.is_sent.is_set() or not is_state or store.session_id not in cluster.machines[broker_id].sessions:
            return await multi(store, operations)
        held.is_sent.set()
        await held.may_pass.wait()
        await multi(store, operations)
        held.is_written = True
        await asyncio.Event().wait()
        raise AssertionError("nobody comes here")

    with patch.object(MemoryStore, "multi", slowly):
        yield held


async def _lose_disk_and_come_back(cluster: SimulatedCluster, broker_id: int) -> "asyncio.Future[Broker]":
    earlier = registered_epoch(cluster.store_state, broker_id)
    cluster.cut_power(broker_id)
    cluster.wipe(broker_id)
    starting = asyncio.ensure_future(cluster.start(broker_id))
    await wait_for(lambda: registered_epoch(cluster.store_state, broker_id) not in (None, earlier), step_s=0.001)
    return starting


async def elect_late_who_lost_its_disk(cluster: SimulatedCluster) -> None:
    """The leader dies, broker 1 is elected, loses its disk and is back before that is written; the controller dies."""
    await create_topic(cluster, [2, 1, 3], min_insync_replicas=2)
    await _hold_a_write_of_the_controller(cluster, lambda: cluster.kill(2))


async def shrink_late_around_who_lost_its_disk(cluster: SimulatedCluster) -> None:
    """Broker 2 leads and dies; of the followers that stay in sync, broker 1 loses its disk before that is written."""
    await create_topic(cluster, [2, 3, 1], min_insync_replicas=2)
    await _hold_a_write_of_the_controller(cluster, lambda: cluster.kill(2))


async def _hold_a_write_of_the_controller(cluster: SimulatedCluster, happen: Callable[[], None]) -> None:
    for value in VALUES:
        await produce(cluster, value)
    await asyncio.sleep(1)
    with held_write(cluster, CONTROLLER) as held:
        happen()
        await held.is_sent.wait()
        starting = await _lose_disk_and_come_back(cluster, 1)
        held.may_pass.set()
        await wait_for(lambda: held.is_written, step_s=0.0001)
        cluster.kill(CONTROLLER)
    await cluster.start(2)
    await wait_for(lambda: controller_of(cluster) in (1, 2, 3))
    await starting
    await wait_for(lambda: stored(cluster).leader != -1)
    await all_well_again(cluster)
    assert await read_all(cluster) == VALUES, "acknowledged records are lost"


@pytest.mark.parametrize("scenario", [elect_late_who_lost_its_disk, shrink_late_around_who_lost_its_disk])
def test_a_late_write_of_a_controller_does_not_launder_a_lost_disk(
    scenario: Scenario,
) -> None:
    simulate(scenario, 4, controller=CONTROLLER)


def test_acknowledged_records_are_lost_where_elections_forget_incarnations() -> None:
    with incarnations_forgotten_at_elections(), pytest.raises(AssertionError, match="acknowledged records are lost"):
        simulate(elect_late_who_lost_its_disk, 4, controller=CONTROLLER)
