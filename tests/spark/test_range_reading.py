"""Ranges as a task reads them, with the settings of its query, and records that are gone."""

import asyncio
import time
from dataclasses import replace

import pytest

from tests.client.fake_cluster import TOPIC, TOPIC_ID, FakeCluster, FakePartition
from tests.server.harness import batch_of
from tidelog.client.consumer.consumer_settings import READ_COMMITTED
from tidelog.client.consumer.range_reader import OffsetsGone
from tidelog.client.network.retries import GaveUp
from tidelog.protocol.messages.fetch import FetchRequest
from tidelog.protocol.record_batch import assemble, read_header
from tidelog.spark import client_thread
from tidelog.spark.errors import DataLost, TopicRecreated
from tidelog.spark.options.query import ReadOptions, read_options
from tidelog.spark.source.batch_planning import OffsetRange
from tidelog.spark.source.task_reader import RANGES_AT_ONCE, read_ranges, remaining_range

WHOLE = OffsetRange(TOPIC, 0, 0, 6, TOPIC_ID)


def options_for(fakes: FakeCluster, **options: str) -> ReadOptions:
    dotted = {name.replace("_", "."): text for name, text in options.items()}
    brokers = {"kafka.bootstrap.servers": str(fakes.bootstrap[0])}
    return read_options({**brokers, "subscribe": TOPIC, **dotted}, is_stream=False)


def fill(fakes: FakeCluster) -> None:
    """Three batches of two records."""
    for number in range(3):
        fakes.partitions[0].append(batch_of(b"%d" % (2 * number), b"%d" % (2 * number + 1)))


def values(found: OffsetRange, options: ReadOptions) -> list[bytes]:
    batches = read_ranges([found], options, ["value"])
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def test_settings_of_the_query_reach_the_broker(fakes: FakeCluster) -> None:
    fill(fakes)
    options = options_for(
        fakes, fetchBytes="12345", kafka_fetch_max_wait_ms="77", **{"kafka.isolation.level": "read_committed"}
    )
    assert values(WHOLE, options) == [b"%d" % number for number in range(6)]
    (request,) = fakes.brokers[1].seen(FetchRequest)
    assert isinstance(request, FetchRequest)
    assert (request.max_bytes, request.max_wait_ms, request.isolation_level) == (12345, 77, READ_COMMITTED)
    assert request.topics[0].partitions[0].partition_max_bytes == 12345


def poisoned_batch() -> bytes:
    """Two records, says its header, and its CRC is right."""
    header = read_header(batch_of(b"a", b"b"))
    return bytes(assemble(header, b"\x7f" * 20))


def test_a_query_fails_at_a_batch_that_cannot_be_read(fakes: FakeCluster) -> None:
    fill(fakes)
    fakes.partitions[0].append(poisoned_batch())
    with pytest.raises(DataLost, match=r"t-0: the batch at offset 6 cannot be read: .*; set failOnDataLoss to false"):
        values(WHOLE._replace(end=8), options_for(fakes))


def test_a_query_that_may_lose_data_passes_over_batches_that_cannot_be_read(
    fakes: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        fakes.partitions[0].append(poisoned_batch())
        fakes.partitions[0].append(batch_of(b"a", b"b"))
    fakes.partitions[0].append(poisoned_batch())
    assert values(WHOLE._replace(end=10), options_for(fakes, failOnDataLoss="false")) == [b"a", b"b"] * 2
    warnings = [record.getMessage() for record in caplog.records if "continuing after data loss" in record.getMessage()]
    assert [text.split("offset ")[1].split(" ")[0] for text in warnings] == ["0", "4", "8"]


def test_a_task_gives_up_after_the_time_that_the_query_allows(fakes: FakeCluster) -> None:
    fakes.partitions[0].leader = 2
    options = options_for(fakes, **{"kafkaConsumer.pollTimeoutMs": "300"})
    began = time.monotonic()
    with pytest.raises(GaveUp, match=r"reading t-0 at offset 0: gave up after 0\.3 s"):
        values(WHOLE, options)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(("start", "end"), [(1, 5), (0, 1), (3, 4), (5, 6)])
def test_ranges_begin_and_end_inside_of_batches(fakes: FakeCluster, start: int, end: int) -> None:
    fill(fakes)
    found = WHOLE._replace(start=start, end=end)
    assert values(found, options_for(fakes)) == [b"%d" % number for number in range(start, end)]


def test_records_deleted_before_they_were_read_are_an_error_or_left_out(fakes: FakeCluster) -> None:
    fill(fakes)
    fakes.partitions[0].start = 3
    options = options_for(fakes)
    with pytest.raises(DataLost, match="the log now begins at 3 and ends at 6; set failOnDataLoss to false"):
        values(WHOLE, options)
    assert values(WHOLE, replace(options, fail_on_data_loss=False)) == [b"3", b"4", b"5"]


def test_records_that_a_new_leader_lacks_are_an_error_or_left_out(fakes: FakeCluster) -> None:
    fill(fakes)
    fakes.partitions[0].truncate(4)
    options = options_for(fakes)
    with pytest.raises(DataLost, match="ends at 4"):
        values(WHOLE, options)
    assert values(WHOLE, replace(options, fail_on_data_loss=False)) == [b"%d" % number for number in range(4)]


def test_a_topic_made_again_has_none_of_the_records(fakes: FakeCluster) -> None:
    fill(fakes)
    before = WHOLE._replace(topic_id=bytes(15) + b"1")
    with pytest.raises(TopicRecreated, match="set failOnDataLoss to false"):
        values(before, options_for(fakes))
    assert values(before, options_for(fakes, failOnDataLoss="false")) == []


def test_what_is_gone_of_one_range_does_not_concern_the_others(fakes: FakeCluster) -> None:
    fill(fakes)
    fakes.partitions.append(FakePartition())
    fakes.partitions[1].append(batch_of(b"other"))
    fakes.partitions[0].start = 5
    ranges = [WHOLE, WHOLE._replace(partition=1, end=1)]
    batches = read_ranges(ranges, options_for(fakes, failOnDataLoss="false"), ["partition", "value"])
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert sorted(rows) == [(0, b"5"), (1, b"other")]


def test_the_next_ranges_are_fetched_while_one_is_decoded_and_ended_with_it(fakes: FakeCluster) -> None:
    fakes.partitions += [FakePartition() for _ in range(7)]
    for number, partition in enumerate(fakes.partitions):
        partition.append(batch_of(b"%d" % number))
    ranges = [WHOLE._replace(partition=number, end=1) for number in range(8)]
    batches = read_ranges(ranges, options_for(fakes), ["value"])
    assert next(batches).column(0).to_pylist() == [b"0"]
    deadline = time.monotonic() + 120
    while len(fakes.brokers[1].seen(FetchRequest)) < RANGES_AT_ONCE and time.monotonic() < deadline:
        time.sleep(0.001)
    assert RANGES_AT_ONCE <= len(fakes.brokers[1].seen(FetchRequest)) <= RANGES_AT_ONCE + 1
    batches.close()
    assert client_thread.run(tasks()) == 0
    again = read_ranges(ranges, options_for(fakes), ["value"])
    assert [value for batch in again for value in batch.column(0).to_pylist()] == [b"%d" % n for n in range(8)]


async def tasks() -> int:
    """Others than the one that asks."""
    return len(asyncio.all_tasks()) - 1


def test_what_is_left_of_a_range_lies_in_the_log() -> None:
    assert remaining_range(WHOLE, OffsetsGone("", 2, 5)) == WHOLE._replace(start=2, end=5)
    assert remaining_range(WHOLE, OffsetsGone("", 6, 9)) is None
    assert remaining_range(WHOLE, OffsetsGone("", 0, 9)) is None, "or it would be tried forever"
