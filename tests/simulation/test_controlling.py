"""The controller among whole brokers, on virtual time: after faults, all brokers agree."""

import asyncio
import random

import pytest

from tidelog.client.network.connection import ConnectionLost
from tidelog.cluster.image import ClusterImage
from tidelog.controller.context_loading import load_image
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.simulation.cluster import SESSION_TIMEOUT_MS, SimulatedCluster
from tidelog.simulation.processes import run_simulation
from tidelog.store.memory import MemoryStore
from tidelog.types import TopicPartition

SESSION_TIMEOUT_S = SESSION_TIMEOUT_MS / 1000
LONG_ENOUGH_S = 60.0


async def cluster_with(topic: str) -> SimulatedCluster:
    cluster = SimulatedCluster(3)
    await cluster.start_all()
    assert await create(cluster, 1, topic) == 0
    await asyncio.sleep(1)
    return cluster


async def create(cluster: SimulatedCluster, broker_id: int, name: str) -> int:
    connection = await cluster.connect(broker_id)
    topic = CreatableTopic(name=name, num_partitions=3, replication_factor=3)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=2000)
    response = await connection.ask(request, CreateTopicsResponse, timeout_s=5)
    connection.close()
    return response.topics[0].error_code


async def delete(cluster: SimulatedCluster, broker_id: int, name: str) -> int:
    connection = await cluster.connect(broker_id)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=2000)
    response = await connection.ask(request, DeleteTopicsResponse, timeout_s=5)
    connection.close()
    return response.responses[0].error_code


async def stored(cluster: SimulatedCluster) -> ClusterImage:
    return await load_image(MemoryStore(cluster.store_state))


def controllers(cluster: SimulatedCluster) -> list[int]:
    return [broker.broker_id for broker in cluster.running if broker._membership.controller.is_active]


async def check_all_is_well(cluster: SimulatedCluster) -> None:
    """I7: all replicas in sync, all brokers know what the store says and host what it says, one controller."""
    image = await stored(cluster)
    assert len(controllers(cluster)) == 1
    assert await MemoryStore(cluster.store_state).children("/admin/delete_topics") == []
    for topic in image.topics.values():
        for partition in topic.partitions:
            assert sorted(partition.in_sync_replicas) == sorted(partition.replicas)
            leader = cluster.broker(partition.leader)
            assert leader._services.replicas.get(topic.name, partition.index).require_leader(partition.leader_epoch)
    hosted = {TopicPartition(topic.name, each.index) for topic in image.topics.values() for each in topic.partitions}
    for broker in cluster.running:
        assert {partition.topic_partition for partition in broker._services.replicas} == hosted
        assert set(broker._services.logs.logs) == hosted
        known = broker._services.cluster.image
        assert known.topics == image.topics
        assert known.controller_id == controllers(cluster)[0]


def test_a_controller_that_was_stopped_past_its_session_wakes_up_to_a_successor() -> None:
    async def scenario() -> None:
        cluster = await cluster_with("orders")
        (first,) = controllers(cluster)
        cluster.freeze(first)
        await asyncio.sleep(SESSION_TIMEOUT_S + 1)
        (successor,) = [each for each in controllers(cluster) if each != first]
        before = await stored(cluster)
        assert all(partition.leader != first for partition in before.topics["orders"].partitions)
        cluster.thaw(first)
        await asyncio.sleep(LONG_ENOUGH_S)
        assert controllers(cluster) == [successor]
        await check_all_is_well(cluster)
        await cluster.stop_all()

    run_simulation(scenario())


def test_a_broker_that_lost_its_session_leads_again_when_it_has_joined_again() -> None:
    async def scenario() -> None:
        cluster = await cluster_with("orders")
        cluster.cut_off_from_store(2)
        await asyncio.sleep(SESSION_TIMEOUT_S + 1)
        cluster.reconnect_to_store(2)
        await asyncio.sleep(LONG_ENOUGH_S)
        for broker_id in (1, 3):
            cluster.kill(broker_id)
        await asyncio.sleep(1)
        image = await stored(cluster)
        for partition in image.topics["orders"].partitions:
            assert partition.leader == 2
            assert cluster.broker(2)._services.replicas.get("orders", partition.index).leader is not None
        await asyncio.gather(cluster.start(1), cluster.start(3))
        await asyncio.sleep(LONG_ENOUGH_S)
        await check_all_is_well(cluster)
        await cluster.stop_all()

    run_simulation(scenario())


def test_a_topic_deleted_while_a_broker_is_away_is_gone_there_too_when_it_is_back() -> None:
    async def scenario() -> None:
        cluster = await cluster_with("orders")
        assert await create(cluster, 1, "kept") == 0
        (first,) = controllers(cluster)
        away = next(broker_id for broker_id in (1, 2, 3) if broker_id != first)
        cluster.kill(away)
        await asyncio.sleep(1)
        assert await delete(cluster, first, "orders") == 0
        assert "orders" in (await stored(cluster)).topics
        cluster.kill(first)
        await asyncio.sleep(1)
        await cluster.start(away)
        await cluster.start(first)
        await asyncio.sleep(LONG_ENOUGH_S)
        assert list((await stored(cluster)).topics) == ["kept"]
        await check_all_is_well(cluster)
        await cluster.stop_all()

    run_simulation(scenario())


class RandomFaults:
    """One after another, from one seed; `end` repairs everything."""

    def __init__(self, cluster: SimulatedCluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._down: set[int] = set()
        self._cut_off: set[int] = set()
        self._frozen: set[int] = set()

    async def one(self) -> None:
        await asyncio.sleep(self._random.random() * self._random.choice([0.02, 0.5, 8.0]))
        broker_id = self._random.choice([1, 2, 3])
        if broker_id in self._down:
            await self._start(broker_id)
        elif broker_id in self._frozen:
            self._thaw(broker_id)
        elif broker_id in self._cut_off:
            self._reconnect(broker_id)
        else:
            await self._random.choice([self._kill, self._stop, self._freeze, self._cut, self._create, self._delete])(
                broker_id
            )

    async def end(self) -> None:
        for broker_id in list(self._frozen):
            self._thaw(broker_id)
        for broker_id in list(self._cut_off):
            self._reconnect(broker_id)
        for broker_id in list(self._down):
            await self._start(broker_id)

    async def _kill(self, broker_id: int) -> None:
        self._cluster.kill(broker_id)
        self._down.add(broker_id)

    async def _stop(self, broker_id: int) -> None:
        await self._cluster.stop(broker_id)
        self._down.add(broker_id)

    async def _start(self, broker_id: int) -> None:
        await self._cluster.start(broker_id)
        self._down.discard(broker_id)

    async def _freeze(self, broker_id: int) -> None:
        self._cluster.freeze(broker_id)
        self._frozen.add(broker_id)

    def _thaw(self, broker_id: int) -> None:
        self._cluster.thaw(broker_id)
        self._frozen.discard(broker_id)

    async def _cut(self, broker_id: int) -> None:
        self._cluster.cut_off_from_store(broker_id)
        self._cut_off.add(broker_id)

    def _reconnect(self, broker_id: int) -> None:
        self._cluster.reconnect_to_store(broker_id)
        self._cut_off.discard(broker_id)

    async def _create(self, broker_id: int) -> None:
        try:
            await create(self._cluster, broker_id, self._random.choice("abc"))
        except ConnectionLost:
            return

    async def _delete(self, broker_id: int) -> None:
        try:
            await delete(self._cluster, broker_id, self._random.choice("abc"))
        except ConnectionLost:
            return


@pytest.mark.parametrize("seed", range(6))
def test_after_any_faults_all_brokers_agree_again(seed: int) -> None:
    async def scenario() -> None:
        cluster = await cluster_with("orders")
        faults = RandomFaults(cluster, seed)
        for _ in range(40):
            await faults.one()
            for topic in (await stored(cluster)).topics.values():
                for partition in topic.partitions:
                    assert partition.leader == -1 or partition.leader in partition.in_sync_replicas  # I1
        await faults.end()
        await asyncio.sleep(LONG_ENOUGH_S + 30)
        await check_all_is_well(cluster)
        await cluster.stop_all()

    run_simulation(scenario())
