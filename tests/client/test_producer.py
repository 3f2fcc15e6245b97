"""A producer against a broker, and against brokers that lose answers and leadership."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from tests.client.fake_cluster import TOPIC, FakeCluster, headers_of, with_cluster
from tests.server.harness import Harness
from tidelog.client.admin.admin import Admin
from tidelog.client.network.bootstrap import Address
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp
from tidelog.client.producer.partitioner import partition_of_key
from tidelog.client.producer.producer import Delivery, NoSuchPartition, Producer, ProducerSettings
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import KafkaError, MessageTooLarge, OutOfOrderSequenceNumber
from tidelog.protocol.compression import Codec
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.protocol.messages.produce import ProduceRequest
from tidelog.runtime.memory_network import MemoryNetwork
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import EPOCH_MS, VirtualClock, VirtualTimeLoop, run_virtually

DEFAULTS = ProducerSettings()
ADDRESS = Address("127.0.0.1", 9092)


def virtual_clock() -> VirtualClock:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return VirtualClock(loop)


def with_producer(
    scenario: Callable[[Harness, Admin, Producer], Awaitable[None]], settings: ProducerSettings = DEFAULTS
) -> None:
    async def main() -> None:
        harness = Harness()
        async with (
            harness.broker(),
            Cluster(harness.network, [ADDRESS], SeededRandomness(1)) as cluster,
            Producer(cluster, harness.clock, settings) as producer,
        ):
            await scenario(harness, Admin(cluster), producer)

    run_virtually(main())


def with_fakes(
    scenario: Callable[[FakeCluster, Producer], Awaitable[None]],
    settings: ProducerSettings = DEFAULTS,
    partitions: int = 1,
) -> None:
    async def main(fakes: FakeCluster, cluster: Cluster) -> None:
        async with Producer(cluster, virtual_clock(), settings) as producer:
            await scenario(fakes, producer)

    with_cluster(main, partitions=partitions)


# -- against a broker


def test_record_is_acknowledged_with_its_place() -> None:
    async def scenario(harness: Harness, admin: Admin, producer: Producer) -> None:
        await admin.create_topic("orders", partitions=3)
        first = await producer.send("orders", b"one", partition=2, timestamp_ms=EPOCH_MS)
        assert first == ("orders", 2, 0, EPOCH_MS)
        assert (await producer.send("orders", b"two", partition=2)).offset == 1
        by_key = await producer.send(
            "orders", b"three", key=b"customer-7", headers=(("source", b"web"), ("none", None))
        )
        assert by_key.partition == partition_of_key(b"customer-7", 3)
        client = await harness.connect()
        assert await client.values("orders", partition=2) == [b"one", b"two"] + (
            [b"three"] if by_key.partition == 2 else []
        )

    with_producer(scenario)


def test_records_sent_together_share_batches_and_keep_their_order() -> None:
    async def scenario(harness: Harness, admin: Admin, producer: Producer) -> None:
        await admin.create_topic("orders", partitions=1)
        values = [b"%06d" % number for number in range(2000)]
        for value in values:
            await producer.enqueue("orders", value)
        await producer.flush()
        assert producer.acknowledged_records == 2000
        assert await (await harness.connect()).values("orders") == values

    with_producer(scenario, DEFAULTS._replace(batch_bytes=10_000, compression=Codec.ZSTD))


def test_full_batch_sends_records_without_key_to_another_partition() -> None:
    async def scenario(harness: Harness, admin: Admin, producer: Producer) -> None:
        await admin.create_topic("orders", partitions=4)
        deliveries = [await producer.enqueue("orders", b"x" * 100) for _ in range(400)]
        places = [(await delivery).partition for delivery in deliveries]
        assert len(set(places)) > 1
        changes = sum(before != after for before, after in pairwise(places))
        assert changes < 30

    with_producer(scenario, DEFAULTS._replace(batch_bytes=3000))


def test_topic_is_created_by_its_first_record() -> None:
    async def scenario(harness: Harness, admin: Admin, producer: Producer) -> None:
        assert (await producer.send("fresh", b"hello")).offset == 0

    with_producer(scenario)


def test_topic_that_may_not_be_created_is_given_up() -> None:
    async def scenario(harness: Harness, admin: Admin, producer: Producer) -> None:
        with pytest.raises(GaveUp, match="looking for topic fresh: gave up after 3 s"):
            await producer.send("fresh", b"hello")

    with_producer(scenario, DEFAULTS._replace(may_create_topics=False, metadata_timeout_s=3.0))


def test_partition_that_does_not_exist_is_refused_at_once() -> None:
    async def scenario(harness: Harness, admin: Admin, producer: Producer) -> None:
        await admin.create_topic("orders", partitions=3)
        with pytest.raises(NoSuchPartition, match="orders has 3 partitions; partition 3 does not exist"):
            await producer.send("orders", b"x", partition=3)

    with_producer(scenario)


@pytest.mark.parametrize("acks", [0, 1])
def test_fewer_acknowledgements_on_request(acks: int) -> None:
    async def scenario(harness: Harness, admin: Admin, producer: Producer) -> None:
        await admin.create_topic("orders", partitions=1)
        written = await producer.send("orders", b"quick")
        assert written.offset == (-1 if acks == 0 else 0)
        assert await (await harness.connect()).values("orders") == [b"quick"]

    with_producer(scenario, DEFAULTS._replace(acks=acks))


def test_record_that_the_topic_refuses_fails_alone() -> None:
    async def scenario(harness: Harness, admin: Admin, producer: Producer) -> None:
        await admin.create_topic("small", partitions=1, settings={"max.message.bytes": "1000"})
        with pytest.raises(MessageTooLarge):
            await producer.send("small", b"x" * 2000)
        assert (await producer.send("small", b"fits")).offset == 0
        with pytest.raises(MessageTooLarge):
            await producer.flush()
        await producer.flush()

    with_producer(scenario)


def test_batch_above_the_limit_of_the_topic_is_divided() -> None:
    async def scenario(harness: Harness, admin: Admin, producer: Producer) -> None:
        await admin.create_topic("small", partitions=1, settings={"max.message.bytes": "1000"})
        values = [b"%0100d" % number for number in range(50)]
        deliveries = [await producer.enqueue("small", value) for value in values]
        assert [(await delivery).offset for delivery in deliveries] == list(range(50))
        assert (await producer.send("small", b"after")).offset == 50
        assert await (await harness.connect()).values("small") == [*values, b"after"]

    with_producer(scenario)


def test_broker_that_restarts_meanwhile_has_everything_once_and_in_order() -> None:
    async def main() -> None:
        harness = Harness()
        values = [b"%04d" % number for number in range(300)]
        async with Cluster(harness.network, [ADDRESS], SeededRandomness(1)) as cluster:
            broker = await harness.start()
            await Admin(cluster).create_topic("orders", partitions=1)
            async with Producer(cluster, harness.clock, DEFAULTS) as producer:
                for number, value in enumerate(values):
                    await producer.enqueue("orders", value)
                    if number % 100 == 50:
                        await broker.stop()
                        restarted = asyncio.create_task(harness.start())
                        await asyncio.sleep(0.01)
                        broker = await restarted
                    await asyncio.sleep(0.002)
                await producer.flush()
            assert await (await harness.connect()).values("orders") == values
            await broker.stop()

    run_virtually(main())


# -- when things go wrong


def test_lost_answer_does_not_write_twice() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer) -> None:
        fakes.brokers[1].responses_to_lose[ProduceRequest] = 2
        assert [(await producer.send(TOPIC, value)).offset for value in (b"a", b"b")] == [0, 1]
        assert fakes.partitions[0].values == [b"a", b"b"]
        assert len(fakes.brokers[1].seen(ProduceRequest)) == 4

    with_fakes(scenario)


def test_order_holds_when_leadership_moves_after_a_write_whose_answer_was_lost() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer) -> None:
        partition = fakes.partitions[0]
        for number in range(40):
            await producer.enqueue(TOPIC, b"%02d" % number)
            if number in (10, 25):
                fakes.brokers[partition.leader].responses_to_lose[ProduceRequest] = 1
                await asyncio.sleep(0.02)
                partition.move(3 - partition.leader)
            await asyncio.sleep(0.004)
        await producer.flush()
        assert partition.values == [b"%02d" % number for number in range(40)]
        assert fakes.producer_ids == 1
        assert {header.leader_epoch for header in headers_of(partition)} == {0, 1, 2}

    with_fakes(scenario)


def test_old_metadata_does_not_send_the_producer_back() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer) -> None:
        await producer.send(TOPIC, b"a")
        old = fakes.brokers[2].metadata()
        fakes.partitions[0].move(2)
        await producer.send(TOPIC, b"b")
        for broker in fakes.brokers.values():
            broker.stale_metadata = old
        asked = len(fakes.brokers[1].seen(ProduceRequest))
        await producer._cluster.refresh()
        await producer.send(TOPIC, b"c")
        assert len(fakes.brokers[1].seen(ProduceRequest)) == asked
        assert fakes.partitions[0].values == [b"a", b"b", b"c"]

    with_fakes(scenario)


def test_records_that_cannot_be_delivered_fail_in_time_and_later_ones_go_on() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer) -> None:
        await producer.send(TOPIC, b"before")
        fakes.partitions[0].move(99)
        started = asyncio.get_running_loop().time()
        with pytest.raises(GaveUp, match=r"1 record for t-0: gave up after 10 s: t-0 has no leader"):
            await producer.send(TOPIC, b"lost")
        assert 9 < asyncio.get_running_loop().time() - started < 11
        fakes.partitions[0].move(2)
        assert (await producer.send(TOPIC, b"after")).offset == 1
        assert fakes.partitions[0].values == [b"before", b"after"]
        assert fakes.producer_ids == 2  # which sequence comes next was no longer certain
        with pytest.raises(GaveUp):
            await producer.flush()

    with_fakes(scenario, DEFAULTS._replace(delivery_timeout_s=10.0))


def test_write_that_may_have_happened_is_not_followed_by_a_gap_in_the_sequence() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer) -> None:
        fakes.brokers[1].responses_to_lose[ProduceRequest] = 10**6
        with pytest.raises(GaveUp, match=r"the connection to .* is closed"):
            await producer.send(TOPIC, b"unknown")
        fakes.brokers[1].responses_to_lose.clear()
        await producer.send(TOPIC, b"after")
        assert fakes.partitions[0].values == [b"unknown", b"after"]
        with pytest.raises(GaveUp):
            await producer.flush()

    with_fakes(scenario, DEFAULTS._replace(delivery_timeout_s=5.0))


def test_batch_that_may_be_written_is_not_written_again_in_halves() -> None:
    """Its answer was lost, and meanwhile the topic's limit was lowered. Brokers know the batch, not its halves."""

    async def scenario(fakes: FakeCluster, producer: Producer) -> None:
        partition = fakes.partitions[0]
        append = partition.append

        def lower_limit_after(batch: bytes) -> tuple[int, int]:
            outcome = append(batch)
            partition.largest_batch_bytes = 150
            return outcome

        partition.append = lower_limit_after  # type: ignore[method-assign]
        fakes.brokers[1].responses_to_lose[ProduceRequest] = 1
        values = [b"%d" % number * 40 for number in range(4)]
        outcomes = await asyncio.gather(*(producer.send(TOPIC, each) for each in values), return_exceptions=True)
        assert all(isinstance(each, OutOfOrderSequenceNumber) for each in outcomes), outcomes
        assert sorted(each or b"" for each in partition.values) == values
        assert (await producer.send(TOPIC, b"next")).offset == 4
        with pytest.raises(KafkaError):
            await producer.flush()

    with_fakes(scenario, DEFAULTS._replace(linger_s=0.1))


def test_acknowledged_records_that_are_gone_are_reported() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer) -> None:
        await producer.send(TOPIC, b"a")
        await producer.send(TOPIC, b"b")
        fakes.partitions[0].truncate(1)
        with pytest.raises(OutOfOrderSequenceNumber):
            await producer.send(TOPIC, b"c")
        assert (await producer.send(TOPIC, b"d")).offset == 1
        with pytest.raises(KafkaError):
            await producer.flush()

    with_fakes(scenario)


def test_lost_answer_to_the_first_question_is_asked_again() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer) -> None:
        for broker in fakes.brokers.values():
            broker.responses_to_lose = {InitProducerIdRequest: 1, MetadataRequest: 1}
        assert (await producer.send(TOPIC, b"a")).offset == 0

    with_fakes(scenario)


def test_partitions_do_not_wait_for_each_other() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer) -> None:
        await producer.send(TOPIC, b"a", partition=0)
        fakes.partitions[0].move(99)
        stuck = await producer.enqueue(TOPIC, b"stuck", partition=0)
        assert (await producer.send(TOPIC, b"free", partition=1)).offset == 0
        fakes.partitions[0].move(2)
        assert (await stuck).offset == 1

    with_fakes(scenario, partitions=2)


def test_full_buffer_makes_senders_wait() -> None:
    async def scenario(fakes: FakeCluster, producer: Producer) -> None:
        await producer.send(TOPIC, b"a")
        fakes.partitions[0].move(99)
        for _ in range(3):
            await producer.enqueue(TOPIC, b"x" * 1000)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await producer.enqueue(TOPIC, b"one too many")
        fakes.partitions[0].move(1)
        await producer.enqueue(TOPIC, b"room again")

    with_fakes(scenario, DEFAULTS._replace(max_buffered_bytes=3000))


def test_producer_that_is_left_by_an_error_fails_what_it_still_has() -> None:
    deliveries: list[Delivery] = []

    async def leave_in_the_middle(fakes: FakeCluster, cluster: Cluster) -> None:
        async with Producer(cluster, virtual_clock()) as producer:
            await producer.send(TOPIC, b"a")
            fakes.partitions[0].move(99)
            deliveries.append(await producer.enqueue(TOPIC, b"b"))
            await asyncio.sleep(1)
            deliveries.append(await producer.enqueue(TOPIC, b"c"))
            raise ZeroDivisionError

    async def main() -> None:
        network, fakes = MemoryNetwork(), FakeCluster()
        await fakes.listen(network)
        async with Cluster(network, fakes.bootstrap, SeededRandomness(1)) as cluster:
            with pytest.raises(ZeroDivisionError):
                await leave_in_the_middle(fakes, cluster)
            for delivery in deliveries:
                with pytest.raises(ConnectionLost, match="the producer was closed"):
                    await delivery

    run_virtually(main())
