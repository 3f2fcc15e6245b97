"""A copy of the coordination store that is older than the logs: it may name leaders that lack records (R44)."""

import asyncio
from collections.abc import Mapping

import pytest

from tests.simulation.scenario import (
    all_well_again,
    create_topic,
    in_sync,
    is_leading,
    produce,
    read_all,
    simulate,
    stored,
    wait_for,
)
from tidelog.server import broker_parts
from tidelog.server.broker import CannotStart
from tidelog.simulation.clients import client_cluster
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.work.requests import alter_settings
from tidelog.store.memory import MemoryStoreState
from tidelog.store.tree import ROOT, StoredNode
from tidelog.types import BrokerId

VALUES = [b"%d" % number for number in range(20)]


def restore(cluster: SimulatedCluster, copy: Mapping[str, StoredNode]) -> None:
    """Nobody runs. The sessions of then have ended."""
    state = cluster.store_state
    state.nodes = {path: node for path, node in copy.items() if not node.owner}
    state.children = {path: set() for path in state.nodes}
    for path in state.nodes.keys() - {ROOT}:
        parent, _, name = path.rpartition("/")
        state.children[parent or ROOT].add(name)
    state._last_transaction_id = max(node.modified_id for node in state.nodes.values())


async def written_since_the_copy(cluster: SimulatedCluster, min_insync_replicas: int = 2) -> dict[str, StoredNode]:
    """Broker 2 leads when it dies and the copy is made, and lacks all that was acknowledged later. Nobody runs."""
    await create_topic(cluster, [2, 1, 3], min_insync_replicas=min_insync_replicas)
    await asyncio.sleep(2)
    cluster.kill(2)
    copy = dict(cluster.store_state.nodes)
    for value in VALUES:
        await produce(cluster, value)
    await asyncio.sleep(2)
    await cluster.stop(3)
    await cluster.stop(1)
    return copy


async def no_change_counter(*_: object) -> None:
    return None


def test_a_copy_of_the_same_controller_epoch_is_refused_by_who_has_seen_a_later_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also by a log directory of an earlier version, which counted no changes."""
    monkeypatch.setattr(broker_parts, "increment_change_counter", no_change_counter)

    async def scenario(cluster: SimulatedCluster) -> None:
        copy, latest = await written_since_the_copy(cluster), dict(cluster.store_state.nodes)
        assert copy["/controller_epoch"] == latest["/controller_epoch"]
        restore(cluster, copy)
        for each in (1, 3):
            with pytest.raises(CannotStart, match="orders-0 is in leader epoch 0, its log in 1"):
                await cluster.start(each)
        restore(cluster, latest)
        await asyncio.gather(*(cluster.start(each) for each in (1, 2, 3)))
        await wait_for(lambda: stored(cluster).leader != -1)
        await all_well_again(cluster)
        assert await read_all(cluster) == VALUES

    simulate(scenario)


async def led_since_the_copy(cluster: SimulatedCluster) -> None:
    """Broker 2 was away when the others wrote, and cannot know. It leads, and leader epochs catch up."""
    copy = await written_since_the_copy(cluster, min_insync_replicas=1)
    restore(cluster, copy)
    for _ in range(4):
        await cluster.start(2)
        await wait_for(lambda: is_leading(cluster, 2))
        await cluster.stop(2)
    assert stored(cluster).leader_epoch > 3
    await cluster.start(2)


def test_who_has_seen_more_refuses_even_if_others_have_led_since() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await led_since_the_copy(cluster)
        for each in (1, 3):
            with pytest.raises(CannotStart, match=r"it lacks . of the . changes that broker . has noted"):
                await cluster.start(each)
        await cluster.stop(2)
        cluster.store_state = MemoryStoreState()  # what the error message asks the operator to do
        await cluster.start_all()
        await all_well_again(cluster)
        assert await read_all(cluster) == VALUES

    simulate(scenario)


def test_what_two_leaders_wrote_apart_is_not_decided_by_a_takeover() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await led_since_the_copy(cluster)
        await produce(cluster, b"apart", acks=1)
        await cluster.stop(2)
        cluster.store_state = MemoryStoreState()
        results = await asyncio.gather(*map(cluster.start, (1, 2, 3)), return_exceptions=True)
        expected = "has records of orders-0 up to offset 19 that were committed, while broker 2 has later ones"
        assert all(isinstance(each, CannotStart) and expected in str(each) for each in results), results

    simulate(scenario)


@pytest.mark.parametrize("first", [1, 3])
def test_a_copy_since_which_only_in_sync_replicas_changed_is_refused(first: BrokerId) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3], min_insync_replicas=1)
        await asyncio.sleep(2)
        copy = dict(cluster.store_state.nodes)
        cluster.cut(2, [1])  # it can neither fetch nor hear of anything
        await produce(cluster, VALUES[0], acks=1)
        await wait_for(lambda: 2 not in in_sync(cluster), timeout_s=60)
        for value in VALUES[1:]:
            await produce(cluster, value)
        await asyncio.sleep(10)
        assert stored(cluster).leader_epoch == 0, "only in-sync replicas have changed"
        for each in (1, 2, 3):
            cluster.kill(each)
        await asyncio.sleep(1)
        latest = dict(cluster.store_state.nodes)
        restore(cluster, copy)
        with pytest.raises(CannotStart, match="older than the log directories"):
            await cluster.start(first)
        restore(cluster, latest)
        await asyncio.gather(*(cluster.start(each) for each in (1, 2, 3)))
        await all_well_again(cluster)
        assert await read_all(cluster) == VALUES

    simulate(scenario, replica_lag_time_max_ms=2000)


def test_a_store_that_was_rebuilt_is_no_older_one() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [2, 1, 3], min_insync_replicas=2)
        for _ in range(3):
            cluster.kill(2)
            await wait_for(lambda: 2 not in in_sync(cluster), timeout_s=60)
            await cluster.start(2)
            await wait_for(lambda: 2 in in_sync(cluster), timeout_s=60)
        await produce(cluster, *VALUES)
        await asyncio.sleep(2)
        await cluster.stop_all()
        cluster.store_state = MemoryStoreState()
        await cluster.start_all()
        cluster.kill(3)
        await asyncio.sleep(1)
        await cluster.start(3)
        await all_well_again(cluster)
        assert await read_all(cluster) == VALUES

    simulate(scenario)


async def deleted_by_the_settings_of_then(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2, 3], min_insync_replicas=2, retention_ms=60_000)
    await asyncio.sleep(10)
    copy = dict(cluster.store_state.nodes)
    await alter_settings(client_cluster(cluster, 1, "operator"), "orders", {"retention.ms": "-1"})
    await asyncio.sleep(10)
    for value in VALUES:
        await produce(cluster, value)
    await asyncio.sleep(3600)
    latest = dict(cluster.store_state.nodes)
    for each in (1, 2, 3):
        cluster.kill(each)
    restore(cluster, copy)
    for each in (1, 2, 3):
        with pytest.raises(CannotStart, match="older"):
            await cluster.start(each)
    restore(cluster, latest)
    await asyncio.gather(*(cluster.start(each) for each in (1, 2, 3)))
    await wait_for(lambda: stored(cluster).leader != -1)
    assert await read_all(cluster) == VALUES


def test_a_copy_that_differs_in_settings_only_is_refused() -> None:
    """Retention of then would delete records that the operator has decided to keep."""
    simulate(deleted_by_the_settings_of_then, log_retention_check_interval_ms=10_000)
