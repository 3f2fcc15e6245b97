import asyncio

import pytest

from tests.storage.logs import append, manager_on
from tidelog.config.topic import TopicSettings
from tidelog.errors import KafkaStorageError, NotLeaderOrFollower, UnknownTopicOrPartition
from tidelog.replication.leader import PartitionLeader
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.runtime.deadlines import Deadlines
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.runtime.purgatory import Purgatory
from tidelog.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
SETTINGS = TopicSettings()
FIRST_ID, SECOND_ID = b"1" * 16, b"2" * 16


def leader(epoch: int = 0) -> PartitionLeader:
    return PartitionLeader(1, epoch, frozenset({1}))


async def replicas_on(disk: MemoryDisk) -> ReplicaManager:
    loop = asyncio.get_running_loop()
    return ReplicaManager(await manager_on(disk), Purgatory(loop, Deadlines(loop)))


def test_a_partition_is_online_offline_or_not_here() -> None:
    async def run() -> None:
        replicas = await replicas_on(MemoryDisk())
        with pytest.raises(UnknownTopicOrPartition):
            replicas.get("orders", 0)
        replicas.make_leader(ORDERS, FIRST_ID, leader(), SETTINGS)
        assert replicas.get("orders", 0).topic_partition == ORDERS
        replicas.take_offline({ORDERS})
        with pytest.raises(KafkaStorageError):
            replicas.get("orders", 0)
        replicas.make_leader(ORDERS, FIRST_ID, leader(1), SETTINGS)
        assert replicas.offline_partitions == {ORDERS}

    asyncio.run(run())


def test_a_new_epoch_is_recorded_before_the_first_append() -> None:
    async def run() -> None:
        replicas = await replicas_on(MemoryDisk())
        replicas.make_leader(ORDERS, FIRST_ID, leader(4), SETTINGS)
        log = replicas.get("orders", 0).log
        assert list(log.leader_epochs.starts) == [(4, 0)]
        append(log, b"x", leader_epoch=4)
        replicas.make_leader(ORDERS, FIRST_ID, leader(6), SETTINGS)
        assert list(log.leader_epochs.starts) == [(4, 0), (6, 1)]

    asyncio.run(run())


def test_a_topic_made_again_does_not_inherit_the_records_of_the_earlier_one() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        replicas = await replicas_on(disk)
        replicas.make_leader(ORDERS, FIRST_ID, leader(), SETTINGS)
        append(replicas.get("orders", 0).log, b"old", leader_epoch=0)
        disk.crash(lambda path, unsynced_bytes: unsynced_bytes)
        again = await replicas_on(disk)
        again.make_leader(ORDERS, SECOND_ID, leader(), SETTINGS)
        log = again.get("orders", 0).log
        assert (log.log_end_offset, log.topic_id) == (0, SECOND_ID)

    asyncio.run(run())


def test_a_deleted_partition_has_no_leader_for_those_who_still_hold_it() -> None:
    async def run() -> None:
        replicas = await replicas_on(MemoryDisk())
        replicas.make_leader(ORDERS, FIRST_ID, leader(), SETTINGS)
        partition = replicas.get("orders", 0)
        replicas.delete(ORDERS)
        with pytest.raises(NotLeaderOrFollower):
            partition.require_leader()
        with pytest.raises(UnknownTopicOrPartition):
            replicas.get("orders", 0)

    asyncio.run(run())
