"""Followers of a leader whose log begins later than theirs, or in the middle of a batch (R4, R15, R29)."""

import pytest

from tests.simulation.broken_rules import (
    keeping_the_high_watermark_of_a_dropped_log,
    rejecting_batches_around_the_log_start,
)
from tests.simulation.scenario import (
    FINE_STEP_S,
    TOPIC,
    all_well_again,
    ask,
    create_topic,
    in_sync,
    is_leading,
    produce,
    produce_to,
    read_all,
    replica,
    simulate,
    wait_for,
)
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.simulation.cluster import SimulatedCluster


async def delete_records_before(cluster: SimulatedCluster, offset: int, leader: int) -> None:
    topic = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(partition_index=0, offset=offset)])
    response = await ask(cluster, leader, DeleteRecordsRequest(topics=[topic], timeout_ms=5000), DeleteRecordsResponse)
    assert response.topics[0].partitions[0].error_code == 0, response


# ---- KAFKA-6975


async def copy_a_log_that_starts_inside_a_batch(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2])
    await produce(cluster, b"a", b"b", b"c", b"d", b"e")
    cluster.kill(2)
    cluster.wipe(2)
    await wait_for(lambda: in_sync(cluster) == {1})
    await delete_records_before(cluster, 3, leader=1)
    await cluster.start(2)
    await wait_for(lambda: in_sync(cluster) == {1, 2}, 5.0)
    assert replica(cluster, 2).log.log_start_offset == 3
    cluster.kill(1)
    await wait_for(lambda: is_leading(cluster, 2))
    assert await read_all(cluster) == [b"d", b"e"]
    await produce(cluster, b"f")
    await all_well_again(cluster)
    assert await read_all(cluster) == [b"d", b"e", b"f"]


def test_an_empty_replica_copies_a_log_that_starts_in_the_middle_of_a_batch() -> None:
    """KAFKA-6975, R15"""
    simulate(copy_a_log_that_starts_inside_a_batch, controller=3)


def test_a_log_that_starts_in_the_middle_of_a_batch_is_never_copied_where_that_batch_is_refused() -> None:
    with rejecting_batches_around_the_log_start(), pytest.raises(AssertionError, match="did not happen"):
        simulate(copy_a_log_that_starts_inside_a_batch, controller=3)


# ---- KAFKA-6975 with a follower whose records the leader never had


async def end_where_the_leader_starts_inside_a_batch(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2], min_insync_replicas=1)
    await produce(cluster, b"a")
    await produce(cluster, b"b")
    cluster.cut(1, [2])
    await produce_to(cluster, 1, b"given up", acks=1)
    await produce_to(cluster, 1, b"given up too", acks=1)
    cluster.kill(1)
    await wait_for(lambda: is_leading(cluster, 2))
    cluster.mend()
    await produce(cluster, b"c", b"d", b"e")
    await delete_records_before(cluster, 3, leader=2)
    await cluster.start(1)
    await wait_for(lambda: in_sync(cluster) == {1, 2}, 5.0)
    assert replica(cluster, 1).log.log_start_offset == 3
    await all_well_again(cluster)
    assert await read_all(cluster) == [b"d", b"e"]


def test_a_follower_that_ends_where_the_leader_starts_inside_a_batch_starts_over() -> None:
    """Seed 1101621: it kept a record of its own before that batch, and could not take the batch."""
    simulate(end_where_the_leader_starts_inside_a_batch, controller=3)


# ---- KAFKA-9491


async def be_left_behind_by_the_log_start(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2])
    for value in range(5):
        await produce(cluster, b"%d" % value)
    cluster.kill(2)
    await wait_for(lambda: in_sync(cluster) == {1})
    for value in range(5, 10):
        await produce(cluster, b"%d" % value)
    await delete_records_before(cluster, 8, leader=1)
    await cluster.start(2)
    log = replica(cluster, 2).log
    assert log.log_end_offset == 5

    def watermarks_are_in_order() -> None:
        order = (log.log_start_offset, log.high_watermark, log.log_end_offset)
        assert list(order) == sorted(order), f"log start, high watermark and log end are {order}"

    await wait_for(lambda: in_sync(cluster) == {1, 2}, step_s=FINE_STEP_S, always=watermarks_are_in_order)
    assert log.log_start_offset == 8
    await all_well_again(cluster)
    assert await read_all(cluster) == [b"8", b"9"]


def test_a_replica_that_starts_over_knows_no_high_watermark_of_before() -> None:
    """KAFKA-9491, R4"""
    simulate(be_left_behind_by_the_log_start, controller=3)


def test_the_high_watermark_lies_before_the_log_where_it_survives_starting_over() -> None:
    with (
        keeping_the_high_watermark_of_a_dropped_log(),
        pytest.raises(AssertionError, match="log start, high watermark and log end are"),
    ):
        simulate(be_left_behind_by_the_log_start, controller=3)
