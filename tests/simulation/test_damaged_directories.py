"""A broker loses the log of one partition while it is down: what was acknowledged is with the others (R42, I4)."""

import asyncio
from collections.abc import Callable

import pytest

from tests.simulation.scenario import (
    TOPIC,
    all_well_again,
    create_topic,
    in_sync,
    is_leading,
    produce,
    read_all,
    simulate,
    stored,
    wait_for,
)
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.simulation.cluster import LOG_DIRECTORIES, SimulatedCluster

VALUES = [b"%d" % number for number in range(20)]
WATCHER = 4
"""A broker that hosts nothing and is controller."""


def lose_the_directory(disk: MemoryDisk, path: str) -> None:
    disk.remove_tree(path)


def lose_the_log_file(disk: MemoryDisk, path: str) -> None:
    disk.remove(f"{path}/{0:020d}.log")


def lose_the_end(disk: MemoryDisk, path: str) -> None:
    file = disk.open(f"{path}/{0:020d}.log", "update")
    file.truncate(file.size() // 2)
    file.close()


def lose_all_but_hidden_files(disk: MemoryDisk, path: str) -> None:
    """As `rm -rf logs/*` does: the marker of the clean stop stays."""
    remove_all(disk, path.rpartition("/")[0], kept=(".",))


def lose_all_but_the_identity(disk: MemoryDisk, path: str) -> None:
    remove_all(disk, path.rpartition("/")[0], kept=(".", "meta.properties"))


def remove_all(disk: MemoryDisk, path: str, kept: tuple[str, ...]) -> None:
    for entry in disk.list_directory(path):
        if not entry.name.startswith(kept):
            disk.remove_tree(f"{path}/{entry.name}")


LOSSES = [
    lose_the_directory,
    lose_the_log_file,
    lose_the_end,
    lose_all_but_hidden_files,
    lose_all_but_the_identity,
]


@pytest.mark.parametrize("lose", LOSSES)
def test_who_lost_a_log_after_a_clean_stop_does_not_lead_before_the_others(
    lose: Callable[[MemoryDisk, str], None],
) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3], min_insync_replicas=2)
        for value in VALUES:
            await produce(cluster, value)
        await asyncio.sleep(1)
        for each in (3, 2, 1):
            await cluster.stop(each)
        assert in_sync(cluster) == {1}
        disk = cluster.machines[1].disk
        lose(disk, f"{LOG_DIRECTORIES[0]}/{TOPIC}-0")
        for each in (1, 2, 3):
            await cluster.start(each)
            await asyncio.sleep(1)
        await wait_for(lambda: stored(cluster).leader != -1 and is_leading(cluster, stored(cluster).leader))
        await all_well_again(cluster)
        assert await read_all(cluster) == VALUES, "acknowledged records are lost"

    simulate(story, 4, controller=WATCHER)
