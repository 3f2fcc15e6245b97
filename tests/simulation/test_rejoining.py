"""A broker whose session has ended registers again, and gets its roles however late it learns its epoch (R43)."""

import asyncio
from unittest.mock import patch

import pytest

from tests.simulation.scenario import create_topic, in_sync, leading, produce, simulate, stored, wait_for
from tidelog.server.membership import Membership
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.inspection import registered_epoch
from tidelog.store.interface import Node, Watch
from tidelog.store.memory import MemoryStore

DELAYS_S = [0.0, 0.0005, 0.001, 0.002, 0.005, 0.02, 0.1, 0.3, 2.0, 15.0]


async def rejoin(cluster: SimulatedCluster, delay_s: float) -> None:
    """The answer with the broker's epoch is late; the controller sees the registration at once."""
    await create_topic(cluster, [2], min_insync_replicas=1)
    await create_topic(cluster, [2, 3], name="pairs", min_insync_replicas=1)
    await produce(cluster, b"a")
    earlier = registered_epoch(cluster.store_state, 2)
    exists = MemoryStore.exists

    async def late(store: MemoryStore, path: str, watch: Watch | None = None) -> Node | None:
        response = await exists(store, path, watch)
        if path == "/brokers/ids/2" and store.session_id in cluster.machines[2].sessions:
            await asyncio.sleep(delay_s)
        return response

    with patch.object(MemoryStore, "exists", late):
        cluster.cut_off_from_store(2)
        await asyncio.sleep(8)
        cluster.reconnect_to_store(2)
        await wait_for(lambda: registered_epoch(cluster.store_state, 2) not in (None, earlier))
        await wait_for(lambda: leading(cluster, 2) is not None, 40)
        await wait_for(lambda: in_sync(cluster, "pairs") == {2, 3}, 40)
    assert stored(cluster).leader == 2


@pytest.mark.parametrize("delay_s", DELAYS_S)
def test_a_broker_that_joins_again_gets_its_roles(delay_s: float) -> None:
    simulate(lambda cluster: rejoin(cluster, delay_s))


@pytest.mark.parametrize("delay_s", [0.005, 0.3])
def test_a_controller_alone_sees_to_it_if_the_broker_refuses_at_once(delay_s: float) -> None:
    """As Apache Kafka does, which waits for nothing."""

    async def not_at_all(membership: Membership, timeout_s: float) -> None: ...

    with patch.object(Membership, "wait_until_registered", not_at_all):
        simulate(lambda cluster: rejoin(cluster, delay_s))
