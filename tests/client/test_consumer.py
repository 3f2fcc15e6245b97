"""A consumer against a broker, and against brokers that lose connections, leadership and records."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from tests.allocations import allocations
from tests.client.fake_cluster import TOPIC, FakeCluster, with_cluster
from tests.client.test_producer import ADDRESS, virtual_clock
from tests.server.harness import Harness, batch_of
from tidelog.client.admin.admin import Admin
from tidelog.client.consumer.consumer import (
    BEGINNING,
    END,
    MAX_POLL_RECORDS,
    AtTime,
    ConsumedRecord,
    Consumer,
    ConsumerSettings,
)
from tidelog.client.consumer.consumer_settings import READ_COMMITTED
from tidelog.client.consumer.fetched_records import FetchedBatches
from tidelog.client.network.retries import GaveUp
from tidelog.client.producer.producer import Producer
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import CorruptMessage, OffsetOutOfRange, UnknownTopicOrPartition
from tidelog.protocol.compression import Codec, compress
from tidelog.protocol.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.protocol.record_batch import assemble, read_header
from tidelog.protocol.records import ControlType, Record, build_batch, build_end_marker
from tidelog.protocol.structs import Request
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import EPOCH_MS, run_virtually
from tidelog.types import TopicPartition

FIRST = TopicPartition(TOPIC, 0)
DEFAULTS = ConsumerSettings()


def with_broker(scenario: Callable[[Cluster, Producer, Consumer], Awaitable[None]]) -> None:
    async def main() -> None:
        harness = Harness()
        async with (
            harness.broker(),
            Cluster(harness.network, [ADDRESS], SeededRandomness(1)) as cluster,
            Producer(cluster, harness.clock) as producer,
            Consumer(cluster) as consumer,
        ):
            await Admin(cluster).create_topic(TOPIC, partitions=2)
            await scenario(cluster, producer, consumer)

    run_virtually(main())


def with_fakes(
    scenario: Callable[[FakeCluster, Producer, Consumer], Awaitable[None]],
    settings: ConsumerSettings = DEFAULTS,
    partitions: int = 1,
) -> None:
    async def main(fakes: FakeCluster, cluster: Cluster) -> None:
        async with Producer(cluster, virtual_clock()) as producer, Consumer(cluster, settings) as consumer:
            await scenario(fakes, producer, consumer)

    with_cluster(main, partitions=partitions)


async def take(consumer: Consumer, count: int) -> list[ConsumedRecord]:
    async with asyncio.timeout(60):
        return [await anext(consumer) for _ in range(count)]


async def values(consumer: Consumer, count: int) -> list[bytes | None]:
    return [record.value for record in await take(consumer, count)]


def fetched_partitions(request: Request) -> list[FetchPartition]:
    assert isinstance(request, FetchRequest)
    return [wanted for topic in request.topics for wanted in topic.partitions]


async def send_all(producer: Producer, *sent: bytes) -> None:
    for value in sent:
        await producer.enqueue(TOPIC, value, partition=0)
    await producer.flush()


# -- against a broker


def test_everything_is_read_from_the_beginning_and_then_what_comes() -> None:
    async def scenario(cluster: Cluster, producer: Producer, consumer: Consumer) -> None:
        headers = (("source", b"web"),)
        await producer.send(TOPIC, b"one", key=b"k", partition=0, headers=headers, timestamp_ms=EPOCH_MS)
        await producer.send(TOPIC, None, key=b"gone", partition=0, timestamp_ms=EPOCH_MS + 1)
        assert await consumer.assign({FIRST: BEGINNING}) == {FIRST: 0}
        assert await take(consumer, 2) == [
            (TOPIC, 0, 0, EPOCH_MS, b"k", b"one", headers),
            (TOPIC, 0, 1, EPOCH_MS + 1, b"gone", None, ()),
        ]
        waiting = asyncio.create_task(take(consumer, 1))
        await asyncio.sleep(20)
        await send_all(producer, b"late")
        assert [record.offset for record in await waiting] == [2]

    with_broker(scenario)


def test_reading_starts_where_the_options_say() -> None:
    async def scenario(cluster: Cluster, producer: Producer, consumer: Consumer) -> None:
        for number in range(10):
            await producer.send(TOPIC, b"%d" % number, partition=0, timestamp_ms=EPOCH_MS + number * 10)
        found = await consumer.assign({FIRST: AtTime(EPOCH_MS + 45), TopicPartition(TOPIC, 1): END})
        assert found == {FIRST: 5, TopicPartition(TOPIC, 1): 0}
        assert await values(consumer, 5) == [b"5", b"6", b"7", b"8", b"9"]
        async with Consumer(cluster) as other:
            assert await other.assign({FIRST: 8}) == {FIRST: 8}
            assert await values(other, 2) == [b"8", b"9"]
        async with Consumer(cluster) as young:
            assert await young.assign({FIRST: AtTime(EPOCH_MS + 1000)}) == {FIRST: 10}

    with_broker(scenario)


def test_batch_that_begins_before_the_offset_is_not_read_twice() -> None:
    async def scenario(cluster: Cluster, producer: Producer, consumer: Consumer) -> None:
        await send_all(producer, b"a", b"b", b"c", b"d")
        await consumer.assign({FIRST: 2})
        assert await values(consumer, 2) == [b"c", b"d"]

    with_broker(scenario)


def test_partitions_are_read_together() -> None:
    async def scenario(cluster: Cluster, producer: Producer, consumer: Consumer) -> None:
        for number in range(600):
            await producer.enqueue(TOPIC, b"%d" % number, partition=number % 2)
        await producer.flush()
        await consumer.assign({TopicPartition(TOPIC, partition): BEGINNING for partition in (0, 1)})
        records = await take(consumer, 600)
        for partition in (0, 1):
            mine = [record for record in records if record.partition == partition]
            assert [record.offset for record in mine] == list(range(300))
            assert [record.value for record in mine] == [b"%d" % number for number in range(partition, 600, 2)]

    with_broker(scenario)


def test_partition_or_topic_that_does_not_exist_is_reported() -> None:
    async def scenario(cluster: Cluster, producer: Producer, consumer: Consumer) -> None:
        with pytest.raises(GaveUp, match="t-7 does not exist"):
            await consumer.assign({TopicPartition(TOPIC, 7): BEGINNING})

    with_broker(scenario)


def test_topic_that_is_deleted_ends_the_reading() -> None:
    async def scenario(cluster: Cluster, producer: Producer, consumer: Consumer) -> None:
        await send_all(producer, b"a")
        await consumer.assign({FIRST: BEGINNING})
        assert await values(consumer, 1) == [b"a"]
        await Admin(cluster).delete_topic(TOPIC)
        with pytest.raises(UnknownTopicOrPartition):
            await take(consumer, 1)

    with_broker(scenario)


# -- when things go wrong


def test_reading_follows_the_leader_without_loss_or_repetition() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer, consumer: Consumer) -> None:
        partition = fakes.partitions[0]
        await consumer.assign({FIRST: BEGINNING})
        reading = asyncio.create_task(values(consumer, 60))
        for number in range(60):
            await producer.send(TOPIC, b"%02d" % number)
            if number % 20 == 10:
                partition.move(3 - partition.leader)
        assert await reading == [b"%02d" % number for number in range(60)]
        requests = [request for broker in fakes.brokers.values() for request in broker.seen(FetchRequest)]
        epochs = {wanted.current_leader_epoch for request in requests for wanted in fetched_partitions(request)}
        assert {0, 3} <= epochs <= {0, 1, 2, 3}  # a deposed leader learns that it is

    with_fakes(scenario)


def test_reading_goes_on_after_lost_connections() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer, consumer: Consumer) -> None:
        await send_all(producer, b"a", b"b")
        await consumer.assign({FIRST: BEGINNING})
        assert await values(consumer, 2) == [b"a", b"b"]
        fakes.brokers[1].responses_to_lose = {FetchRequest: 5, MetadataRequest: 2}
        await send_all(producer, b"c")
        assert await values(consumer, 1) == [b"c"]

    with_fakes(scenario)


def test_broker_that_stays_away_is_not_asked_in_a_frenzy() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer, consumer: Consumer) -> None:
        await consumer.assign({FIRST: BEGINNING})
        await asyncio.sleep(1)
        fakes.brokers[1].responses_to_lose = {FetchRequest: 10**6}
        fakes.brokers[1].requests.clear()
        await asyncio.sleep(20)
        assert 5 < len(fakes.brokers[1].seen(FetchRequest)) < 60

    with_fakes(scenario, DEFAULTS._replace(max_wait_ms=100))


def test_position_beyond_what_the_new_leader_has_goes_back_to_where_they_part(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(fakes: FakeCluster, producer: Producer, consumer: Consumer) -> None:
        partition = fakes.partitions[0]
        await send_all(producer, b"a")
        await send_all(producer, b"b")
        await send_all(producer, b"lost")
        await consumer.assign({FIRST: BEGINNING})
        assert await values(consumer, 3) == [b"a", b"b", b"lost"]
        partition.truncate(2)
        partition.move(2)
        assert await consumer.poll(10.0) == []
        assert consumer.positions == {FIRST: 2}
        for value in (b"c", b"d", b"e"):
            partition.append(batch_of(value))
        assert await values(consumer, 3) == [b"c", b"d", b"e"]
        assert "records that were read are lost partition=t-0 from_offset=2 to_offset=3" in caplog.text

    with_fakes(scenario)


def test_deleted_records_end_the_reading_unless_it_may_go_elsewhere() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer, consumer: Consumer) -> None:
        await send_all(producer, b"a")
        await send_all(producer, b"b")
        fakes.partitions[0].start = 1
        await consumer.assign({FIRST: 0})
        if consumer.settings.reset_to is None:
            with pytest.raises(OffsetOutOfRange, match="t-0"):
                await take(consumer, 1)
        else:
            assert await values(consumer, 1) == [b"b"]

    with_fakes(scenario)
    with_fakes(scenario, DEFAULTS._replace(reset_to=BEGINNING))


def test_positions_follow_to_where_reading_goes_on() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer, consumer: Consumer) -> None:
        await send_all(producer, b"a")
        await send_all(producer, b"b")
        fakes.partitions[0].start = 2
        await consumer.assign({FIRST: 0})
        assert await consumer.poll(10.0) == []
        assert consumer.positions == {FIRST: 2}

    with_fakes(scenario, DEFAULTS._replace(reset_to=BEGINNING))


def test_positions_do_not_pass_what_was_not_given() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer, consumer: Consumer) -> None:
        await consumer.assign({FIRST: BEGINNING})
        for value in (b"a", b"b"):
            await producer.enqueue(TOPIC, value, partition=0)
        await producer.flush()
        assert await values(consumer, 1) == [b"a"]
        assert consumer.positions == {FIRST: 0}
        assert len(await consumer.poll(10.0)) == 1
        assert consumer.positions == {FIRST: 2}
        broken = bytearray(batch_of(b"abc"))
        broken[-2] ^= 1
        fakes.partitions[0].append(bytes(broken))
        with pytest.raises(CorruptMessage):
            await consumer.poll(10.0)
        assert consumer.positions == {FIRST: 2}

    with_fakes(scenario)


def test_slow_reader_stops_the_fetching() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer, consumer: Consumer) -> None:
        await consumer.assign({TopicPartition(TOPIC, number): BEGINNING for number in range(8)})
        for _ in range(5):
            for number in range(8):
                await producer.send(TOPIC, b"x", partition=number)
        await asyncio.sleep(10)
        asked = len(fakes.brokers[1].seen(FetchRequest))
        await asyncio.sleep(10)
        assert len(fakes.brokers[1].seen(FetchRequest)) == asked
        assert len(await take(consumer, 40)) == 40

    with_fakes(scenario, partitions=8)


# -- what is in a batch


def transactional(producer_id: int, offset: int, *sent: bytes) -> bytes:
    records = [Record(offset + index, EPOCH_MS, None, value) for index, value in enumerate(sent)]
    return bytes(
        build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    )


def marker(control_type: ControlType, producer_id: int, offset: int) -> bytes:
    return bytes(
        build_end_marker(
            control_type,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=EPOCH_MS,
            base_offset=offset,
        )
    )


def read(batches: Sequence[bytes], aborted: Sequence[AbortedTransaction] = ()) -> list[bytes | None]:
    fetched = FetchedBatches.of(FIRST, 0, b"".join(batches), aborted)
    return [record.value for record in fetched.records()]


def test_aborted_transactions_and_markers_are_left_out() -> None:
    batches = [
        transactional(1, 0, b"aborted"),
        transactional(2, 1, b"kept"),
        transactional(1, 2, b"aborted too"),
        marker(ControlType.ABORT, 1, 3),
        transactional(1, 4, b"next transaction"),
        marker(ControlType.COMMIT, 1, 5),
        marker(ControlType.COMMIT, 2, 6),
    ]
    assert read(batches, [AbortedTransaction(producer_id=1, first_offset=0)]) == [b"kept", b"next transaction"]
    assert read(batches) == [b"aborted", b"kept", b"aborted too", b"next transaction"]


def test_batch_that_fails_its_checksum_is_not_handed_out() -> None:
    broken = bytearray(batch_of(b"abc"))
    broken[-2] ^= 1
    with pytest.raises(CorruptMessage, match="batch at offset 0 fails its CRC"):
        read([bytes(broken)])


def unreadable(offset: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch with a right CRC, of an earlier version of Tidelog that did not look at records."""
    batch = bytes(build_batch([Record(offset, EPOCH_MS, b"", b"lost")], compression=codec))
    return bytes(assemble(read_header(batch), batch[61:-3]))


@pytest.mark.parametrize("codec", Codec)
def test_batch_that_cannot_be_read_is_passed_over_with_one_line(codec: Codec, caplog: pytest.LogCaptureFixture) -> None:
    after = bytes(build_batch([Record(2, EPOCH_MS, None, b"after")]))
    assert read([batch_of(b"before"), unreadable(1, codec), after]) == [b"before", b"after"]
    (line,) = caplog.messages
    assert "skipped unreadable batch" in line
    assert "offset=1" in line


def test_one_record_of_a_batch_of_millions_costs_little() -> None:
    bomb = batch_of_empty_records(5_000_000)
    with allocations() as peak:
        first = next(FetchedBatches.of(FIRST, 0, bomb, ()).records())
    assert first.offset == 0
    assert peak.bytes < 10_000_000


def batch_of_empty_records(count: int) -> bytes:
    """All of them claim to be the first, which nobody looks at here."""
    header = read_header(batch_of(b""))._replace(record_count=count, last_offset_delta=count - 1, attributes=Codec.ZSTD)
    return bytes(assemble(header, compress(Codec.ZSTD, b"\x0c\0\0\0\1\1\0" * count)))


def test_poll_gives_a_large_batch_in_parts_and_positions_follow() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer, consumer: Consumer) -> None:
        records = [Record(n, EPOCH_MS, None, b"") for n in range(MAX_POLL_RECORDS + 5)]
        fakes.partitions[0].append(bytes(build_batch(records, compression=Codec.GZIP)))
        await consumer.assign({FIRST: BEGINNING})
        assert len(await consumer.poll(10.0)) == MAX_POLL_RECORDS
        assert consumer.positions == {FIRST: MAX_POLL_RECORDS}
        assert len(await consumer.poll(10.0)) == 5
        assert consumer.positions == {FIRST: MAX_POLL_RECORDS + 5}

    with_fakes(scenario)


def test_isolation_level_is_asked_for() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer, consumer: Consumer) -> None:
        await consumer.assign({FIRST: BEGINNING})
        await asyncio.sleep(1)
        (request, *_) = fakes.brokers[1].seen(FetchRequest)
        assert isinstance(request, FetchRequest)
        assert request.isolation_level == READ_COMMITTED

    with_fakes(scenario, DEFAULTS._replace(isolation_level=READ_COMMITTED))
