"""Replicas move between the disks of a broker under load, while kill -9 strikes the broker at random moments (R30)."""

import asyncio
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.processes.cluster import BROKERS, Cluster, wait_for
from tests.processes.coordination import Coordination
from tests.processes.history import FollowingReader, IdempotentWriter, check, read_all
from tests.processes.load import PARTITIONS, TOPIC, assert_no_surprises, create_topic
from tests.processes.replicas import assert_audit_clean, committed
from tests.processes.two_disks import TwoDisks
from tidelog.client.network.connection import ClientConnection
from tidelog.errors import NO_ERROR
from tidelog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tidelog.runtime.disk import SystemDisk
from tidelog.runtime.socket_network import SocketNetwork
from tidelog.storage.checkpoints import HIGH_WATERMARKS, read_offsets
from tidelog.types import TopicPartition
from tools.ports import free_ports

BULK = "bulk"
"""Enough bytes for a blow to strike while they are copied."""
BULK_RECORDS = 3_000
RATE = 1_000_000
"""Bytes per second of a move, so that it takes some."""
VICTIMS = {"sqlite": (1, 2), "zookeeper": (1,)}
"""A move does the same with both stores, so one of them has fewer."""
KILLS_OF_A_MOVE = 3
LATEST_KILL_S = 1.2
PACE_S = 0.02
TIMEOUT_S = 120.0
MAX_FRAME_BYTES = 1_000_000
SEED = 15

SETTINGS = {
    "replica.alter.log.dirs.io.max.bytes.per.second": str(RATE),
    "alter.log.dirs.replication.quota.window.num": "2",
    "log.segment.delete.delay.ms": "500",
}
MOVED = [TopicPartition(TOPIC, each) for each in range(PARTITIONS)] + [TopicPartition(BULK, 0)]


@pytest.fixture
def three(coordination: Coordination, tmp_path: Path) -> Iterator[TwoDisks]:
    found = TwoDisks(tmp_path, coordination, free_ports(2 * len(BROKERS)), SETTINGS)
    try:
        found.start()
        yield found
    finally:
        found.close()


def write_bulk(cluster: Cluster) -> None:
    create_topic(cluster, BULK, 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
    noise = random.Random(1).randbytes(1000)
    for number in range(BULK_RECORDS):
        producer.produce(BULK, b"%d:" % number + noise, partition=0)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


def move(cluster: Cluster, broker_id: int, target: Path) -> None:
    """All replicas of the broker, to one of its disks."""
    topics = [
        AlterReplicaLogDirTopic(name=TOPIC, partitions=list(range(PARTITIONS))),
        AlterReplicaLogDirTopic(name=BULK, partitions=[0]),
    ]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(target), topics=topics)])

    async def ask() -> AlterReplicaLogDirsResponse:
        host, _, port = cluster.address(broker_id).partition(":")
        connection = await ClientConnection.open(SocketNetwork(MAX_FRAME_BYTES), host, int(port), "disk-moves")
        try:
            return await connection.ask(request, AlterReplicaLogDirsResponse, timeout_s=30.0)
        finally:
            connection.close()

    errors = {each.error_code for result in asyncio.run(ask()).results for each in result.partitions}
    assert errors == {NO_ERROR}


def futures(cluster: TwoDisks, broker_id: int) -> list[str]:
    return leftovers(cluster, broker_id, "*-future")


def leftovers(cluster: TwoDisks, broker_id: int, pattern: str) -> list[str]:
    return [found.name for disk in cluster.disks(broker_id) for found in disk.glob(pattern)]


def _is_moving(cluster: TwoDisks, broker_id: int) -> bool:
    return bool(futures(cluster, broker_id))


def is_on(disk: Path) -> bool:
    return all((disk / str(each)).is_dir() for each in MOVED)


def assert_identical(cluster: TwoDisks, writer: IdempotentWriter) -> None:
    for each in MOVED:
        places = [disk for broker_id in BROKERS for disk in cluster.disks(broker_id) if (disk / str(each)).exists()]
        assert len(places) == len(BROKERS), f"{each} is in {places}"
        ends = {read_offsets(SystemDisk(), str(disk / HIGH_WATERMARKS))[each] for disk in places}
        end = BULK_RECORDS if each.topic == BULK else len(writer.sent[each.partition])
        assert max(ends) == end
        first, *others = (committed(disk / str(each), end) for disk in places)
        assert all(other == first for other in others), f"replicas of {each} differ"


def test_replicas_move_between_disks_while_their_broker_is_killed(three: TwoDisks) -> None:
    chance = random.Random(SEED)
    create_topic(three)
    write_bulk(three)
    struck_half_way = 0
    with (
        FollowingReader(three.bootstrap, TOPIC, PARTITIONS) as reader,
        IdempotentWriter(three.bootstrap, TOPIC, PARTITIONS, pace_s=PACE_S) as writer,
    ):
        for victim in VICTIMS[three.coordination.name]:
            writer.wait_for_more()
            target = three.disks(victim)[1]
            move(three, victim, target)
            for kill in range(KILLS_OF_A_MOVE):
                if kill == 0:  # while it copies; the others strike at any time
                    wait_for(partial(_is_moving, three, victim), lambda: "no move begins", TIMEOUT_S)
                else:
                    time.sleep(chance.uniform(0, LATEST_KILL_S))
                three.brokers[victim].kill()
                struck_half_way += bool(futures(three, victim))
                writer.wait_for_more()
                three.start([victim])
            wait_for(
                lambda victim=victim, target=target: is_on(target) and not futures(three, victim),  # type: ignore[misc]
                lambda victim=victim: f"the move of broker {victim} does not end: {leftovers(three, victim, '*')}",  # type: ignore[misc]
                TIMEOUT_S,
            )
        writer.wait_for_more()
    assert struck_half_way, "every move had ended before its blow"
    for each in MOVED:
        three.wait_for_state(*each, lambda found: found.in_sync == frozenset(BROKERS))
    check(writer, read_all(three.bootstrap, TOPIC, PARTITIONS), reader)
    for broker_id in BROKERS:
        wait_for(
            lambda broker_id=broker_id: not leftovers(three, broker_id, "*-delete"),  # type: ignore[misc]
            lambda broker_id=broker_id: leftovers(three, broker_id, "*-delete"),  # type: ignore[misc]
        )
        assert futures(three, broker_id) == leftovers(three, broker_id, "*-stray") == []
    three.stop()
    assert_identical(three, writer)
    assert_audit_clean(disk for broker_id in BROKERS for disk in three.disks(broker_id))
    assert_no_surprises(three)
