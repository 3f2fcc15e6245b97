"""Brokers that run out of descriptors: what passes is tried again, and nothing is lost or written twice (R5, R6)."""

import asyncio
import errno

from tests.simulation.scenario import (
    TOPIC,
    ask,
    committed_bytes,
    create_topic,
    in_sync,
    leading,
    produce,
    produce_to,
    replica,
    simulate,
    wait_for,
)
from tidelog.errors import KafkaStorageError
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tidelog.protocol.record_batch import split_batches
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.types import BrokerId, TopicPartition

TAKES_A_DESCRIPTOR = ("open", "read_file", "write_file_atomically", "list_directory", "sync_directory")
LARGE = bytes(100_000)


def run_short(cluster: SimulatedCluster, broker_id: BrokerId, path: str = "/logs") -> None:
    cluster.machines[broker_id].disk.inject(errno.EMFILE, path, TAKES_A_DESCRIPTOR)


def recover(cluster: SimulatedCluster, broker_id: BrokerId) -> None:
    cluster.machines[broker_id].disk.faults.clear()


def are_equal(cluster: SimulatedCluster) -> bool:
    return len({committed_bytes(replica(cluster, each).log) for each in (1, 2, 3)}) == 1


async def a_follower_short_of_descriptors(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2, 3], min_insync_replicas=2, segment_bytes=1048576)
    run_short(cluster, 3)
    for _ in range(15):
        await produce(cluster, LARGE, acks=1)
    failed = cluster.broker(3).fetchers.failed_partitions
    await wait_for(lambda: TopicPartition(TOPIC, 0) in failed)
    assert "short of descriptors" in failed[TopicPartition(TOPIC, 0)]
    described = await ask(cluster, 3, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    assert "short of descriptors" in described.results[0].topics[0].partitions[0].fetch_failure
    await wait_for(lambda: in_sync(cluster) == {1, 2}, 60)
    await asyncio.sleep(60)
    assert cluster.machines[3].disk.faults, "it has waited all the time"
    recover(cluster, 3)
    await wait_for(lambda: in_sync(cluster) == {1, 2, 3}, 5)
    assert not failed
    assert are_equal(cluster)


def test_a_follower_goes_on_where_it_was_when_there_are_descriptors_again() -> None:
    simulate(a_follower_short_of_descriptors)


async def a_follower_that_cannot_flush(cluster: SimulatedCluster) -> None:
    """What it asks for next would show the leader that the disk has what came before."""
    await create_topic(cluster, [1, 2, 3], min_insync_replicas=3, flush_messages=1)
    await produce(cluster, b"a")
    run_short(cluster, 3)
    response = asyncio.ensure_future(produce(cluster, b"b"))
    await asyncio.sleep(5)
    assert replica(cluster, 3).log.log_end_offset == 2
    assert replica(cluster, 1).log.high_watermark == 1
    assert cluster.broker(3).fetchers.failed_partitions
    recover(cluster, 3)
    await wait_for(lambda: replica(cluster, 1).log.high_watermark == 2, 5)
    assert replica(cluster, 3).log.recovery_point == 2
    await response
    assert not cluster.broker(3).fetchers.failed_partitions


def test_a_follower_that_cannot_flush_does_not_say_that_it_has() -> None:
    simulate(a_follower_that_cannot_flush)


async def a_leader_short_of_descriptors(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2, 3], min_insync_replicas=2, segment_bytes=1048576)
    for _ in range(10):
        await produce(cluster, LARGE)
    log = replica(cluster, 1).log
    log.release_resources()
    run_short(cluster, 1)
    for _ in range(3):
        response = await produce_to(cluster, 1, LARGE)
        assert (response.error_code, KafkaStorageError.retriable) == (KafkaStorageError.code, True)
    assert log.log_end_offset == 10
    recover(cluster, 1)
    response = await produce_to(cluster, 1, LARGE)
    assert (response.error_code, response.base_offset) == (0, 10)
    assert leading(cluster, 1) is not None
    await wait_for(lambda: are_equal(cluster))


def test_a_leader_refuses_for_the_moment_and_goes_on() -> None:
    simulate(a_leader_short_of_descriptors)


async def a_new_topic_on_a_broker_short_of_descriptors(cluster: SimulatedCluster) -> None:
    run_short(cluster, 2)
    topic = CreatableTopic(name=TOPIC, num_partitions=3, replication_factor=3)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    await ask(cluster, 1, request, CreateTopicsResponse)
    await asyncio.sleep(60)
    assert not cluster.broker(2).replicas.offline_partitions
    recover(cluster, 2)
    for partition in range(3):
        await wait_for(lambda partition=partition: in_sync(cluster, TOPIC, partition) == {1, 2, 3}, 60)  # type: ignore[misc]


def test_a_topic_that_could_not_be_created_somewhere_is_created_there_later() -> None:
    simulate(a_new_topic_on_a_broker_short_of_descriptors)


async def a_stop_short_of_descriptors(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1], min_insync_replicas=1)
    for _ in range(5):
        await produce(cluster, b"a")
    log = replica(cluster, 1).log
    await log.flush()
    for _ in range(5):
        await produce(cluster, b"b")
    assert (log.recovery_point, log.log_end_offset) == (5, 10)
    run_short(cluster, 1, "/logs/orders-0")
    await cluster.stop(1)
    recover(cluster, 1)
    await cluster.start(1)
    await wait_for(lambda: leading(cluster, 1) is not None)
    await produce(cluster, b"c")
    segment = replica(cluster, 1).log.active_segment
    data = segment.file.read(0, segment.size_bytes)
    assert [header.base_offset for header, _ in split_batches(data)] == list(range(11))


def test_a_log_that_could_not_be_closed_is_checked_at_the_next_start() -> None:
    simulate(a_stop_short_of_descriptors, 2, controller=2)
