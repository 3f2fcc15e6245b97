"""Every partition moves from broker to broker under load, while kill -9 strikes sources, targets and controllers."""

import asyncio
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.processes.cluster import Cluster, wait_for
from tests.processes.coordination import Coordination
from tests.processes.history import FollowingReader, IdempotentWriter, check, read_all
from tests.processes.load import assert_no_surprises
from tests.processes.replicas import assert_audit_clean, assert_partition_identical
from tidelog.client.admin.reassignment_admin import ReassignmentAdmin
from tidelog.client.network.bootstrap import parse_bootstrap
from tidelog.client.routing.cluster import Cluster as ClusterClient
from tidelog.cluster import znodes
from tidelog.runtime.disk import SystemDisk
from tidelog.runtime.randomness import SystemRandomness
from tidelog.runtime.socket_network import SocketNetwork
from tidelog.storage.checkpoints import HIGH_WATERMARKS, read_offsets
from tidelog.types import TopicPartition
from tools.ports import free_ports

BROKERS = (1, 2, 3, 4, 5)
REPLICATION_FACTOR = 3
PARTITIONS = 3
TOPIC = "tides"
BULK = "bulk"
"""Enough bytes for a blow to strike while they are copied."""
BULK_RECORDS = 3_000
PACE_S = 0.02
BLOWS = {
    "sqlite": ("source", "target", "controller", "target", "source"),
    "zookeeper": ("source", "target", "controller"),
}
"""A move does the same with both stores, so one of them has fewer."""
TIMEOUT_S = 120.0
MAX_FRAME_BYTES = 1_000_000

Targets = Mapping[TopicPartition, tuple[int, ...]]


@pytest.fixture
def five(coordination: Coordination, tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path, coordination, free_ports(2 * len(BROKERS)), BROKERS)
    try:
        found.start()
        yield found
    finally:
        found.close()


def replicas_in_round(number: int) -> Targets:
    """Each round moves one replica of every partition, the preferred leader of some, to the next broker."""
    return {
        TopicPartition(topic, partition): tuple(
            BROKERS[(number + partition + each) % len(BROKERS)] for each in range(REPLICATION_FACTOR)
        )
        for topic in (TOPIC, BULK)
        for partition in range(PARTITIONS)
    }


def create_topics(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    first = replicas_in_round(0)
    topics = [
        NewTopic(
            topic,
            PARTITIONS,
            replica_assignment=[list(first[TopicPartition(topic, each)]) for each in range(PARTITIONS)],
        )
        for topic in (TOPIC, BULK)
    ]
    for future in admin.create_topics(topics).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
    noise = random.Random(1).randbytes(1000)
    for number in range(BULK_RECORDS * PARTITIONS):
        producer.produce(BULK, b"%d:" % number + noise, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


def move(cluster: Cluster, targets: Targets) -> None:
    async def request() -> None:
        bootstrap = parse_bootstrap(cluster.bootstrap)
        async with ClusterClient(SocketNetwork(MAX_FRAME_BYTES), bootstrap, SystemRandomness()) as client:
            assert await ReassignmentAdmin(client).alter(targets) == {}

    asyncio.run(request())


def is_where(cluster: Cluster, targets: Targets) -> bool:
    """All partitions are on their targets, in sync, and no log waits for its deletion."""
    for topic in {each.topic for each in targets}:
        found = cluster.coordination.read(znodes.topic_path(topic))
        assert found is not None
        wanted = {str(each.partition): list(target) for each, target in targets.items() if each.topic == topic}
        if found["partitions"] != wanted or found.get("adding_replicas") or found.get("removing_replicas"):
            return False
    return all(cluster.state(*each).in_sync == frozenset(target) for each, target in targets.items())


def is_moving(cluster: Cluster) -> bool:
    found = cluster.coordination.read(znodes.topic_path(BULK))
    assert found is not None
    return bool(found.get("adding_replicas"))


def victim_of(cluster: Cluster, blow: str, number: int) -> int:
    """Of the move from the round before to this one."""
    first = TopicPartition(BULK, 0)
    before, after = replicas_in_round(number - 1)[first], replicas_in_round(number)[first]
    if blow == "controller":
        assert cluster.controller is not None
        return cluster.controller
    (found,) = set(before) - set(after) if blow == "source" else set(after) - set(before)
    return found


def test_all_partitions_move_while_brokers_are_killed(five: Cluster) -> None:
    create_topics(five)
    struck_half_way = []
    with (
        FollowingReader(five.bootstrap, TOPIC, PARTITIONS) as reader,
        IdempotentWriter(five.bootstrap, TOPIC, PARTITIONS, pace_s=PACE_S) as writer,
    ):
        for number, blow in enumerate(BLOWS[five.coordination.name], 1):
            writer.wait_for_more()
            move(five, replicas_in_round(number))
            victim = victim_of(five, blow, number)
            five.brokers[victim].kill()
            if is_moving(five):
                struck_half_way.append(blow)
            writer.wait_for_more()
            five.start([victim])
            targets = replicas_in_round(number)
            wait_for(
                lambda targets=targets: is_where(five, targets),  # type: ignore[misc]
                lambda number=number, blow=blow: f"round {number} does not end after the {blow} was killed",  # type: ignore[misc]
                TIMEOUT_S,
            )
        writer.wait_for_more()
    assert struck_half_way, "every move had ended before its blow"
    check(writer, read_all(five.bootstrap, TOPIC, PARTITIONS), reader)
    wait_for(lambda: not strays(five, targets), lambda: f"logs are left over: {strays(five, targets)}")
    five.stop()
    assert_identical(five, targets, writer)
    assert_audit_clean(broker.log_dir for broker in five.brokers.values())
    assert_no_surprises(five)


def strays(cluster: Cluster, targets: Targets) -> list[Path]:
    """Directories of replicas on brokers that they have left."""
    return [
        cluster.brokers[broker_id].log_dir / str(each)
        for each, target in targets.items()
        for broker_id in BROKERS
        if broker_id not in target and (cluster.brokers[broker_id].log_dir / str(each)).exists()
    ]


def assert_identical(cluster: Cluster, targets: Targets, writer: IdempotentWriter) -> None:
    for topic_partition, target in targets.items():
        log_dirs = [cluster.brokers[broker_id].log_dir for broker_id in target]
        ends = [read_offsets(SystemDisk(), str(each / HIGH_WATERMARKS))[topic_partition] for each in log_dirs]
        assert_partition_identical(topic_partition, max(ends), log_dirs)
        is_bulk = topic_partition.topic == BULK
        assert max(ends) == (BULK_RECORDS if is_bulk else len(writer.sent[topic_partition.partition]))
