"""Leaders return to their preferred replicas soon after a start, without waiting for the next check (R40)."""

import asyncio

import pytest

from tests.simulation.scenario import TOPIC, create_topic, is_leading, simulate, wait_for
from tidelog.simulation.cluster import SimulatedCluster

PARTITIONS = 30
BALANCED_S = 10.0
PLACES = [[1 + (number + each) % 3 for each in range(3)] for number in range(PARTITIONS)]


def are_leaders_preferred(cluster: SimulatedCluster) -> bool:
    return all(is_leading(cluster, place[0], TOPIC, partition) for partition, place in enumerate(PLACES))


@pytest.mark.parametrize("pause_s", [0.0, 3.0])
@pytest.mark.parametrize("is_clean", [True, False])
def test_leaders_are_balanced_within_ten_seconds_of_a_start_of_all_brokers(is_clean: bool, pause_s: float) -> None:
    """The first to come leads what it can."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, *PLACES)
        if is_clean:
            await cluster.stop_all()
        else:
            for broker_id in cluster.machines:
                cluster.kill(broker_id)
        await asyncio.sleep(20)
        for broker_id in cluster.machines:
            await cluster.start(broker_id)
            await asyncio.sleep(pause_s)
        await wait_for(lambda: are_leaders_preferred(cluster), BALANCED_S)

    simulate(scenario, auto_leader_rebalance_enable=True)
