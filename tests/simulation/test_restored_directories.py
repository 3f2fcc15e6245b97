"""One broker's log directory is replaced by an older copy of it: what was acknowledged is with the others (R42, I4)."""

import asyncio

import pytest

from tests.simulation.scenario import (
    all_well_again,
    assert_replicas_identical,
    create_topic,
    produce,
    read_all,
    simulate,
)
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.simulation.cluster import LOG_DIRECTORIES, SimulatedCluster
from tidelog.types import BrokerId

ROOT = LOG_DIRECTORIES[0]
VALUES = [b"%d" % number for number in range(15)]
WATCHER = 4
"""A broker that hosts nothing and is controller."""


def copy_of(disk: MemoryDisk, path: str = ROOT) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for entry in disk.list_directory(path):
        name = f"{path}/{entry.name}"
        files.update(copy_of(disk, name) if entry.is_directory else {name: disk.read_file(name)})
    return files


def put_back(disk: MemoryDisk, files: dict[str, bytes]) -> None:
    for entry in disk.list_directory(ROOT):
        disk.remove_tree(f"{ROOT}/{entry.name}")
    for name, data in files.items():
        disk.make_directory(name.rpartition("/")[0])
        disk.write_file_atomically(name, data)


async def end(cluster: SimulatedCluster, broker_id: BrokerId, *, is_clean: bool) -> None:
    if is_clean:
        await cluster.stop(broker_id)
    else:
        cluster.kill(broker_id)


@pytest.mark.parametrize("is_end_clean", [True, False])
@pytest.mark.parametrize("is_copy_clean", [True, False])
@pytest.mark.parametrize("stopped", [(1,), (3, 2, 1)])
def test_who_comes_back_with_an_older_copy_of_its_logs_does_not_lead_with_it(
    stopped: tuple[BrokerId, ...], is_copy_clean: bool, is_end_clean: bool
) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3], min_insync_replicas=2)
        for value in VALUES[:5]:
            await produce(cluster, value)
        await asyncio.sleep(1)
        await end(cluster, 1, is_clean=is_copy_clean)
        files = copy_of(cluster.machines[1].disk)
        await cluster.start(1)
        await all_well_again(cluster)
        for value in VALUES[5:]:
            await produce(cluster, value)
        await asyncio.sleep(1)
        for each in stopped:
            await end(cluster, each, is_clean=is_end_clean)
        put_back(cluster.machines[1].disk, files)
        for each in reversed(stopped):
            await cluster.start(each)
            await asyncio.sleep(1)
        await all_well_again(cluster)
        assert await read_all(cluster) == VALUES, "acknowledged records are lost"
        assert_replicas_identical(cluster)

    simulate(story, 4, controller=WATCHER)
