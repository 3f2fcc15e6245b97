"""States without incarnations, as Apache Kafka writes them: a broker that restarted is still not trusted (R39, R42)."""

import asyncio
import json
from dataclasses import replace

from tests.simulation.scenario import TOPIC, all_well_again, create_topic, produce, read_all, simulate, stored, wait_for
from tidelog.cluster.znodes import state_path
from tidelog.simulation.cluster import SimulatedCluster

VALUES = [b"%d" % number for number in range(20)]
WATCHER = 4


def forget_incarnations(cluster: SimulatedCluster) -> None:
    path = state_path(TOPIC, 0)
    node = cluster.store_state.nodes[path]
    content = json.loads(node.data)
    for key in ("isr_epochs", "elr", "elr_epochs"):
        content.pop(key, None)
    cluster.store_state.nodes[path] = replace(node, data=json.dumps(content).encode())


async def _written(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2, 3], min_insync_replicas=2)
    for value in VALUES:
        await produce(cluster, value)
    await asyncio.sleep(1)


async def _nothing_is_lost(cluster: SimulatedCluster) -> None:
    await wait_for(lambda: stored(cluster).leader != -1)
    await all_well_again(cluster)
    assert await read_all(cluster) == VALUES


def test_all_die_and_one_lost_its_disk() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await _written(cluster)
        for each in (1, 2, 3):
            cluster.kill(each)
        cluster.wipe(1)
        forget_incarnations(cluster)
        await asyncio.sleep(1)
        await cluster.start(1)
        await asyncio.sleep(1)
        await asyncio.gather(cluster.start(2), cluster.start(3))
        await _nothing_is_lost(cluster)

    simulate(scenario)


def test_all_die_and_one_lost_its_disk_under_the_eyes_of_the_controller() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await _written(cluster)
        for each in (1, 2, 3):
            cluster.kill(each)
        await asyncio.sleep(1)
        cluster.wipe(1)
        cluster.kill(WATCHER)
        forget_incarnations(cluster)
        await cluster.start(WATCHER)
        await asyncio.sleep(1)
        await cluster.start(1)
        await asyncio.sleep(1)
        await asyncio.gather(cluster.start(2), cluster.start(3))
        await _nothing_is_lost(cluster)

    simulate(scenario, brokers=4, controller=WATCHER)
