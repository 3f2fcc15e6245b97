"""Ranges of offsets against a broker, and against brokers that lose leadership, records and answers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tests.client.fake_cluster import EMPTY_FETCH_S, TOPIC, FakeCluster, with_cluster
from tests.client.test_producer import ADDRESS
from tests.server.harness import Client, Harness, batch_of
from tests.simulation.scenario import TOPIC as SIMULATED_TOPIC
from tests.simulation.scenario import create_topic, produce, simulate, stored
from tidelog.client.admin.admin import Admin
from tidelog.client.consumer.consumer_settings import READ_COMMITTED
from tidelog.client.consumer.range_reader import (
    MISSING_TOPIC_TIMEOUT_S,
    FetchedRange,
    OffsetsGone,
    RangeReader,
    RangeSettings,
    TopicChanged,
    scan_batches,
)
from tidelog.client.network.retries import GaveUp
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import CorruptMessage, UnknownTopicOrPartition
from tidelog.protocol.messages.fetch import FetchRequest
from tidelog.protocol.record_batch import place, split_batches
from tidelog.protocol.records import records_of
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import run_virtually
from tidelog.simulation.clients import client_cluster
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.types import TopicPartition

FIRST = TopicPartition(TOPIC, 0)
SMALL = RangeSettings(max_bytes=100)
"""One batch in an answer."""


def with_broker(scenario: Callable[[Harness, Cluster, Client], Awaitable[None]]) -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker(), Cluster(harness.network, [ADDRESS], SeededRandomness(1)) as cluster:
            await Admin(cluster).create_topic(TOPIC, partitions=1)
            await scenario(harness, cluster, await harness.connect())

    run_virtually(main())


def values_in(fetched: FetchedRange, start: int, end: int) -> list[bytes | None]:
    return [
        record.value
        for _, batch in split_batches(fetched.records)
        for record in records_of(batch)
        if start <= record.offset < end
    ]


async def read(
    cluster: Cluster,
    start: int,
    end: int,
    settings: RangeSettings | None = None,
    *,
    key: TopicPartition = FIRST,
    topic_id: bytes | None = None,
) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with asyncio.timeout(600), RangeReader(cluster, key, start, end, settings, topic_id=topic_id) as reader:
        async for fetched in reader:
            found += values_in(fetched, start, end)
    return found


def seen_offsets(fakes: FakeCluster, broker_id: int = 1) -> list[int]:
    requests = fakes.brokers[broker_id].seen(FetchRequest)
    return [request.topics[0].partitions[0].fetch_offset for request in requests if isinstance(request, FetchRequest)]


# -- walking over headers


def test_walk_stops_at_the_end_of_the_range_and_leaves_out_a_cut_batch() -> None:
    batches = []
    for offset in (0, 2, 4):
        batch = bytearray(batch_of(b"a", b"b"))
        place(batch, offset, 7)
        batches.append(bytes(batch))
    first, second, third = batches
    whole = memoryview(first + second + third)
    assert scan_batches(whole, 100) == (len(whole), 6, 7, False)
    assert scan_batches(whole, 6) == (len(whole), 6, 7, True)
    assert scan_batches(whole, 5) == (len(whole), 6, 7, True)
    assert scan_batches(whole, 4) == (len(first + second), 4, 7, True)
    assert scan_batches(whole[:-1], 100) == (len(first + second), 4, 7, False)
    assert scan_batches(memoryview(third), 3) == (0, -1, -1, True)
    assert scan_batches(memoryview(b""), 3) == (0, -1, -1, False)


def test_walk_refuses_what_is_no_batch() -> None:
    batch = bytearray(batch_of(b"a"))
    with pytest.raises(CorruptMessage, match="offset 0 is malformed: length 48"):
        scan_batches(memoryview(batch[:8] + b"\0\0\0\x30" + batch[12:]), 100)
    with pytest.raises(CorruptMessage, match=r"malformed: .* last offset delta -1"):
        scan_batches(memoryview(batch[:23] + b"\xff\xff\xff\xff" + batch[27:]), 100)
    with pytest.raises(CorruptMessage, match="format version 1"):
        scan_batches(memoryview(batch[:16] + b"\1" + batch[17:]), 100)
    with pytest.raises(CorruptMessage, match="format version 0"):
        scan_batches(memoryview(bytes(34)), 100)


# -- against a broker


def test_range_is_read_whole_and_nothing_beside_it() -> None:
    async def scenario(harness: Harness, cluster: Cluster, client: Client) -> None:
        for number in range(0, 20, 2):
            await client.produce(TOPIC, b"%d" % number, b"%d" % (number + 1))
        assert await read(cluster, 0, 20) == [b"%d" % number for number in range(20)]
        assert await read(cluster, 0, 20, SMALL) == [b"%d" % number for number in range(20)]
        assert await read(cluster, 5, 12, SMALL) == [b"%d" % number for number in range(5, 12)]
        assert await read(cluster, 7, 7) == []

    with_broker(scenario)


def test_answers_are_cut_to_whole_batches_that_begin_before_the_end() -> None:
    async def scenario(harness: Harness, cluster: Cluster, client: Client) -> None:
        for _ in range(4):
            await client.produce(TOPIC, b"a", b"b")
        async with RangeReader(cluster, FIRST, 1, 5) as reader:
            (fetched,) = [fetched async for fetched in reader]
        headers = [header for header, _ in split_batches(fetched.records)]
        assert [header.base_offset for header in headers] == [0, 2, 4]
        assert sum(header.size_bytes for header in headers) == len(fetched.records)
        assert fetched[1:] == (1, 6, ())
        with pytest.raises(StopAsyncIteration):
            await anext(reader)

    with_broker(scenario)


def test_batch_larger_than_a_fetch_comes_whole() -> None:
    async def scenario(harness: Harness, cluster: Cluster, client: Client) -> None:
        large = b"x" * 50_000
        await client.produce(TOPIC, large)
        await client.produce(TOPIC, b"after")
        assert await read(cluster, 0, 2, SMALL) == [large, b"after"]

    with_broker(scenario)


def test_range_before_or_beyond_the_log_reports_where_that_begins_and_ends() -> None:
    async def scenario(harness: Harness, cluster: Cluster, client: Client) -> None:
        await client.produce(TOPIC, b"a", b"b", b"c")
        with pytest.raises(OffsetsGone, match=r"offsets 7 to 9 .* begins at 0 and ends at 3") as gone:
            await read(cluster, 7, 9)
        assert (gone.value.log_start_offset, gone.value.log_end_offset) == (0, 3)
        with pytest.raises(OffsetsGone, match="ends at 3"):
            await read(cluster, 0, 9)

    with_broker(scenario)


def test_topic_made_again_is_noticed() -> None:
    async def scenario(harness: Harness, cluster: Cluster, client: Client) -> None:
        admin = Admin(cluster)
        for _ in range(4):
            await client.produce(TOPIC, b"old")
        old = (await admin.describe_topic(TOPIC)).topic_id
        assert await read(cluster, 0, 4, topic_id=old) == [b"old"] * 4
        async with RangeReader(cluster, FIRST, 0, 4, SMALL) as reader:
            await anext(reader)
            async with Cluster(harness.network, [ADDRESS], SeededRandomness(2)) as other:
                await Admin(other).delete_topic(TOPIC)
                await Admin(other).create_topic(TOPIC, partitions=1)
            await client.produce(TOPIC, *[b"new"] * 4)
            with pytest.raises(TopicChanged, match="topic t was deleted and recreated"):
                [fetched async for fetched in reader]
        with pytest.raises(TopicChanged):
            await read(cluster, 0, 4, topic_id=old)
        assert await read(cluster, 0, 4) == [b"new"] * 4

    with_broker(scenario)


def test_what_a_process_remembers_of_a_topic_made_again_does_not_count() -> None:
    async def scenario(harness: Harness, cluster: Cluster, client: Client) -> None:
        await client.produce(TOPIC, b"old")
        assert await read(cluster, 0, 1) == [b"old"]
        async with Cluster(harness.network, [ADDRESS], SeededRandomness(2)) as other:
            await Admin(other).delete_topic(TOPIC)
            await Admin(other).create_topic(TOPIC, partitions=1)
            new = (await Admin(other).describe_topic(TOPIC)).topic_id
        await client.produce(TOPIC, b"new")
        assert await read(cluster, 0, 1, topic_id=new) == [b"new"]

    with_broker(scenario)


def test_topic_that_stays_away_is_an_error_soon() -> None:
    async def scenario(harness: Harness, cluster: Cluster, client: Client) -> None:
        started = asyncio.get_running_loop().time()
        with pytest.raises(UnknownTopicOrPartition, match="topic nowhere does not exist"):
            await read(cluster, 0, 1, key=TopicPartition("nowhere", 0))
        assert asyncio.get_running_loop().time() - started < MISSING_TOPIC_TIMEOUT_S + 3

    with_broker(scenario)


# -- holes


def test_range_whose_tail_was_compacted_away_ends() -> None:
    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        (partition,) = fakes.partitions
        for number in range(10):
            partition.append(batch_of(b"%d" % number))
        del partition.batches[3:7]
        assert await read(cluster, 0, 5) == [b"0", b"1", b"2"]
        assert await read(cluster, 4, 6) == []
        assert await read(cluster, 3, 9) == [b"7", b"8"]
        del partition.batches[3:]
        assert await read(cluster, 0, 10) == [b"0", b"1", b"2"]
        assert await read(cluster, 5, 10) == []

    with_cluster(scenario)


def test_one_empty_answer_does_not_end_a_range() -> None:
    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        (partition,) = fakes.partitions
        partition.append(batch_of(b"far away"))
        kept, partition.batches = partition.batches, []
        reading = asyncio.create_task(read(cluster, 0, 1))
        await asyncio.sleep(EMPTY_FETCH_S / 2)
        partition.batches = kept
        assert await reading == [b"far away"]
        assert seen_offsets(fakes) == [0, 0]

    with_cluster(scenario)


def test_range_waits_for_the_end_of_an_open_transaction() -> None:
    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        (partition,) = fakes.partitions
        for number in range(4):
            partition.append(batch_of(b"%d" % number))
        partition.stable_end = 2
        committed = RangeSettings(isolation_level=READ_COMMITTED, timeout_s=5)
        with pytest.raises(GaveUp, match="an open transaction holds back t-0 at offset 2"):
            await read(cluster, 0, 4, committed)
        assert await read(cluster, 0, 4) == [b"0", b"1", b"2", b"3"]
        reading = asyncio.create_task(read(cluster, 0, 4, committed))
        await asyncio.sleep(1)
        partition.stable_end = None
        assert await reading == [b"0", b"1", b"2", b"3"]

    with_cluster(scenario)


# -- leaders that move


def test_moving_leader_is_followed() -> None:
    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        (partition,) = fakes.partitions
        partition.append(batch_of(b"0"))
        async with RangeReader(cluster, FIRST, 0, 1) as reader:
            assert [values_in(fetched, 0, 1) async for fetched in reader] == [[b"0"]]
        partition.move(2)
        for number in range(1, 4):
            partition.append(batch_of(b"%d" % number))
        assert await read(cluster, 0, 4) == [b"0", b"1", b"2", b"3"]
        assert seen_offsets(fakes, 2) == [0]

    with_cluster(scenario)


def test_reading_survives_lost_answers_and_the_broker_being_asked_again() -> None:
    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        (partition,) = fakes.partitions
        partition.append(batch_of(b"0", b"1"))
        fakes.brokers[1].responses_to_lose[FetchRequest] = 3
        assert await read(cluster, 0, 2) == [b"0", b"1"]
        assert seen_offsets(fakes) == [0, 0, 0, 0]

    with_cluster(scenario)


def test_records_lost_in_an_unclean_election_are_an_error() -> None:
    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        (partition,) = fakes.partitions
        for number in range(4):
            partition.append(batch_of(b"%d" % number))
        partition.end = 6  # of which two are not served yet
        async with RangeReader(cluster, FIRST, 0, 6) as reader:
            assert (await anext(reader)).next_offset == 4
            partition.truncate(2)
            partition.move(2)
            for _ in range(8):
                partition.append(batch_of(b"other"))
            with pytest.raises(OffsetsGone, match="records from offset 2 on were truncated"):
                await anext(reader)

    with_cluster(scenario)


def test_range_of_which_an_unclean_election_left_less_is_an_error() -> None:
    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        (partition,) = fakes.partitions
        for number in range(4):
            partition.append(batch_of(b"%d" % number))
        assert await read(cluster, 0, 2) == [b"0", b"1"]
        partition.truncate(3)
        partition.move(2)
        with pytest.raises(OffsetsGone, match=r"offsets 3 to 4 .* ends at 3"):
            await read(cluster, 0, 4)

    with_cluster(scenario)


def test_gives_up_when_no_broker_answers_for_too_long() -> None:
    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        fakes.partitions[0].append(batch_of(b"0"))
        fakes.partitions[0].leader = 9
        started = asyncio.get_running_loop().time()
        with pytest.raises(GaveUp, match="reading t-0 at offset 0: gave up after 30 s: t-0 has no leader"):
            await read(cluster, 0, 1, replace(SMALL, timeout_s=30))
        assert 28 < asyncio.get_running_loop().time() - started < 31

    with_cluster(scenario)


def test_broker_that_sends_no_whole_batch_is_given_up() -> None:
    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        (partition,) = fakes.partitions
        partition.append(batch_of(b"0"))
        partition.append(batch_of(b"1"))
        partition.batches[1] = partition.batches[1][:-1]
        with pytest.raises(GaveUp, match=r"reading t-0 at offset 1: .* no complete batch for offset 1"):
            await read(cluster, 0, 2, replace(SMALL, timeout_s=30))
        requests = [each for each in fakes.brokers[1].seen(FetchRequest) if isinstance(each, FetchRequest)]
        assert [request.max_bytes for request in requests[:4]] == [100, 100, 200, 400]
        assert requests[-1].max_bytes == 2**31 - 1

    with_cluster(scenario)


def test_leader_that_dies_in_the_middle_is_followed_on_a_real_cluster() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [2, 3])
        sent = [b"%d" % number for number in range(30)]
        for value in sent:
            await produce(cluster, value)
        key, found = TopicPartition(SIMULATED_TOPIC, 0), []
        async with (
            client_cluster(cluster, 1, "test") as client,
            RangeReader(client, key, 0, 30, SMALL) as reader,
        ):
            async for fetched in reader:
                found += values_in(fetched, 0, 30)
                if len(found) == 10:
                    assert stored(cluster).leader == 2
                    cluster.kill(2)
        assert found == sent
        assert stored(cluster).leader == 3

    simulate(scenario)


# -- fetching ahead, and ending early


def test_next_fetch_is_under_way_while_the_caller_works_and_no_more() -> None:
    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        (partition,) = fakes.partitions
        partition.append(batch_of(b"0"))
        partition.end = 3
        for ahead in (1, 2):
            fakes.brokers[1].requests.clear()
            reader = RangeReader(cluster, FIRST, 0, 3, RangeSettings(fetches_ahead=ahead))
            await anext(reader)
            await asyncio.sleep(0.01)
            assert seen_offsets(fakes) == [0, 1]
            await reader.aclose()

    with_cluster(scenario)


def test_slow_caller_is_waited_for() -> None:
    async def scenario(harness: Harness, cluster: Cluster, client: Client) -> None:
        for number in range(10):
            await client.produce(TOPIC, b"%d" % number)
        async with RangeReader(cluster, FIRST, 0, 10, SMALL) as reader:
            first = await anext(reader)
            await asyncio.sleep(100)
            assert reader.fetched_ahead == 1
            assert values_in(first, 0, 10) == [b"0"]
            assert [fetched.start_offset async for fetched in reader] == list(range(1, 10))

    with_broker(scenario)


def test_closed_reader_leaves_nothing_behind() -> None:
    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        fakes.partitions[0].append(batch_of(b"0"))
        fakes.partitions[0].end = 5
        before = asyncio.all_tasks()
        async with RangeReader(cluster, FIRST, 0, 5) as reader:
            await anext(reader)
        assert asyncio.all_tasks() == before
        await reader.aclose()

    with_cluster(scenario)
