"""Consumers of a group on a broker: they share partitions, take them over, and go on where the group has come to."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from tests.client.test_producer import ADDRESS
from tests.server.harness import World
from tidelog.client.admin import Admin
from tidelog.client.classic_member import assign_ranges
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import BEGINNING
from tidelog.client.group_admin import GroupAdmin
from tidelog.client.group_consumer import GroupConsumer, GroupConsumerSettings
from tidelog.client.producer import Producer
from tidelog.errors import KafkaError
from tidelog.runtime.clock import Clock
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import run_virtually
from tidelog.types import TopicPartition

TOPIC = "tides"
PARTITIONS = [TopicPartition(TOPIC, index) for index in range(4)]

Scenario = Callable[[Cluster, Clock, GroupConsumerSettings], Awaitable[None]]


@pytest.fixture(params=[False, True], ids=["consumer", "classic"])
def settings(request: pytest.FixtureRequest) -> GroupConsumerSettings:
    return GroupConsumerSettings(is_classic=request.param, start_at=BEGINNING, session_timeout_ms=6000)


def with_broker(scenario: Scenario, settings: GroupConsumerSettings) -> None:
    async def main() -> None:
        world = World()
        async with world.broker(), Cluster(world.network, [ADDRESS], SeededRandomness(1)) as cluster:
            await Admin(cluster).create_topic(TOPIC, partitions=len(PARTITIONS))
            async with Producer(cluster, world.clock) as producer:
                for number in range(40):
                    await producer.send(TOPIC, b"%d" % number, partition=number % len(PARTITIONS))
            async with asyncio.timeout(600):
                await scenario(cluster, world.clock, settings)

    run_virtually(main())


async def read(consumer: GroupConsumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < count:
        values += [record.value for record in await consumer.poll(30.0)]
    return values


async def work(consumer: GroupConsumer, is_over: Callable[[], bool]) -> None:
    while not is_over():
        await consumer.poll(0.5)


async def share(cluster: Cluster, clock: Clock, settings: GroupConsumerSettings) -> None:
    async with GroupConsumer(cluster, "group", [TOPIC], settings) as first:
        assert Counter(await read(first, 40)) == Counter(b"%d" % number for number in range(40))
        assert first.partitions == frozenset(PARTITIONS)
        await first.commit()
        async with GroupConsumer(cluster, "group", [TOPIC], settings) as second:

            def are_shared() -> bool:
                return len(first.partitions) == len(second.partitions) == 2

            await asyncio.gather(work(first, are_shared), work(second, are_shared))
            assert not first.partitions & second.partitions
            assert second.positions.keys() <= second.partitions
        await work(first, lambda: len(first.partitions) == 4)


def test_members_share_partitions_and_take_them_over(settings: GroupConsumerSettings) -> None:
    with_broker(share, settings)


async def go_on(cluster: Cluster, clock: Clock, settings: GroupConsumerSettings) -> None:
    async with GroupConsumer(cluster, "group", [TOPIC], settings) as first:
        await read(first, 40)
        await first.commit(dict.fromkeys(PARTITIONS, 9))
        await first.rewind()
        assert len(await read(first, 4)) == 4
    offsets = await GroupAdmin(cluster).offsets("group")
    assert {key: found.offset for key, found in offsets.items()} == dict.fromkeys(PARTITIONS, 9)
    async with GroupConsumer(cluster, "group", [TOPIC], settings) as second:
        assert len(await read(second, 4)) == 4
        assert await second.poll(2.0) == []


def test_the_next_goes_on_where_the_group_has_come_to(settings: GroupConsumerSettings) -> None:
    with_broker(go_on, settings)


async def give_up(cluster: Cluster, clock: Clock, settings: GroupConsumerSettings) -> None:
    revoked: list[frozenset[TopicPartition]] = []
    first: GroupConsumer

    async def commit(partitions: frozenset[TopicPartition]) -> None:
        revoked.append(partitions)
        await first.commit({key: first.positions[key] for key in partitions})

    first = GroupConsumer(cluster, "group", [TOPIC], settings, on_revoked=commit)
    async with first:
        await read(first, 40)
        async with GroupConsumer(cluster, "group", [TOPIC], settings) as second:

            def are_shared() -> bool:
                return len(second.partitions) == 2

            await asyncio.gather(work(first, are_shared), work(second, are_shared))
            offsets = await GroupAdmin(cluster).offsets("group")
            assert revoked
            assert all(offsets[key].offset == 10 for key in second.partitions)
            assert await second.poll(2.0) == []


def test_what_is_given_up_is_committed_before_the_next_has_it(settings: GroupConsumerSettings) -> None:
    with_broker(give_up, settings)


async def be_replaced(cluster: Cluster, clock: Clock, settings: GroupConsumerSettings) -> None:
    """Its heartbeats do not arrive for longer than its session."""
    async with GroupConsumer(cluster, "group", [TOPIC], settings) as first:
        await read(first, 40)
        member = first.member
        heartbeats = first._membership._task
        assert heartbeats is not None
        heartbeats.cancel()
        async with GroupConsumer(cluster, "group", [TOPIC], settings) as second:
            await work(second, lambda: len(second.partitions) == 4)
            assert first.member == member
            with pytest.raises(KafkaError):
                await first.commit()
            first._membership.start()
            await asyncio.gather(
                work(first, lambda: len(first.partitions) == 2), work(second, lambda: len(second.partitions) == 2)
            )


def test_whoever_is_given_up_for_dead_may_not_commit_and_joins_again(settings: GroupConsumerSettings) -> None:
    with_broker(be_replaced, settings)


def test_ranges_are_neighbours_and_differ_by_one_at_most() -> None:
    assigned = assign_ranges({"a": ["x", "y"], "b": ["x"], "c": ["x", "z"]}, {"x": 7, "y": 2})
    assert assigned["a"] == [*(TopicPartition("x", index) for index in (0, 1, 2)), *(("y", 0), ("y", 1))]
    assert assigned["b"] == [("x", 3), ("x", 4)]
    assert assigned["c"] == [("x", 5), ("x", 6)]
