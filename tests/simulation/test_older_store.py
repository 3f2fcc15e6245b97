"""A copy of the coordination store that is older than the logs: it may name leaders that lack records (R44)."""

import asyncio
from collections.abc import Mapping

import pytest

from tests.simulation.scenario import all_well_again, create_topic, produce, read_all, simulate, stored, wait_for
from tidelog.server.broker import CannotStart
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.store.tree import ROOT, StoredNode

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


async def written_since_the_copy(cluster: SimulatedCluster) -> dict[str, StoredNode]:
    """Broker 2 leads when the copy is made, and lacks all that was acknowledged later. All have stopped cleanly."""
    await create_topic(cluster, [2, 1, 3], min_insync_replicas=2)
    await asyncio.sleep(1)
    copy = dict(cluster.store_state.nodes)
    await cluster.stop(2)
    for value in VALUES:
        await produce(cluster, value)
    await asyncio.sleep(1)
    await cluster.stop(3)
    await cluster.stop(1)
    return copy


def test_a_copy_of_the_same_controller_epoch_is_refused_by_who_has_seen_a_later_leader() -> None:
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
