"""A broker loses the log of one partition while it is down: what was acknowledged is with the others (R42, I4)."""

import asyncio
from collections.abc import Callable

import pytest

from tests.simulation.scenario import (
    TOPIC,
    all_well_again,
    assert_replicas_identical,
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

PATH = f"{LOG_DIRECTORIES[0]}/{TOPIC}-0"
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


def lose_the_oldest_segment(disk: MemoryDisk, path: str) -> None:
    _lose_segment(disk, path, 0)


def lose_a_segment_in_the_middle(disk: MemoryDisk, path: str) -> None:
    _lose_segment(disk, path, 2)


def lose_the_oldest_and_a_later_segment(disk: MemoryDisk, path: str) -> None:
    _lose_segment(disk, path, 2)
    _lose_segment(disk, path, 0)


def _lose_segment(disk: MemoryDisk, path: str, number: int) -> None:
    names = sorted(entry.name for entry in disk.list_directory(path) if entry.name.endswith(".log"))
    assert len(names) >= 4, "the log is in several segments"
    disk.remove(f"{path}/{names[number]}")


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


async def write_to_three_replicas(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2, 3], min_insync_replicas=2)
    for value in VALUES:
        await produce(cluster, value)
    await asyncio.sleep(1)


@pytest.mark.parametrize("lose", LOSSES)
def test_who_lost_a_log_after_a_clean_stop_does_not_lead_before_the_others(
    lose: Callable[[MemoryDisk, str], None],
) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await write_to_three_replicas(cluster)
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


SEGMENT_LOSSES = [lose_the_oldest_segment, lose_a_segment_in_the_middle, lose_the_oldest_and_a_later_segment]


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("lose", SEGMENT_LOSSES)
def test_who_lost_segments_after_a_clean_stop_asks_the_others_and_copies_the_log_again(
    lose: Callable[[MemoryDisk, str], None], is_killed: bool
) -> None:
    """Also if the broker is killed before anybody has answered: what it noticed is on disk."""

    async def story(cluster: SimulatedCluster) -> None:
        await write_to_three_replicas(cluster)
        for each in (3, 2, 1):
            await cluster.stop(each)
        lose(cluster.machines[1].disk, PATH)
        if is_killed:
            await cluster.start(1)
            await asyncio.sleep(1)
            cluster.kill(1)
        for each in (1, 2, 3):
            await cluster.start(each)
            await asyncio.sleep(1)
        await all_well_again(cluster)
        assert stored(cluster).leader != 1
        assert await read_all(cluster) == VALUES, "acknowledged records are lost"
        assert_replicas_identical(cluster)

    simulate(story, 4, controller=WATCHER, log_segment_bytes=250)


@pytest.mark.parametrize("lose", SEGMENT_LOSSES)
def test_who_lost_segments_copies_the_log_again_while_others_lead(lose: Callable[[MemoryDisk, str], None]) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await write_to_three_replicas(cluster)
        await cluster.stop(1)
        lose(cluster.machines[1].disk, PATH)
        await cluster.start(1)
        await all_well_again(cluster)
        assert await read_all(cluster) == VALUES, "acknowledged records are lost"
        assert_replicas_identical(cluster)

    simulate(story, 4, controller=WATCHER, log_segment_bytes=250)


@pytest.mark.parametrize("lose", SEGMENT_LOSSES)
def test_the_only_replica_leads_with_what_is_left_of_its_log(lose: Callable[[MemoryDisk, str], None]) -> None:
    """And goes on after the next stop, clean or not: others may copy the log with its gap."""

    async def story(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1])
        for value in VALUES:
            await produce(cluster, value)
        await asyncio.sleep(1)
        await cluster.stop(1)
        lose(cluster.machines[1].disk, PATH)
        await cluster.start(1)
        await all_well_again(cluster)
        left = await read_all(cluster)
        assert left[-1] == VALUES[-1]
        assert 0 < len(left) < len(VALUES)
        assert not cluster.machines[1].disk.exists(f"{PATH}/missing-segments")
        await produce(cluster, b"more")
        cluster.kill(1)
        await cluster.start(1)
        await all_well_again(cluster)
        assert await read_all(cluster) == [*left, b"more"]
        await cluster.stop(1)
        await cluster.start(1)
        await all_well_again(cluster)
        assert await read_all(cluster) == [*left, b"more"]

    simulate(story, 4, controller=WATCHER, log_segment_bytes=250)
