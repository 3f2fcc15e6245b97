"""Logs whose topic the store does not know yet: no setting may be guessed to the harm of their records (R44)."""

import asyncio

import pytest

from tests.simulation.scenario import ask, create_topic, produce, read_all, replica, simulate, stored, wait_for
from tests.simulation.test_lost_store import lose_store
from tidelog.cluster.znodes import state_path
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.server.broker import CannotStart
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.types import TopicPartition

VALUES = [b"%d" % number for number in range(20)]
IMPATIENT = {"log_retention_ms": 1000, "log_retention_check_interval_ms": 500, "takeover_wait_ms": 10_000}


def test_a_broker_that_waits_for_a_takeover_deletes_nothing() -> None:
    """Its own settings say that records may go after a second, those of the topic that they are kept for ever."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2], retention_ms=-1)
        for value in VALUES:
            await produce(cluster, value)
        await asyncio.sleep(3)
        await cluster.stop_all()
        lose_store(cluster)
        with pytest.raises(CannotStart, match="broker 2 of this cluster is not running"):
            await cluster.start(1)
        await asyncio.gather(cluster.start(1), cluster.start(2))
        await wait_for(lambda: stored(cluster).leader != -1)
        await asyncio.sleep(3)
        assert replica(cluster, 1).log.log_start_offset == 0
        assert await read_all(cluster) == VALUES

    simulate(scenario, brokers=2, **IMPATIENT)


def test_a_broker_that_runs_while_the_store_is_lost_keeps_the_settings_of_its_topics() -> None:
    """While nobody has rebuilt the store, and when it is rebuilt."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2], retention_ms=-1)
        for value in VALUES:
            await produce(cluster, value)
        await asyncio.sleep(3)
        cluster.kill(2)
        await asyncio.sleep(2)
        lose_store(cluster)
        await asyncio.sleep(5)
        log = cluster.broker(1).replicas.log_of(TopicPartition("orders", 0))
        assert log is not None
        assert log.settings.retention_ms == -1
        await cluster.start(2)
        await wait_for(lambda: stored(cluster).leader != -1)
        await asyncio.sleep(3)
        assert [replica(cluster, each).log.settings.retention_ms for each in (1, 2)] == [-1, -1]
        assert await read_all(cluster) == VALUES

    simulate(scenario, brokers=2, min_insync_replicas=1, **IMPATIENT)


def test_brokers_that_run_take_the_settings_of_the_store_that_they_rebuilt() -> None:
    """The newest backup has none of the topic, as if that were a moment younger: it keeps everything."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2], retention_ms=777_000)
        await asyncio.sleep(3)
        cluster.kill(2)
        await asyncio.sleep(2)
        backup = cluster.broker(1)._backup
        assert backup.latest is not None
        backup.latest = backup.latest._replace(topic_configs={}, written_ms=backup.latest.written_ms + 1)
        lose_store(cluster)
        await asyncio.sleep(5)
        await cluster.start(2)
        await wait_for(lambda: state_path("orders", 0) in cluster.store_state.nodes)
        await asyncio.sleep(3)
        assert [replica(cluster, each).log.settings.retention_ms for each in (1, 2)] == [-1, -1]

    simulate(scenario, brokers=2, min_insync_replicas=1, **IMPATIENT)


def test_dynamic_settings_of_brokers_come_back_with_a_store_that_was_lost() -> None:
    """Records that are kept by a cluster-wide setting must not go because the store forgot it."""

    async def scenario(cluster: SimulatedCluster) -> None:
        keep_all = AlterableConfig(name="log.retention.ms", config_operation=0, value="-1")
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[keep_all])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        response = await ask(cluster, 1, request, IncrementalAlterConfigsResponse)
        assert [each.error_code for each in response.responses] == [0]
        await create_topic(cluster, [1, 2])
        for value in VALUES:
            await produce(cluster, value)
        await asyncio.sleep(3)
        for broker_id in (1, 2):
            cluster.kill(broker_id)
        await asyncio.sleep(2)
        lose_store(cluster)
        await asyncio.gather(cluster.start(1), cluster.start(2))
        await wait_for(lambda: state_path("orders", 0) in cluster.store_state.nodes)
        await asyncio.sleep(5)
        assert [replica(cluster, each).log.settings.retention_ms for each in (1, 2)] == [-1, -1]
        assert await read_all(cluster) == VALUES

    simulate(scenario, brokers=2, min_insync_replicas=1, **IMPATIENT)
