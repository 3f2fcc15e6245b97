"""Consumers of a group on a broker: they share partitions, take them over, and go on where the group has come to."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import pytest

from tests.client.test_producer import ADDRESS
from tests.server.harness import Harness
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.group_admin import GroupAdmin
from tidelog.client.consumer.consumer import BEGINNING, ConsumerSettings
from tidelog.client.consumer.consumer_settings import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.client.consumer.offsets import END, list_offsets
from tidelog.client.groups.classic_member import assign_ranges
from tidelog.client.groups.consumer_member import ConsumerMember
from tidelog.client.groups.group_consumer import GroupConsumer, GroupConsumerSettings
from tidelog.client.producer.producer import Producer
from tidelog.client.producer.transactional_producer import TransactionalProducer
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import FencedInstanceId, KafkaError, UnreleasedInstanceId
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
        harness = Harness()
        async with harness.broker(), Cluster(harness.network, [ADDRESS], SeededRandomness(1)) as cluster:
            await Admin(cluster).create_topic(TOPIC, partitions=len(PARTITIONS))
            async with Producer(cluster, harness.clock) as producer:
                for number in range(40):
                    await producer.send(TOPIC, b"%d" % number, partition=number % len(PARTITIONS))
            async with asyncio.timeout(600):
                await scenario(cluster, harness.clock, settings)

    run_virtually(main())


async def read(consumer: GroupConsumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < count:
        values += [record.value for record in await consumer.poll(30.0)]
    return values


async def work(consumer: GroupConsumer, is_over: Callable[[], bool]) -> None:
    while not is_over():
        await consumer.poll(0.5)


async def work_both(first: GroupConsumer, second: GroupConsumer, is_over: Callable[[], bool]) -> None:
    await asyncio.gather(work(first, is_over), work(second, is_over))


async def share(cluster: Cluster, clock: Clock, settings: GroupConsumerSettings) -> None:
    async with GroupConsumer(cluster, "group", [TOPIC], settings) as first:
        assert Counter(await read(first, 40)) == Counter(b"%d" % number for number in range(40))
        assert first.partitions == frozenset(PARTITIONS)
        await first.commit()
        async with GroupConsumer(cluster, "group", [TOPIC], settings) as second:

            def are_shared() -> bool:
                return len(first.partitions) == len(second.partitions) == 2

            await work_both(first, second, are_shared)
            assert not first.partitions & second.partitions
            assert second.positions.keys() <= second.partitions
        await work(first, lambda: len(first.partitions) == 4)


def test_members_share_partitions_and_take_them_over(settings: GroupConsumerSettings) -> None:
    with_broker(share, settings)


async def until_assigned(consumer: GroupConsumer, count: int) -> None:
    """It only sends heartbeats meanwhile."""
    while len(consumer._membership.assigned) != count:  # noqa: ASYNC110
        await asyncio.sleep(0.1)


async def assign_while_revoking(cluster: Cluster, clock: Clock, settings: GroupConsumerSettings) -> None:
    async with GroupConsumer(cluster, "group", [TOPIC], settings) as member:
        await work(member, lambda: len(member.partitions) == 4)
        membership = member._membership

        async def on_revoked(_revoked: frozenset[TopicPartition]) -> None:
            membership.assigned = frozenset(PARTITIONS[:1])

        member._on_revoked = on_revoked
        membership.assigned = frozenset(PARTITIONS[:2])
        await member._apply_assignment(membership.assigned)
        assert member.partitions == frozenset(PARTITIONS[:1])


def test_an_assignment_that_changes_while_partitions_are_revoked_is_not_taken(settings: GroupConsumerSettings) -> None:
    with_broker(assign_while_revoking, settings)


async def report_before_reading(cluster: Cluster, clock: Clock, settings: GroupConsumerSettings) -> None:
    async with GroupConsumer(cluster, "group", [TOPIC], settings) as busy:
        await until_assigned(busy, 4)
        membership = busy._membership
        assert isinstance(membership, ConsumerMember)
        membership._on_no_response()
        reported = membership._request(membership._held).topic_partitions
        assert reported is not None
        assert [sorted(each.partitions) for each in reported] == [[0, 1, 2, 3]]


def test_partitions_count_as_owned_from_their_assignment_on() -> None:
    """The member may begin to read them while its heartbeat is on the way (seed 1543)."""
    with_broker(report_before_reading, GroupConsumerSettings(start_at=BEGINNING))


async def take_back(cluster: Cluster, clock: Clock, settings: GroupConsumerSettings) -> None:
    """Partitions that a busy member gets and loses again before it polls are free at once for the next."""
    async with GroupConsumer(cluster, "group", [TOPIC], settings) as busy:
        await work(busy, lambda: len(busy.partitions) == 4)
        async with GroupConsumer(cluster, "group", [TOPIC], settings) as second:
            await work_both(busy, second, lambda: len(busy.partitions) == len(second.partitions) == 2)
        await until_assigned(busy, 4)
        async with GroupConsumer(cluster, "group", [TOPIC], settings) as third:
            await until_assigned(busy, 2)
            async with asyncio.timeout(settings.rebalance_timeout_ms / 2000):
                await work_both(busy, third, lambda: len(third.partitions) == 2)


def test_what_a_busy_member_never_took_is_not_waited_for() -> None:
    """The member reports what it owns after every assignment, though nothing has changed for it."""
    with_broker(take_back, GroupConsumerSettings(start_at=BEGINNING, rebalance_timeout_ms=60_000))


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

            await work_both(first, second, are_shared)
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


def test_a_member_given_up_for_dead_may_not_commit_and_joins_again(settings: GroupConsumerSettings) -> None:
    with_broker(be_replaced, settings)


async def change_ones_mind(cluster: Cluster, clock: Clock, settings: GroupConsumerSettings) -> None:
    """Polls are cancelled after each number of turns of the loop that one may take."""
    given: list[bytes | None] = []
    async with GroupConsumer(cluster, "group", [TOPIC], settings) as consumer:
        for turns in range(20):
            given += [record.value for record in await consumer.poll(1.0)]
            await asyncio.sleep(1.0)
            polling = asyncio.ensure_future(consumer.poll())
            for _ in range(turns):
                await asyncio.sleep(0)
            polling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                given += [record.value for record in await polling]
        while records := await consumer.poll(2.0):
            given += [record.value for record in records]
    assert Counter(given) == Counter(b"%d" % number for number in range(40))


def test_a_poll_that_is_cancelled_loses_nothing(settings: GroupConsumerSettings) -> None:
    with_broker(change_ones_mind, settings._replace(reading=ConsumerSettings(partition_max_bytes=100)))


# -- members that come back, and members that stay away


def test_a_static_member_that_comes_back_has_its_partitions_and_moves_nobody(settings: GroupConsumerSettings) -> None:
    async def scenario(cluster: Cluster, clock: Clock, settings: GroupConsumerSettings) -> None:
        async with GroupConsumer(cluster, "group", [TOPIC], settings._replace(instance_id="a")) as first:
            second = GroupConsumer(cluster, "group", [TOPIC], settings._replace(instance_id="b"))
            async with second:

                def are_shared() -> bool:
                    return len(first.partitions) == len(second.partitions) == 2

                await work_both(first, second, are_shared)
                theirs, generation = second.partitions, first.member.generation
                await second.commit()
            third = GroupConsumer(cluster, "group", [TOPIC], settings._replace(instance_id="b"))
            async with third:
                await asyncio.gather(
                    work(first, lambda: bool(third.partitions)), work(third, lambda: bool(third.partitions))
                )
                await third.commit()
                await first.commit()
                assert third.partitions == theirs
                assert third.member.member_id != second.member.member_id
                assert first.member.generation == generation
            await asyncio.sleep(1.0)
            group = await GroupAdmin(cluster).describe("group")
            assert {member.instance_id for member in group.members} == {"a", "b"}

    with_broker(scenario, settings)


def test_of_two_with_the_same_instance_id_one_gets_an_error(settings: GroupConsumerSettings) -> None:
    """In a consumer group the one that comes, in a classic group the one that was there."""

    async def scenario(cluster: Cluster, clock: Clock, settings: GroupConsumerSettings) -> None:
        static = settings._replace(instance_id="a")
        async with GroupConsumer(cluster, "group", [TOPIC], static) as first:
            await work(first, lambda: len(first.partitions) == 4)
            async with GroupConsumer(cluster, "group", [TOPIC], static) as second:
                left, stays = (first, second) if settings.is_classic else (second, first)
                with pytest.raises(FencedInstanceId if settings.is_classic else UnreleasedInstanceId):
                    await asyncio.gather(work(stays, lambda: False), work(left, lambda: False))
                await work(stays, lambda: len(stays.partitions) == 4)

    with_broker(scenario, settings)


def test_a_member_that_does_not_poll_for_too_long_gives_its_partitions_up_until_it_does(
    settings: GroupConsumerSettings,
) -> None:
    async def scenario(cluster: Cluster, clock: Clock, settings: GroupConsumerSettings) -> None:
        async with (
            GroupConsumer(cluster, "group", [TOPIC], settings) as first,
            GroupConsumer(cluster, "group", [TOPIC], settings) as second,
        ):

            def are_shared() -> bool:
                return len(first.partitions) == len(second.partitions) == 2

            await work_both(first, second, are_shared)
            began = asyncio.get_running_loop().time()
            await work(second, lambda: len(second.partitions) == 4)
            waited_s = round(asyncio.get_running_loop().time() - began, 6)  # virtual times add up with rounding errors
            assert 20.0 <= waited_s < 30.0
            with pytest.raises(KafkaError):
                await first.commit()
            await work_both(first, second, are_shared)
            await first.poll(60.0)  # a member that waits for records is not away
            assert are_shared()

    with_broker(scenario, settings._replace(max_poll_interval_ms=20_000))


# -- transactions


async def write_transactions(cluster: Cluster, clock: Clock, outcomes: Sequence[bool]) -> list[bytes]:
    """Each with two records for each partition; the values of those that were committed."""
    committed = []
    async with TransactionalProducer(cluster, clock, "writer") as producer:
        for number, is_committed in enumerate(outcomes):
            producer.begin()
            values = [b"transaction %d record %d" % (number, index) for index in range(2 * len(PARTITIONS))]
            for index, value in enumerate(values):
                await producer.send(TOPIC, value, partition=index % len(PARTITIONS))
            if is_committed:
                await producer.commit()
                committed += values
            else:
                await producer.abort()
    return committed


async def lags(cluster: Cluster, group_id: str) -> dict[TopicPartition, int]:
    committed = await GroupAdmin(cluster).offsets(group_id)
    ends = await list_offsets(cluster, dict.fromkeys(PARTITIONS, END))
    return {key: ends[key].offset - committed[key].offset for key in PARTITIONS}


@pytest.mark.parametrize("isolation_level", [READ_COMMITTED, READ_UNCOMMITTED])
@pytest.mark.parametrize("outcomes", [[True], [True, False, False], [False]], ids=["committed", "both", "aborted"])
def test_a_member_that_has_read_transactions_to_their_end_has_no_lag(
    settings: GroupConsumerSettings, isolation_level: int, outcomes: list[bool]
) -> None:
    async def scenario(cluster: Cluster, clock: Clock, settings: GroupConsumerSettings) -> None:
        await write_transactions(cluster, clock, outcomes)
        async with GroupConsumer(cluster, "group", [TOPIC], settings) as consumer:
            while await consumer.poll(10.0):
                pass
            await consumer.commit()
        assert await lags(cluster, "group") == dict.fromkeys(PARTITIONS, 0)

    with_broker(scenario, settings._replace(reading=ConsumerSettings(isolation_level)))


def test_what_is_committed_is_never_ahead_of_what_was_given(settings: GroupConsumerSettings) -> None:
    """The next owner begins at the committed offset: it gets what was fetched before and not delivered."""

    async def scenario(cluster: Cluster, clock: Clock, settings: GroupConsumerSettings) -> None:
        expected = await write_transactions(cluster, clock, [True, False, True, True, False])
        expected += [b"%d" % number for number in range(40)]
        given: list[bytes | None] = []
        while len(given) < len(expected):
            async with GroupConsumer(cluster, "group", [TOPIC], settings) as consumer:
                for _ in range(3):
                    given += [record.value for record in await consumer.poll(30.0)]
                    await asyncio.sleep(1.0)
                    await consumer.commit()
        assert Counter(given) == Counter(expected)

    with_broker(scenario, settings._replace(reading=ConsumerSettings(READ_COMMITTED, partition_max_bytes=300)))


def test_what_was_not_given_goes_to_the_next_owner_of_the_partition(settings: GroupConsumerSettings) -> None:
    async def scenario(cluster: Cluster, clock: Clock, settings: GroupConsumerSettings) -> None:
        expected = await write_transactions(cluster, clock, [True, False, True, False])
        expected += [b"%d" % number for number in range(40)]
        given: list[bytes | None] = []

        async def take_turns(is_over: Callable[[], bool]) -> None:
            consumer: GroupConsumer

            async def commit(partitions: frozenset[TopicPartition]) -> None:
                await consumer.commit({key: consumer.positions[key] for key in partitions & consumer.positions.keys()})

            consumer = GroupConsumer(cluster, "group", [TOPIC], settings, on_revoked=commit)
            async with consumer:
                while not is_over():
                    given.extend(record.value for record in await consumer.poll(1.0))
                await consumer.commit()

        def is_all_given() -> bool:
            return len(given) >= len(expected)

        def is_some_given() -> bool:
            return len(given) >= 12

        await asyncio.gather(take_turns(is_some_given), take_turns(is_all_given), take_turns(is_all_given))
        assert Counter(given) == Counter(expected)

    with_broker(scenario, settings._replace(reading=ConsumerSettings(READ_COMMITTED, partition_max_bytes=300)))


def test_ranges_are_neighbours_and_differ_by_one_at_most() -> None:
    assigned = assign_ranges({"a": ["x", "y"], "b": ["x"], "c": ["x", "z"]}, {"x": 7, "y": 2})
    assert assigned["a"] == [*(TopicPartition("x", index) for index in (0, 1, 2)), *(("y", 0), ("y", 1))]
    assert assigned["b"] == [("x", 3), ("x", 4)]
    assert assigned["c"] == [("x", 5), ("x", 6)]
