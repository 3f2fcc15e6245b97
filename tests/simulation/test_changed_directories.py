"""A broker that comes back with fewer log directories than it had: it has lost a disk, however cleanly it stopped."""

import asyncio
from functools import partial

import pytest

from tests.simulation.scenario import create_topic, is_leading, produce, read_all, replica, simulate, stored, wait_for
from tidelog.server.broker import CannotStart
from tidelog.simulation.cluster import LOG_DIRECTORIES, SimulatedCluster
from tidelog.store.memory import MemoryStoreState

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


def test_a_lost_store_is_not_rebuilt_without_a_directory_that_was_there() -> None:
    """The two others lag behind: only the directory that is left out has everything that was acknowledged."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3], min_insync_replicas=1)
        await asyncio.sleep(2)
        for each in (2, 3):
            cluster.kill(each)
        await wait_for(lambda: stored(cluster).in_sync_replicas == (1,), timeout_s=60)
        for value in VALUES:
            await produce(cluster, value)
        await asyncio.sleep(2)
        dead = replica(cluster, 1).log.directory.path
        cluster.kill(1)
        await asyncio.sleep(1)
        left = tuple(path for path in LOG_DIRECTORIES if path != dead)
        cluster.store_state = MemoryStoreState()
        for _ in range(2):  # the first attempt leaves everything as it is
            starts = (cluster.start(1, log_dirs=left), cluster.start(2), cluster.start(3))
            results = await asyncio.gather(*starts, return_exceptions=True)
            assert any("a log directory that it had is not in log.dirs any more" in str(each) for each in results)
            assert all(isinstance(each, CannotStart) for each in results), results
            await asyncio.sleep(10)
        await cluster.start_all()
        await wait_for(lambda: len(stored(cluster).in_sync_replicas) == 3)
        assert await read_all(cluster) == VALUES

    simulate(scenario, log_dirs=LOG_DIRECTORIES, takeover_wait_ms=3000)


def test_a_lost_store_is_rebuilt_with_a_directory_that_was_added_or_left_out_long_ago() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3], min_insync_replicas=2)
        for value in VALUES:
            await produce(cluster, value)
        await asyncio.sleep(2)
        unused = next(path for path in LOG_DIRECTORIES if path != replica(cluster, 1).log.directory.path)
        await cluster.stop(1)
        left = tuple(path for path in LOG_DIRECTORIES if path != unused)
        await cluster.start(1, log_dirs=left)
        await wait_for(lambda: len(stored(cluster).in_sync_replicas) == 3)
        await asyncio.sleep(2)
        for each in (1, 2, 3):
            cluster.kill(each)
        await asyncio.sleep(1)
        cluster.store_state = MemoryStoreState()
        await asyncio.gather(cluster.start(1, log_dirs=left), cluster.start(2), cluster.start(3))
        await wait_for(lambda: len(stored(cluster).in_sync_replicas) == 3)
        assert await read_all(cluster) == VALUES

    simulate(scenario, log_dirs=LOG_DIRECTORIES, takeover_wait_ms=3000)
