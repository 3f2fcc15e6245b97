"""Questions for log ends that a broker cannot answer in full: they must not pass for answers, nor hang (R42)."""

import asyncio
import errno

import pytest

from tests.simulation.scenario import all_well_again, create_topic, produce, read_all, simulate, stored, wait_for
from tidelog.simulation.cluster import SimulatedCluster

VALUES = [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EINTR])
def test_a_broker_that_cannot_read_its_free_space_reports_where_its_logs_end(number: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3], min_insync_replicas=2)
        for value in VALUES:
            await produce(cluster, value)
        await asyncio.sleep(1)
        cluster.cut_power(1)
        cluster.kill(2)
        cluster.kill(3)
        for each in (2, 3):
            cluster.machines[each].disk.inject(number, "/logs", ("space",))
        await asyncio.sleep(1)
        await asyncio.gather(*(cluster.start(each) for each in (1, 2, 3)))
        await asyncio.sleep(1)
        for each in (2, 3):
            cluster.machines[each].disk.faults.clear()
        await wait_for(lambda: stored(cluster).leader != -1)
        await all_well_again(cluster)
        assert await read_all(cluster) == VALUES

    simulate(scenario)
