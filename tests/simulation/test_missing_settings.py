"""Logs whose topic the store does not know yet: no setting may be guessed to the harm of their records (R44)."""

import asyncio

import pytest

from tests.simulation.scenario import create_topic, produce, read_all, replica, simulate, stored, wait_for
from tests.simulation.test_lost_store import lose_store
from tidelog.server.broker import CannotStart
from tidelog.simulation.cluster import SimulatedCluster

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
