"""Encoded batches on their way to brokers that lose answers and leadership, or find them too large."""

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256

import pytest

from tests.client.fake_cluster import TOPIC, FakeCluster, headers_of, with_cluster
from tests.client.test_producer import ADDRESS
from tests.server.harness import Harness
from tests.simulation.scenario import TOPIC as SIMULATED_TOPIC
from tests.simulation.scenario import create_topic, read_all, simulate, stored
from tidelog.client.admin.admin import Admin
from tidelog.client.network.retries import GaveUp
from tidelog.client.producer.encoded_batches import BatchProducer, EncodedBatch
from tidelog.client.producer.producer import NoSuchPartition, ProducerSettings
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import MessageTooLarge, OutOfOrderSequenceNumber
from tidelog.protocol.compression import Codec
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.produce import ProduceRequest
from tidelog.protocol.record_batch import crc_matches, read_header
from tidelog.protocol.records import Record, build_batch
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import EPOCH_MS, run_virtually
from tidelog.simulation.clients import client_cluster
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.types import TopicPartition

FIRST = TopicPartition(TOPIC, 0)
DEFAULTS = ProducerSettings()


def encoded(*values: bytes, compression: Codec = Codec.NONE) -> EncodedBatch:
    """As an encoder leaves it: the CRC is still to be worked out."""
    records = [Record(index, EPOCH_MS + index, b"k", value, (("h", b"x"),)) for index, value in enumerate(values)]
    data = build_batch(records, compression=compression)
    data[17:21] = b"\0\0\0\0"
    return EncodedBatch(data, len(values))


def with_fakes(
    scenario: Callable[[FakeCluster, BatchProducer], Awaitable[None]],
    settings: ProducerSettings = DEFAULTS,
    partitions: int = 1,
) -> None:
    async def main(fakes: FakeCluster, cluster: Cluster) -> None:
        async with BatchProducer(cluster, settings) as producer:
            await scenario(fakes, producer)

    with_cluster(main, partitions=partitions)


def test_batches_reach_a_broker_as_they_were_encoded() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker(), Cluster(harness.network, [ADDRESS], SeededRandomness(1)) as cluster:
            await Admin(cluster).create_topic(TOPIC, partitions=2)
            async with BatchProducer(cluster) as producer:
                for codec in Codec:
                    await producer.send(FIRST, encoded(b"a", b"b", compression=codec))
                await producer.send(TopicPartition(TOPIC, 1), encoded(b"c"))
            assert producer.acknowledged_records == 2 * len(Codec) + 1
            client = await harness.connect()
            assert await client.values(TOPIC) == [b"a", b"b"] * len(Codec)
            assert await client.values(TOPIC, partition=1) == [b"c"]

    run_virtually(main())


def test_batches_are_numbered_in_order_for_each_partition() -> None:
    async def scenario(fakes: FakeCluster, producer: BatchProducer) -> None:
        for values in ((b"a", b"b"), (b"c",), (b"d", b"e", b"f")):
            for number in (0, 1):
                await producer.send(TopicPartition(TOPIC, number), encoded(*values))
        assert producer.acknowledged_records == 0
        await producer.flush()
        assert producer.acknowledged_records == 12
        for partition in fakes.partitions:
            assert partition.values == [b"a", b"b", b"c", b"d", b"e", b"f"]
            headers = headers_of(partition)
            assert [header.base_sequence for header in headers] == [0, 2, 3]
            assert {(header.producer_id, header.producer_epoch) for header in headers} == {(1, 0)}
            assert all(map(crc_matches, partition.batches, map(read_header, partition.batches)))

    with_fakes(scenario, partitions=2)


@pytest.mark.parametrize("acks", [0, 1])
def test_without_all_acknowledgements_batches_have_no_numbers(acks: int) -> None:
    async def scenario(fakes: FakeCluster, producer: BatchProducer) -> None:
        await producer.send(FIRST, encoded(b"a"))
        await producer.flush()
        await asyncio.sleep(1)
        (header,) = headers_of(fakes.partitions[0])
        assert (header.producer_id, header.base_sequence) == (-1, -1)
        assert crc_matches(fakes.partitions[0].batches[0], header)
        assert not fakes.brokers[1].seen(InitProducerIdRequest)

    with_fakes(scenario, DEFAULTS._replace(acks=acks))


def test_lost_answers_and_moving_leaders_neither_double_nor_reorder() -> None:
    async def scenario(fakes: FakeCluster, producer: BatchProducer) -> None:
        (partition,) = fakes.partitions
        sent = []
        for number in range(12):
            if number % 3 == 0:
                fakes.brokers[partition.leader].responses_to_lose[ProduceRequest] = 1
            if number % 4 == 0:
                partition.move(3 - partition.leader)
            sent += [b"%d" % number, b"%d'" % number]
            await producer.send(FIRST, encoded(*sent[-2:]))
            await asyncio.sleep(0.001 * (number % 5))
        await producer.flush()
        assert partition.values == sent
        assert [header.base_sequence for header in headers_of(partition)] == list(range(0, 24, 2))

    with_fakes(scenario)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_batch_that_is_too_large_is_split_until_it_fits(codec: Codec) -> None:
    async def scenario(fakes: FakeCluster, producer: BatchProducer) -> None:
        (partition,) = fakes.partitions
        fakes.brokers[1].max_batch_bytes = 200
        values = [sha256(b"%d" % number).digest() for number in range(8)]
        await producer.send(FIRST, encoded(*values, compression=codec))
        await producer.send(FIRST, encoded(b"after"))
        await producer.flush()
        assert partition.values == [*values, b"after"]
        assert producer.acknowledged_records == 9
        headers = headers_of(partition)
        assert len(headers) > 2
        assert [header.base_sequence for header in headers] == [header.base_offset for header in headers]
        assert {header.compression for header in headers[:-1]} == {codec}

    with_fakes(scenario)


def test_record_that_is_too_large_alone_fails() -> None:
    async def scenario(fakes: FakeCluster, producer: BatchProducer) -> None:
        fakes.brokers[1].max_batch_bytes = 200
        await producer.send(FIRST, encoded(b"small", b"x" * 300))
        with pytest.raises(MessageTooLarge):
            await producer.flush()
        assert fakes.partitions[0].values == [b"small"]
        await producer.flush()

    with_fakes(scenario)


def test_failure_is_raised_to_the_next_who_sends() -> None:
    async def scenario(fakes: FakeCluster, producer: BatchProducer) -> None:
        await producer.send(FIRST, encoded(b"a"))
        await producer.flush()
        fakes.partitions[0].batches.clear()  # and with it what brokers know of the producer
        await producer.send(FIRST, encoded(b"b"))
        await asyncio.sleep(1)
        with pytest.raises(OutOfOrderSequenceNumber):
            await producer.send(FIRST, encoded(b"c"))
        await producer.send(FIRST, encoded(b"c"))
        await producer.flush()
        assert headers_of(fakes.partitions[0])[0].producer_id == 2

    with_fakes(scenario)


def test_sending_waits_for_room() -> None:
    async def scenario(fakes: FakeCluster, producer: BatchProducer) -> None:
        fakes.partitions[0].leader = 9
        batch = encoded(b"x" * 1000)
        sending = asyncio.create_task(send_many(producer, 20, batch))
        await asyncio.sleep(5)
        assert not sending.done()
        fakes.partitions[0].move(1)
        await sending
        await producer.flush()
        assert producer.acknowledged_records == 20

    async def send_many(producer: BatchProducer, count: int, batch: EncodedBatch) -> None:
        for _ in range(count):
            await producer.send(FIRST, EncodedBatch(bytearray(batch.data), 1))

    with_fakes(scenario, DEFAULTS._replace(max_buffered_bytes=5000))


def test_unknown_partition_and_absent_leader_are_errors() -> None:
    async def scenario(fakes: FakeCluster, producer: BatchProducer) -> None:
        with pytest.raises(NoSuchPartition, match="topic t has 1 partition; partition 3 does not exist"):
            await producer.send(TopicPartition(TOPIC, 3), encoded(b"a"))
        fakes.partitions[0].leader = 9
        await producer.send(FIRST, encoded(b"a", b"b"))
        with pytest.raises(GaveUp, match="2 records for t-0: gave up after 10 s"):
            await producer.flush()

    with_fakes(scenario, DEFAULTS._replace(delivery_timeout_s=10))


def test_leader_that_dies_in_the_middle_costs_nothing_on_a_real_cluster() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [2, 3])
        sent = [b"%d" % number for number in range(40)]
        async with client_cluster(cluster, 1, "test") as client, BatchProducer(client) as producer:
            for number in range(0, 40, 2):
                await producer.send(TopicPartition(SIMULATED_TOPIC, 0), encoded(*sent[number : number + 2]))
                if number == 10:
                    assert stored(cluster).leader == 2
                    await asyncio.sleep(0.002)
                    cluster.kill(2)
        assert producer.acknowledged_records == 40
        assert await read_all(cluster) == sent

    simulate(scenario)
