"""A power cut that raises the leader epoch of an unsynced batch and tears what was written of that epoch (R3, R42)."""

import asyncio

import pytest

from tests.simulation.scenario import (
    all_well_again,
    create_topic,
    in_sync,
    produce,
    read_all,
    replica,
    simulate,
    wait_for,
)
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.storage.log import Log

EPOCH_POSITION = 12
DIRECTORY = "/logs/orders-0"


def raise_last_epoch(disk: MemoryDisk, log: Log, epoch: int) -> None:
    *_, place = log.segments[-1].batch_places()
    path = log.segments[-1].path(".log")
    contents = bytearray(disk.read_file(path))
    contents[place.position + EPOCH_POSITION : place.position + EPOCH_POSITION + 4] = epoch.to_bytes(4, "big")
    disk.open(path, "create").append(bytes(contents))


def tear_unsynced_epochs(disk: MemoryDisk) -> None:
    for entry in disk.list_directory(DIRECTORY):
        path = f"{DIRECTORY}/{entry.name}"
        if "epoch" in entry.name and disk.unsynced_bytes(path):
            contents = disk.read_file(path)
            disk.open(path, "create").append(contents[: len(contents) // 2])


@pytest.mark.parametrize("raised", [7, 2**30])
def test_a_replica_with_a_raised_epoch_neither_wins_an_election_nor_stays_away(raised: int) -> None:
    """All brokers lose power. One of the two that have the last record has it in an epoch that never was."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3], min_insync_replicas=2)
        await produce(cluster, b"a")
        await asyncio.sleep(1)
        for broker_id in (1, 2, 3):
            await replica(cluster, broker_id).log.flush()
        cluster.kill(1)
        await wait_for(lambda: in_sync(cluster) == {2, 3})
        await produce(cluster, b"b")
        log = replica(cluster, 3).log
        for broker_id in (2, 3):
            cluster.kill(broker_id)
        raise_last_epoch(cluster.machines[3].disk, log, raised)
        tear_unsynced_epochs(cluster.machines[3].disk)
        await all_well_again(cluster)
        assert await read_all(cluster) == [b"a", b"b"]
        assert replica(cluster, 3).log.leader_epochs.latest_epoch < raised

    simulate(scenario)
