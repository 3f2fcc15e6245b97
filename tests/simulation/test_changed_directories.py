"""A broker that comes back with fewer log directories than it had: it has lost a disk, however cleanly it stopped."""

import asyncio
from functools import partial

import pytest

from tests.simulation.scenario import create_topic, is_leading, produce, read_all, replica, simulate, stored, wait_for
from tidelog.simulation.cluster import LOG_DIRECTORIES, SimulatedCluster

VALUES = [b"%d" % number for number in range(20)]


async def leave_out_the_directory_of_the_log(cluster: SimulatedCluster, *, is_clean: bool) -> None:
    """All stop. The disk of broker 1 that has the log is dead, so its operator takes it out of log.dirs."""
    await create_topic(cluster, [1, 2, 3], min_insync_replicas=2)
    for value in VALUES:
        await produce(cluster, value)
    await asyncio.sleep(1)
    dead = replica(cluster, 1).log.directory.path
    for each in (3, 2, 1):
        if is_clean:
            await cluster.stop(each)
        else:
            cluster.kill(each)
    await asyncio.sleep(1)
    left = tuple(path for path in LOG_DIRECTORIES if path != dead)
    await asyncio.gather(cluster.start(1, log_dirs=left), cluster.start(2), cluster.start(3))
    await wait_for(lambda: stored(cluster).leader != -1 and is_leading(cluster, stored(cluster).leader))
    await wait_for(lambda: len(stored(cluster).in_sync_replicas) == 3)
    found = await read_all(cluster)
    assert found == VALUES, f"acknowledged records are lost: {len(found)} are left"


@pytest.mark.parametrize("is_clean", [True, False])
def test_no_stop_vouches_for_a_directory_that_is_left_out(is_clean: bool) -> None:
    simulate(partial(leave_out_the_directory_of_the_log, is_clean=is_clean), log_dirs=LOG_DIRECTORIES)
