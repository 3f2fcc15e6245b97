"""Leaders in place (R40): preferred replicas lead again soon after brokers have come back."""

import asyncio
from collections import Counter
from collections.abc import Iterator

from tests.simulation.scenario import create_topic, in_sync, produce, simulate, stored, wait_for
from tidelog.simulation.cluster import SimulatedCluster

PLACES = ([1, 2, 3], [2, 3, 1], [3, 1, 2]) * 4
BALANCED_WITHIN_S = 10.0


def leaders(cluster: SimulatedCluster) -> Iterator[int]:
    return (stored(cluster, partition=index).leader for index in range(len(PLACES)))


def is_balanced(cluster: SimulatedCluster) -> bool:
    return Counter(leaders(cluster)) == {1: 4, 2: 4, 3: 4}


def test_leaders_are_balanced_within_seconds_after_all_brokers_have_started_again() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, *PLACES)
        await cluster.stop_all()
        for broker_id in (1, 2, 3):
            await cluster.start(broker_id)
        assert not is_balanced(cluster)
        await wait_for(lambda: is_balanced(cluster), BALANCED_WITHIN_S)

    simulate(scenario, auto_leader_rebalance_enable=True)


def test_leaders_are_balanced_after_a_rolling_restart_and_no_write_is_lost() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, *PLACES)
        for broker_id in (1, 2, 3):
            await cluster.stop(broker_id)
            await cluster.start(broker_id)
            await produce(cluster, b"%d" % broker_id)
            await wait_for(lambda: all(in_sync(cluster, partition=each) == {1, 2, 3} for each in range(len(PLACES))))
        await wait_for(lambda: is_balanced(cluster), BALANCED_WITHIN_S)

    simulate(scenario, auto_leader_rebalance_enable=True)


def test_leaders_come_back_after_a_failover() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, *PLACES)
        cluster.kill(1)
        await asyncio.sleep(1)
        assert 1 not in set(leaders(cluster))
        await cluster.start(1)
        await wait_for(lambda: is_balanced(cluster), BALANCED_WITHIN_S)

    simulate(scenario, auto_leader_rebalance_enable=True)
