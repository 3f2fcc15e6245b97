"""Offsets that a query's options mean: with a broker on virtual time, and with brokers that misbehave."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

import pytest

from tests.client.fake_cluster import TOPIC, TOPIC_ID, FakeBroker, FakeCluster, with_cluster
from tests.server.harness import Client, Harness, batch_of, produce_request
from tidelog.client.admin.admin import Admin
from tidelog.client.consumer.consumer_settings import READ_COMMITTED
from tidelog.client.network.bootstrap import Address
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.metadata import ClusterMetadata
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.runtime.memory_network import MemoryNetwork
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import EPOCH_MS, run_virtually
from tidelog.spark.errors import (
    BrokersUnavailable,
    DataLost,
    NoRecordAfterTime,
    TopicRecreated,
    UnknownPartition,
    UnknownTopic,
)
from tidelog.spark.offset_json import EARLIEST, LATEST, Positions
from tidelog.spark.options.client_settings import ClientSettings
from tidelog.spark.options.query import ReadOptions
from tidelog.spark.options.values import (
    Assign,
    AtOffsets,
    AtTime,
    AtTimes,
    Edge,
    OptionError,
    Subscribe,
    SubscribePattern,
    TimestampStrategy,
)
from tidelog.spark.source.batch_planning import OffsetRange
from tidelog.spark.source.cluster_queries import NEW_TOPICS_S, TopicWatch
from tidelog.spark.source.offset_bounds import (
    Topics,
    batch_ranges,
    earliest,
    ending_offsets,
    latest,
    resolve,
    starting_offsets,
)
from tidelog.spark.source.record_sizes import record_bytes
from tidelog.spark.source.stream_positions import find_next_offsets
from tidelog.types import TopicPartition

BROKER = Address("127.0.0.1", 9092)
A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
OPTIONS = ReadOptions("127.0.0.1:9092", Subscribe(("orders",)))
LENIENT = replace(OPTIONS, fail_on_data_loss=False)


class Orders:
    """A broker with the topic `orders`: five records in partition 0, a second apart, three in partition 1."""

    def __init__(self, harness: Harness, cluster: Cluster, client: Client) -> None:
        self.harness = harness
        self.cluster = cluster
        self.client = client
        self.admin = Admin(cluster)

    async def create(self) -> None:
        await self.admin.create_topic("orders", partitions=2)
        await self.produce(A, 5)
        await self.produce(B, 3)

    async def produce(self, key: TopicPartition, count: int, **options: int) -> None:
        for second in range(count):
            batch = batch_of(b"v" * 100, timestamp=EPOCH_MS + 1000 * second, **options)
            response = await self.client.ask(produce_request(key.topic, batch, key.partition), 9, ProduceResponse)
            assert response.responses[0].partition_responses[0].error_code == 0

    async def recreate(self) -> None:
        await self.admin.delete_topic("orders")
        await self.admin.create_topic("orders", partitions=1)
        await self.produce(A, 2)

    async def positions(self, options: ReadOptions = OPTIONS) -> Positions:
        topics = await resolve(self.cluster, options)
        return Positions(await latest(self.cluster, topics, options), topics.topic_ids)


def with_orders(scenario: Callable[[Orders], Awaitable[None]]) -> None:
    async def main() -> None:
        harness = Harness()
        async with (
            harness.broker(auto_create_topics_enable=True),
            Cluster(harness.network, [BROKER], SeededRandomness(1)) as cluster,
        ):
            orders = Orders(harness, cluster, await harness.connect())
            await orders.create()
            await scenario(orders)

    run_virtually(main())


# -- which partitions


def test_subscribed_topics_bring_all_their_partitions_and_their_ids() -> None:
    async def scenario(orders: Orders) -> None:
        topics = await resolve(orders.cluster, OPTIONS)
        described = await orders.admin.describe_topic("orders")
        assert topics == Topics((A, B), {"orders": described.topic_id})

    with_orders(scenario)


def test_a_pattern_is_found_anywhere_in_the_name_and_may_find_nothing() -> None:
    async def scenario(orders: Orders) -> None:
        await orders.admin.create_topic("old-orders", partitions=1)
        await orders.admin.create_topic("payments", partitions=1)
        await orders.client.create_internal_topic("__consumer_offsets")

        async def found(pattern: str) -> list[str]:
            topics = await resolve(orders.cluster, replace(OPTIONS, subscription=SubscribePattern(pattern)))
            return list(map(str, topics.partitions))

        assert await found("ord.rs") == ["old-orders-0", "orders-0", "orders-1"]
        assert await found("^orders$") == ["orders-0", "orders-1"]
        assert await found("nothing") == []
        assert "__consumer_offsets-0" not in await found("."), "internal topics are left out"

    with_orders(scenario)


def test_a_stream_with_a_pattern_asks_for_all_topics_once_a_second_and_when_one_is_missing() -> None:
    every = replace(OPTIONS, subscription=SubscribePattern("orders|payments"))

    async def scenario(orders: Orders) -> None:
        asked: list[object] = []
        ask_topics = orders.cluster.ask_topics

        async def listen(topics: Iterable[str] | None, *, may_create: bool = False) -> ClusterMetadata:
            asked.append(topics)
            return await ask_topics(topics, may_create=may_create)

        async def found() -> set[str]:
            return {topic for topic, _ in (await watch.resolve(orders.cluster)).partitions}

        orders.cluster.ask_topics = listen  # type: ignore[method-assign]
        watch = TopicWatch(every)
        assert await found() == await found() == {"orders"}
        assert asked == [None, ["orders"]]
        await orders.admin.create_topic("payments", partitions=1)
        await asyncio.sleep(NEW_TOPICS_S)
        assert await found() == {"orders", "payments"}
        await orders.admin.delete_topic("orders")
        assert await found() == {"payments"}

    with_orders(scenario)


def test_assigned_partitions_are_read_alone_and_must_exist() -> None:
    async def scenario(orders: Orders) -> None:
        assert (await resolve(orders.cluster, replace(OPTIONS, subscription=Assign((B,))))).partitions == (B,)
        beyond = replace(OPTIONS, subscription=Assign((A, TopicPartition("orders", 7))))
        with pytest.raises(UnknownPartition, match=r"partition orders-7 does not exist: .* has partitions 0 to 1"):
            await resolve(orders.cluster, beyond)

    with_orders(scenario)


def test_a_topic_that_does_not_exist_is_not_created_and_the_nearest_is_named() -> None:
    async def scenario(orders: Orders) -> None:
        for name, sentence in (
            ("ordres", "topic 'ordres' does not exist; did you mean 'orders'?"),
            ("xyz", "topic 'xyz' does not exist"),
        ):
            with pytest.raises(UnknownTopic) as raised:
                await resolve(orders.cluster, replace(OPTIONS, subscription=Subscribe((name,))))
            assert str(raised.value) == sentence
        assert [topic.name for topic in await orders.admin.list_topics()] == ["orders"]

    with_orders(scenario)


def test_a_name_that_no_topic_can_have_is_recognised() -> None:
    async def scenario(orders: Orders) -> None:
        with pytest.raises(UnknownTopic, match="topic 'a b' cannot be read: "):
            await resolve(orders.cluster, replace(OPTIONS, subscription=Subscribe(("a b",))))

    with_orders(scenario)


def test_a_topic_that_is_just_being_made_is_waited_for() -> None:
    async def scenario(orders: Orders) -> None:
        resolving = asyncio.create_task(resolve(orders.cluster, replace(OPTIONS, subscription=Subscribe(("late",)))))
        await asyncio.sleep(1)
        await orders.client.create_topic("late")
        assert (await resolving).partitions == (TopicPartition("late", 0),)

    with_orders(scenario)


# -- from where to where


async def starts(orders: Orders, options: ReadOptions) -> list[int]:
    found = await starting_offsets(orders.cluster, options, await resolve(orders.cluster, options))
    return [found[A], found[B]]


async def ends(orders: Orders, options: ReadOptions) -> list[int]:
    found = await ending_offsets(orders.cluster, options, await resolve(orders.cluster, options))
    return [found[A], found[B]]


def test_edges_are_where_the_logs_begin_and_end() -> None:
    async def scenario(orders: Orders) -> None:
        assert await starts(orders, OPTIONS) == [0, 0]
        assert await starts(orders, replace(OPTIONS, starting=Edge.LATEST)) == [5, 3]
        assert await ends(orders, OPTIONS) == [5, 3]

    with_orders(scenario)


def test_given_offsets_are_taken_and_minus_one_and_two_are_edges() -> None:
    async def scenario(orders: Orders) -> None:
        assert await starts(orders, replace(OPTIONS, starting=AtOffsets({A: 2, B: LATEST}))) == [2, 3]
        assert await starts(orders, replace(OPTIONS, starting=AtOffsets({A: EARLIEST, B: 1}))) == [0, 1]

    with_orders(scenario)


def test_given_offsets_must_name_every_partition_and_no_others() -> None:
    async def scenario(orders: Orders) -> None:
        with pytest.raises(OptionError) as lacking:
            await starts(orders, replace(OPTIONS, starting=AtOffsets({A: 2})))
        assert str(lacking.value) == (
            "Option 'startingOffsets' must have every partition that is read; missing: orders-1 "
            "(-1 means latest, -2 means earliest)"
        )
        with pytest.raises(OptionError, match="'endingOffsetsByTimestamp' has partitions that are not read: other-0"):
            await ends(orders, replace(OPTIONS, ending=AtTimes({A: 1, B: 1, TopicPartition("other", 0): 1})))

    with_orders(scenario)


def test_given_offsets_outside_of_the_log_are_lost_data() -> None:
    async def scenario(orders: Orders) -> None:
        far = AtOffsets({A: 9, B: 0})
        with pytest.raises(
            DataLost, match="'startingOffsets' has offset 9 for orders-0, but its log starts at 0 and ends"
        ):
            await starts(orders, replace(OPTIONS, starting=far))
        assert await starts(orders, replace(LENIENT, starting=far)) == [5, 0]

    with_orders(scenario)


def test_a_time_is_the_first_record_that_is_not_older() -> None:
    async def scenario(orders: Orders) -> None:
        assert await starts(orders, replace(OPTIONS, starting=AtTime(EPOCH_MS + 1500))) == [2, 2]
        assert await starts(orders, replace(OPTIONS, starting=AtTimes({A: EPOCH_MS + 4000, B: 0}))) == [4, 0]

    with_orders(scenario)


def test_a_time_after_the_last_record_is_an_error_or_the_end() -> None:
    async def scenario(orders: Orders) -> None:
        late = replace(OPTIONS, starting=AtTime(EPOCH_MS + 3500))
        with pytest.raises(
            NoRecordAfterTime, match=r"'startingTimestamp': .* in orders-1; set startingOffsetsByTimestamp"
        ):
            await starts(orders, late)
        assert await starts(orders, replace(late, timestamp_strategy=TimestampStrategy.LATEST)) == [4, 3]
        assert await ends(orders, replace(OPTIONS, ending=AtTime(EPOCH_MS + 3500))) == [4, 3]

    with_orders(scenario)


def test_a_batch_becomes_ranges() -> None:
    async def scenario(orders: Orders) -> None:
        topic_id = (await orders.admin.describe_topic("orders")).topic_id
        options = replace(OPTIONS, starting=AtOffsets({A: 1, B: 3}), min_partitions=2)
        assert await batch_ranges(orders.cluster, options) == [
            OffsetRange("orders", 0, 1, 3, topic_id),
            OffsetRange("orders", 0, 3, 5, topic_id),
        ]
        backwards = replace(OPTIONS, starting=AtTime(EPOCH_MS + 2000), ending=AtTime(EPOCH_MS + 1000))
        with pytest.raises(
            OptionError, match="'startingTimestamp' and 'endingTimestamp' leave nothing to read of orders-0"
        ):
            await batch_ranges(orders.cluster, backwards)

    with_orders(scenario)


# -- where a stream goes on


def test_a_stream_goes_on_where_it_was_and_begins_new_partitions_at_their_beginning() -> None:
    async def scenario(orders: Orders) -> None:
        positions = await orders.positions()
        request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="orders", count=3)], timeout_ms=1000)
        await orders.client.ask(request, 3, CreatePartitionsResponse)
        new = TopicPartition("orders", 2)
        await orders.produce(new, 4)
        await orders.produce(A, 1)
        ahead = await find_next_offsets(orders.cluster, OPTIONS, positions)
        assert ahead.start == {A: 5, B: 3, new: 0}
        assert ahead.available == {A: 6, B: 3, new: 4}

    with_orders(scenario)


def test_a_topic_made_again_is_an_error_or_is_read_from_its_beginning() -> None:
    async def scenario(orders: Orders) -> None:
        positions = await orders.positions()
        await orders.recreate()
        with pytest.raises(TopicRecreated) as raised:
            await find_next_offsets(orders.cluster, OPTIONS, positions)
        assert str(raised.value) == (
            "topic 'orders' was deleted and created again since this query last read it; "
            "set failOnDataLoss to false to continue with the remaining records"
        )
        ahead = await find_next_offsets(orders.cluster, LENIENT, positions)
        assert (ahead.start, ahead.available) == ({A: 0}, {A: 2})
        assert ahead.topics.topic_ids != positions.topic_ids

    with_orders(scenario)


def test_without_ids_in_the_checkpoint_nothing_is_compared() -> None:
    async def scenario(orders: Orders) -> None:
        ahead = await find_next_offsets(orders.cluster, OPTIONS, Positions({A: 1, B: 1}, {}))
        assert ahead.start == {A: 1, B: 1}

    with_orders(scenario)


def test_a_topic_that_a_pattern_no_longer_finds_is_lost_data() -> None:
    async def scenario(orders: Orders) -> None:
        every = replace(OPTIONS, subscription=SubscribePattern("."))
        await orders.admin.create_topic("payments", partitions=1)
        positions = await orders.positions(every)
        await orders.admin.delete_topic("payments")
        with pytest.raises(DataLost, match="partitions that this query reads are gone: payments-0; set failOnDataLoss"):
            await find_next_offsets(orders.cluster, every, positions)
        ahead = await find_next_offsets(orders.cluster, replace(every, fail_on_data_loss=False), positions)
        assert ahead.start == {A: 5, B: 3}

    with_orders(scenario)


FAKE = replace(OPTIONS, subscription=Subscribe((TOPIC,)))
FIRST = TopicPartition(TOPIC, 0)


def test_a_log_that_ends_before_what_was_read_is_lost_data() -> None:
    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        fakes.partitions[0].end = 10
        read = Positions({FIRST: 12}, {TOPIC: TOPIC_ID})
        with pytest.raises(DataLost, match="gone from the log: t-0 ends at 10, read up to 12"):
            await find_next_offsets(cluster, FAKE, read)
        ahead = await find_next_offsets(cluster, replace(FAKE, fail_on_data_loss=False), read)
        assert (ahead.start, ahead.available) == ({FIRST: 10}, {FIRST: 10})

    with_cluster(scenario)


def test_a_new_leader_that_knows_less_for_a_moment_is_asked_again() -> None:
    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        fakes.partitions[0].end = 10
        search = asyncio.create_task(find_next_offsets(cluster, FAKE, Positions({FIRST: 12}, {})))
        await asyncio.sleep(0.2)
        fakes.partitions[0].end = 13
        assert (await search).available == {FIRST: 13}

    with_cluster(scenario)


class OpenTransaction(FakeBroker):
    """The last three records of the partition belong to a transaction that is not over."""

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        response = super()._list_offsets(request)
        if request.isolation_level == READ_COMMITTED:
            response.topics[0].partitions[0].offset -= 3
        return response


def test_a_reader_of_committed_records_ends_before_open_transactions() -> None:
    async def main() -> None:
        network, fakes = MemoryNetwork(), FakeCluster(brokers=1)
        fakes.brokers[1] = OpenTransaction(fakes, 1)
        fakes.partitions[0].end = 10
        await fakes.listen(network)
        committed = replace(FAKE, client=ClientSettings(isolation_level=READ_COMMITTED))
        async with Cluster(network, fakes.bootstrap, SeededRandomness(1)) as cluster:
            topics = await resolve(cluster, FAKE)
            assert await latest(cluster, topics, FAKE) == {FIRST: 10}
            assert await latest(cluster, topics, committed) == {FIRST: 7}
            inside = replace(committed, starting=AtOffsets({FIRST: 9}))
            assert await starting_offsets(cluster, inside, topics) == {FIRST: 9}
            ahead = await find_next_offsets(cluster, committed, Positions({FIRST: 9}, {}))
            assert ahead.available == {FIRST: 9}, "waiting for the transaction is no loss"

    run_virtually(main())


# -- brokers that move and go away


def test_a_leader_that_moved_is_followed() -> None:
    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        fakes.partitions[0].end = 4
        topics = await resolve(cluster, FAKE)
        fakes.partitions[0].move(2)
        assert await latest(cluster, topics, FAKE) == {FIRST: 4}
        assert len(fakes.brokers[2].seen(ListOffsetsRequest)) == 1

    with_cluster(scenario)


def test_brokers_that_come_back_in_time_are_waited_for() -> None:
    async def main() -> None:
        network, fakes = MemoryNetwork(), FakeCluster()
        fakes.partitions[0].end = 4
        async with Cluster(network, fakes.bootstrap, SeededRandomness(1)) as cluster:
            resolving = asyncio.create_task(resolve(cluster, FAKE))
            await asyncio.sleep(100)
            assert not resolving.done()
            await fakes.listen(network)
            assert await earliest(cluster, await resolving, FAKE) == {FIRST: 0}

    run_virtually(main())


def test_brokers_that_stay_away_are_given_up_in_one_sentence() -> None:
    async def main() -> None:
        async with Cluster(MemoryNetwork(), [BROKER], SeededRandomness(1)) as cluster:
            options = replace(OPTIONS, client=ClientSettings(timeout_s=30.0))
            started_at = asyncio.get_running_loop().time()
            with pytest.raises(BrokersUnavailable) as raised:
                await resolve(cluster, options)
            assert 25 < asyncio.get_running_loop().time() - started_at <= 30
            sentence = str(raised.value)
            assert sentence.startswith("The brokers at 127.0.0.1:9092 did not answer: asking about topics: gave up")
            assert "\n" not in sentence

    run_virtually(main())


# -- how large records are


def test_the_size_of_records_is_taken_from_the_batches_at_the_front() -> None:
    async def scenario(orders: Orders) -> None:
        topics = await resolve(orders.cluster, OPTIONS)
        available = await latest(orders.cluster, topics, OPTIONS)
        found = await record_bytes(orders.cluster, OPTIONS, topics, {A: 1, B: 3}, available)
        assert found == {A: len(batch_of(b"v" * 100))}, "nothing is to be read of the other"

    with_orders(scenario)


def test_brokers_without_topic_ids_are_asked_by_name() -> None:
    async def scenario(orders: Orders) -> None:
        topics = Topics((A,), {})
        found = await record_bytes(orders.cluster, OPTIONS, topics, {A: 0}, {A: 5})
        assert found[A] > 100

    with_orders(scenario)


def test_offsets_that_are_gone_show_nothing_of_sizes() -> None:
    async def scenario(orders: Orders) -> None:
        topics = await resolve(orders.cluster, OPTIONS)
        assert await record_bytes(orders.cluster, OPTIONS, topics, {A: 50}, {A: 60}) == {A: 0.0}

    with_orders(scenario)
