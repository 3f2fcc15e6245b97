"""State of a streaming query between micro-batches, and its requests to brokers for each of them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from tests.client.fake_cluster import TOPIC, FakeCluster, with_cluster
from tests.server.harness import batch_of
from tests.spark.test_offset_bounds import FAKE, FIRST
from tidelog.client.routing.cluster import Cluster
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.spark.offset_json import Positions, from_dict
from tidelog.spark.options.query import ReadOptions
from tidelog.spark.options.values import AtOffsets, Edge
from tidelog.spark.source.batch_planning import Limits
from tidelog.spark.source.cluster_queries import Topics
from tidelog.spark.source.stream_planner import StreamPlanner
from tidelog.spark.source.stream_positions import resume_offsets
from tidelog.types import TopicPartition

FROM_NOW_ON = replace(FAKE, starting=Edge.LATEST)
SECOND = TopicPartition(TOPIC, 1)
AT_THE_BEGINNING = {TOPIC: {"0": 0}}


class Planner(StreamPlanner):
    """Of one run of a query, on a cluster of fakes."""

    def __init__(self, options: ReadOptions, cluster: Cluster) -> None:
        super().__init__(options)
        self._fake = cluster

    def _cluster(self) -> Cluster:
        return self._fake

    @property
    def limits(self) -> Limits:
        return self._options.limits


def with_planner(
    options: ReadOptions, scenario: Callable[[FakeCluster, Planner], Awaitable[None]], partitions: int = 1
) -> None:
    async def main(fakes: FakeCluster, cluster: Cluster) -> None:
        await scenario(fakes, Planner(options, cluster))

    with_cluster(main, partitions=partitions)


def requests(fakes: FakeCluster) -> list[type]:
    return [
        type(request)
        for broker in fakes.brokers.values()
        for request in broker.requests
        if isinstance(request, MetadataRequest | ListOffsetsRequest)
    ]


def test_a_trigger_asks_each_broker_once_for_offsets_and_one_of_them_for_partitions() -> None:
    async def scenario(fakes: FakeCluster, planner: Planner) -> None:
        fakes.partitions[0].move(2)
        start = await planner.next_end(await planner.initial(), Limits(), 0.0)
        for broker in fakes.brokers.values():
            broker.requests.clear()
        assert await planner.next_end(start, Limits(), 1.0) == start
        assert sorted(kind.__name__ for kind in requests(fakes)) == [
            "ListOffsetsRequest",
            "ListOffsetsRequest",
            "MetadataRequest",
        ]

    with_planner(FAKE, scenario, partitions=3)


def test_planning_a_batch_asks_nobody() -> None:
    async def scenario(fakes: FakeCluster, planner: Planner) -> None:
        fakes.partitions[0].end = 10
        start = await planner.initial()
        end = await planner.next_end(start, Limits(), 0.0)
        for broker in fakes.brokers.values():
            broker.requests.clear()
        assert [found.size for found in await planner.ranges(start, end)] == [10]
        assert requests(fakes) == []

    with_planner(FAKE, scenario)


def test_what_comes_while_the_first_batch_fails_is_read_by_the_next_run() -> None:
    """Spark writes down the end of the first batch, not its start: that it asks for again."""

    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        fakes.partitions[0].end = 100
        first_run = Planner(FROM_NOW_ON, cluster)
        start = await first_run.initial()
        fakes.partitions[0].end = 150
        end = await first_run.next_end(start, Limits(), 0.0)
        fakes.partitions[0].end = 200
        second_run = Planner(FROM_NOW_ON, cluster)
        read = list(await second_run.ranges(await second_run.initial(), end))
        read += await second_run.ranges(end, await second_run.next_end(end, Limits(), 1.0))
        assert [(found.start, found.end) for found in read] == [(100, 200)]

    with_cluster(scenario)


def test_the_first_batch_reads_what_there_is_to_read_where_the_query_starts() -> None:
    options = replace(FAKE, starting=AtOffsets({FIRST: 2, SECOND: -1}))

    async def scenario(fakes: FakeCluster, planner: Planner) -> None:
        fakes.partitions[0].end = fakes.partitions[1].end = 10
        start = await planner.initial()
        fakes.partitions[0].end = fakes.partitions[1].end = 12
        first = await planner.next_end(start, Limits(), 0.0)
        assert from_dict(first).offsets == {FIRST: 12, SECOND: 10}
        assert from_dict(await planner.next_end(first, Limits(), 1.0)).offsets == {FIRST: 12, SECOND: 12}

    with_planner(options, scenario, partitions=2)


def test_a_query_starts_at_the_same_place_however_often_spark_asks() -> None:
    async def scenario(fakes: FakeCluster, planner: Planner) -> None:
        start = await planner.initial()
        fakes.partitions[0].end = 5
        assert await planner.initial() == start

    with_planner(FROM_NOW_ON, scenario)


def test_a_broker_that_does_not_know_of_a_new_partition_yet_is_no_loss_of_data() -> None:
    async def scenario(fakes: FakeCluster, planner: Planner) -> None:
        fakes.brokers[1].stale_metadata = fakes.brokers[2].stale_metadata = fakes.brokers[1].metadata()
        fakes.brokers[1].stale_metadata.topics[0].partitions.pop()
        positions = {TOPIC: {"0": 0, "1": 0}}
        planning = asyncio.create_task(planner.next_end(positions, Limits(), 0.0))
        await asyncio.sleep(0.2)
        assert not planning.done()
        fakes.brokers[1].stale_metadata = fakes.brokers[2].stale_metadata = None
        assert from_dict(await planning).offsets == {FIRST: 0, SECOND: 0}

    with_planner(FAKE, scenario, partitions=2)


def test_thousands_of_partitions_are_looked_through_in_no_time() -> None:
    partitions = tuple(TopicPartition(TOPIC, number) for number in range(20_000))

    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        began = time.process_time()
        await resume_offsets(cluster, FAKE, Topics(partitions, {}), Positions(dict.fromkeys(partitions, 0), {}))
        assert time.process_time() - began < 1.0

    with_cluster(scenario)


# -- options of the query


async def ends(planner: Planner, start: dict[str, Any], at_s: float) -> list[int]:
    return list(from_dict(await planner.next_end(start, planner.limits, at_s)).offsets.values())


def test_few_records_wait_for_more_until_the_delay_is_over() -> None:
    options = replace(FAKE, limits=Limits(min_offsets=10, max_trigger_delay_s=60.0))

    async def scenario(fakes: FakeCluster, planner: Planner) -> None:
        fakes.partitions[0].end = 3
        assert await ends(planner, AT_THE_BEGINNING, 0.0) == [3], "the first batch does not wait"
        at_three = {TOPIC: {"0": 3}}
        fakes.partitions[0].end = 5
        assert await ends(planner, at_three, 59.0) == [3]
        fakes.partitions[0].end = 13
        assert await ends(planner, at_three, 59.5) == [13], "there are enough"
        fakes.partitions[0].end = 14
        assert await ends(planner, {TOPIC: {"0": 13}}, 119.0) == [13], "the delay counts from the last batch"
        assert await ends(planner, {TOPIC: {"0": 13}}, 120.0) == [14]

    with_planner(options, scenario)


def test_a_query_for_what_is_there_now_does_not_wait_for_more_and_reads_nothing_newer() -> None:
    options = replace(FAKE, limits=Limits(max_offsets=4, min_offsets=4))

    async def scenario(fakes: FakeCluster, planner: Planner) -> None:
        fakes.partitions[0].end = 6
        await planner.fix_end()
        fakes.partitions[0].end = 100
        assert await ends(planner, AT_THE_BEGINNING, 0.0) == [4]
        assert await ends(planner, {TOPIC: {"0": 4}}, 0.1) == [6]
        assert await ends(planner, {TOPIC: {"0": 6}}, 0.2) == [6]

    with_planner(options, scenario)


def test_bytes_limit_a_batch_by_the_size_of_the_records_in_front() -> None:
    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        for _ in range(10):
            fakes.partitions[0].append(batch_of(b"x" * 1000))
        (size,) = {len(batch) for batch in fakes.partitions[0].batches}
        planner = Planner(replace(FAKE, limits=Limits(max_bytes=3 * size)), cluster)
        assert await ends(planner, AT_THE_BEGINNING, 0.0) == [3]

    with_cluster(scenario)


def test_ranges_of_a_batch_are_cut_as_the_options_say() -> None:
    async def scenario(fakes: FakeCluster, cluster: Cluster) -> None:
        end = {TOPIC: {"0": 12}}
        at_least_three = Planner(replace(FAKE, min_partitions=3), cluster)
        assert [found.size for found in await at_least_three.ranges(AT_THE_BEGINNING, end)] == [4, 4, 4]
        at_most_five = Planner(replace(FAKE, max_records_per_partition=5), cluster)
        assert [found.size for found in await at_most_five.ranges(AT_THE_BEGINNING, end)] == [4, 4, 4]

    with_cluster(scenario)
