"""Transactions, groups of them, and committed offsets, as a client of a real broker has them."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.client.test_producer import ADDRESS
from tests.server.harness import Harness, batch_of
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.group_admin import GroupAdmin
from tidelog.client.admin.transaction_admin import TransactionAdmin
from tidelog.client.consumer.consumer import BEGINNING, Consumer, ConsumerSettings
from tidelog.client.consumer.consumer_settings import READ_COMMITTED
from tidelog.client.groups.group_offsets import Committed, GroupMember
from tidelog.client.producer.encoded_batches import BatchProducer, EncodedBatch
from tidelog.client.producer.transaction_group import OpenGroup, TransactionGroup, member_identity
from tidelog.client.producer.transactional_identity import TransactionalIdentity
from tidelog.client.producer.transactional_producer import TransactionalProducer
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.coordinators import Coordinators
from tidelog.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    MessageTooLarge,
    ProducerFenced,
    TransactionalIdNotFound,
)
from tidelog.runtime.clock import Clock
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import run_virtually
from tidelog.types import TopicPartition

TOPIC = "tides"
FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
FENCED = (ProducerFenced, InvalidProducerEpoch)

Scenario = Callable[[Cluster, Clock], Awaitable[None]]


def with_broker(scenario: Scenario) -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker(), Cluster(harness.network, [ADDRESS], SeededRandomness(1)) as cluster:
            await Admin(cluster).create_topic(TOPIC, partitions=2)
            await scenario(cluster, harness.clock)

    run_virtually(main())


@pytest.fixture(params=[True, False], ids=["implicit partitions", "explicit partitions"])
def versions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions of version 2, and of version 1 as with older brokers."""
    if not request.param:
        monkeypatch.setattr(TransactionalIdentity, "update_features", lambda self, connection: None)


async def committed_values(cluster: Cluster) -> list[bytes | None]:
    async with Consumer(cluster, ConsumerSettings(isolation_level=READ_COMMITTED)) as consumer:
        await consumer.assign({FIRST: BEGINNING, SECOND: BEGINNING})
        values = []
        while records := await consumer.poll(2.0):
            values += [record.value for record in records]
        return sorted(values, key=lambda value: value or b"")


@pytest.mark.usefixtures("versions")
def test_what_is_committed_is_read_and_what_is_aborted_never() -> None:
    async def scenario(cluster: Cluster, clock: Clock) -> None:
        async with TransactionalProducer(cluster, clock, "writer") as producer:
            for number in range(4):
                producer.begin()
                await producer.send(TOPIC, b"%d a" % number, partition=0)
                await producer.send(TOPIC, b"%d b" % number, partition=1)
                await (producer.commit() if number % 2 else producer.abort())
            producer.begin()
            await producer.commit()  # nothing in it: nobody has to be asked
        assert await committed_values(cluster) == [b"1 a", b"1 b", b"3 a", b"3 b"]

    with_broker(scenario)


@pytest.mark.usefixtures("versions")
def test_offsets_count_with_the_transaction_that_has_them() -> None:
    async def scenario(cluster: Cluster, clock: Clock) -> None:
        groups = GroupAdmin(cluster)
        async with TransactionalProducer(cluster, clock, "writer") as producer:
            for offset, is_committed in ((5, True), (9, False)):
                producer.begin()
                await producer.send(TOPIC, b"%d" % offset, partition=0)
                await producer.send_offsets({FIRST: offset}, GroupMember("readers"))
                await (producer.commit() if is_committed else producer.abort())
        assert await groups.offsets("readers") == {FIRST: Committed(5)}

    with_broker(scenario)


@pytest.mark.usefixtures("versions")
def test_a_transaction_with_a_hole_is_never_committed_by_anybody() -> None:
    async def scenario(cluster: Cluster, clock: Clock) -> None:
        async with TransactionalProducer(cluster, clock, "writer") as producer:
            producer.begin()
            await producer.send(TOPIC, b"small", partition=0)
            await producer.enqueue(TOPIC, bytes(2_000_000), partition=1)
            with pytest.raises(MessageTooLarge):
                await producer.flush()
            with pytest.raises(InvalidTxnState):
                await producer.commit()
            await producer.abort()
            producer.begin()
            await producer.send(TOPIC, b"another", partition=0)
            await producer.commit()
        assert await committed_values(cluster) == [b"another"]

    with_broker(scenario)


@pytest.mark.usefixtures("versions")
def test_a_transaction_whose_offsets_were_refused_is_never_committed() -> None:
    async def scenario(cluster: Cluster, clock: Clock) -> None:
        async with TransactionalProducer(cluster, clock, "writer") as producer:
            producer.begin()
            await producer.send(TOPIC, b"written", partition=0)
            with pytest.raises(IllegalGeneration):
                await producer.send_offsets({FIRST: 1}, GroupMember("readers", generation=7, member_id="nobody"))
            with pytest.raises(InvalidTxnState):
                await producer.commit()
            await producer.abort()
        assert await committed_values(cluster) == []

    with_broker(scenario)


@pytest.mark.usefixtures("versions")
def test_outside_of_a_transaction_nothing_is_written_and_nothing_ended() -> None:
    async def scenario(cluster: Cluster, clock: Clock) -> None:
        async with TransactionalProducer(cluster, clock, "writer") as producer:
            for attempt in (producer.send_offsets({FIRST: 1}, GroupMember("readers")), producer.commit()):
                with pytest.raises(InvalidTxnState):
                    await attempt
            (listed,) = await TransactionAdmin(cluster).list_transactions()
            assert listed.state == "Empty"

    with_broker(scenario)


@pytest.mark.usefixtures("versions")
def test_later_producer_of_an_id_fences_the_earlier_one() -> None:
    async def scenario(cluster: Cluster, clock: Clock) -> None:
        async with TransactionalProducer(cluster, clock, "writer") as earlier:
            earlier.begin()
            await earlier.send(TOPIC, b"of the earlier one", partition=0)
            async with TransactionalProducer(cluster, clock, "writer") as later:
                with pytest.raises(FENCED):
                    await earlier.commit()
                later.begin()
                await later.send(TOPIC, b"of the later one", partition=0)
                await later.commit()
            with pytest.raises(KafkaError):
                await earlier.send(TOPIC, b"too late", partition=0)
        assert await committed_values(cluster) == [b"of the later one"]

    with_broker(scenario)


def test_writing_needs_an_open_transaction() -> None:
    async def scenario(cluster: Cluster, clock: Clock) -> None:
        async with TransactionalProducer(cluster, clock, "writer") as producer:
            with pytest.raises(InvalidTxnState, match="begin one first"):
                await producer.send(TOPIC, b"outside", partition=0)
            producer.begin()
            with pytest.raises(InvalidTxnState, match="commit or abort it first"):
                producer.begin()
            await producer.abort()

    with_broker(scenario)


def test_an_operator_sees_transactions_and_ends_them() -> None:
    async def scenario(cluster: Cluster, clock: Clock) -> None:
        admin = TransactionAdmin(cluster)
        with pytest.raises(TransactionalIdNotFound):
            await admin.describe("writer")
        async with TransactionalProducer(cluster, clock, "writer", transaction_timeout_ms=50_000) as producer:
            producer.begin()
            await producer.send(TOPIC, b"open", partition=1)
            found = await admin.describe("writer")
            assert (found.state, found.timeout_ms, found.partitions) == ("Ongoing", 50_000, (SECOND,))
            assert [each.state for each in await admin.list_transactions(["Ongoing"])] == ["Ongoing"]
            (hanging,) = await admin.producers(SECOND)
            assert (hanging.producer_id, hanging.current_txn_start_offset) == (found.producer_id, 0)
            await admin.fence("writer")
            with pytest.raises(FENCED):
                await producer.commit()
        assert await committed_values(cluster) == []

    with_broker(scenario)


def test_committed_offsets_of_a_group_without_members_and_its_end() -> None:
    async def scenario(cluster: Cluster, clock: Clock) -> None:
        groups = GroupAdmin(cluster)
        assert await groups.list_groups() == []
        await groups.commit("readers", {FIRST: 3, SECOND: 4})
        assert await groups.offsets("readers") == {FIRST: Committed(3), SECOND: Committed(4)}
        assert [(group.group_id, group.state) for group in await groups.list_groups()] == [("readers", "Empty")]
        described = await groups.describe("readers")
        assert (described.kind, described.state, described.members) == ("classic", "Empty", ())
        await groups.delete("readers")
        with pytest.raises(GroupIdNotFound):
            await groups.describe("readers")
        with pytest.raises(GroupIdNotFound):
            await groups.delete("readers")
        assert await groups.offsets("readers") == {}

    with_broker(scenario)


# -- transaction groups


class Drivers:
    """Drives transaction groups of one name, with members that write one record each."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster)

    def group(self) -> TransactionGroup:
        return TransactionGroup(self._coordinators, "copies", timeout_s=30, transaction_timeout_ms=60_000)

    async def write(self, opened: OpenGroup, member: str, value: bytes, partition: TopicPartition = FIRST) -> str:
        identity = member_identity(self._coordinators, opened, member, timeout_s=30, transaction_timeout_ms=60_000)
        await identity.initialize()
        identity.begin()
        async with BatchProducer(self._cluster, identity=identity) as producer:
            await producer.send(partition, EncodedBatch(bytearray(batch_of(value)), 1))
        return identity.transactional_id


def with_drivers(scenario: Callable[[Cluster, Drivers], Awaitable[None]]) -> None:
    async def with_clock(cluster: Cluster, clock: Clock) -> None:
        await scenario(cluster, Drivers(cluster))

    with_broker(with_clock)


def test_one_decision_counts_for_all_members() -> None:
    async def scenario(cluster: Cluster, drivers: Drivers) -> None:
        group = drivers.group()
        opened = await group.open()
        assert opened.last_batch_id == -1
        winners = await asyncio.gather(
            drivers.write(opened, "0.0", b"first task"), drivers.write(opened, "1.1", b"second task, again", SECOND)
        )
        await drivers.write(opened, "1.0", b"second task, lost", SECOND)
        assert await committed_values(cluster) == []
        await group.commit(opened, 0, winners)
        assert await committed_values(cluster) == [b"first task", b"second task, again"]
        assert (await group.open()).last_batch_id == 0

    with_drivers(scenario)


def test_an_aborted_batch_leaves_nothing_and_can_be_run_again() -> None:
    async def scenario(cluster: Cluster, drivers: Drivers) -> None:
        group = drivers.group()
        opened = await group.open()
        await drivers.write(opened, "0.0", b"first try")
        await group.abort(opened)
        again = await group.open()
        await group.commit(again, 7, [await drivers.write(again, "0.0", b"second try")])
        assert await committed_values(cluster) == [b"second try"]
        assert (await group.open()).last_batch_id == 7

    with_drivers(scenario)


def test_driver_that_comes_later_fences_the_earlier_one_and_its_members() -> None:
    async def scenario(cluster: Cluster, drivers: Drivers) -> None:
        earlier, later = drivers.group(), drivers.group()
        opened = await earlier.open()
        member = await drivers.write(opened, "0.0", b"of the earlier driver")
        taken_over = await later.open()
        with pytest.raises(FENCED):
            await earlier.commit(opened, 0, [member])
        with pytest.raises(FENCED):
            await drivers.write(opened, "1.0", b"of a task that is late")
        await later.commit(taken_over, 0, [await drivers.write(taken_over, "0.0", b"of the later driver")])
        assert await committed_values(cluster) == [b"of the later driver"]

    with_drivers(scenario)


def test_a_batch_is_committed_once_however_often_it_is_asked_for() -> None:
    async def scenario(cluster: Cluster, drivers: Drivers) -> None:
        group = drivers.group()
        opened = await group.open()
        member = await drivers.write(opened, "0.0", b"once")
        await group.commit(opened, 3, [member])
        await group.commit(opened, 3, [member])
        again = await group.open()
        await group.commit(again, 3, [await drivers.write(again, "0.0", b"twice")])
        assert await committed_values(cluster) == [b"once"]

    with_drivers(scenario)


def test_an_empty_batch_is_remembered_too() -> None:
    async def scenario(cluster: Cluster, drivers: Drivers) -> None:
        group = drivers.group()
        await group.commit(await group.open(), 0, [])
        assert (await group.open()).last_batch_id == 0

    with_drivers(scenario)


def test_a_transaction_group_that_is_ended_by_hand_stays_closed() -> None:
    async def scenario(cluster: Cluster, clock: Clock) -> None:
        group = TransactionGroup(Coordinators(cluster), "query", timeout_s=30, transaction_timeout_ms=60_000)
        opened = await group.open()
        await group.commit(opened, 4, [])
        opened = await group.open()
        admin = TransactionAdmin(cluster)
        await admin.fence(opened.group_id)
        assert (await admin.describe(opened.group_id)).state == "CompleteAbort"
        with pytest.raises(FENCED):
            await group.commit(opened, 5, [])
        assert (await group.open()).last_batch_id == 4

    with_broker(scenario)


def test_a_member_of_a_transaction_group_is_not_ended_by_itself() -> None:
    async def scenario(cluster: Cluster, clock: Clock) -> None:
        coordinators = Coordinators(cluster)
        group = TransactionGroup(coordinators, "query", timeout_s=30, transaction_timeout_ms=60_000)
        opened = await group.open()
        member = member_identity(coordinators, opened, "task", timeout_s=30, transaction_timeout_ms=60_000)
        await member.initialize()
        with pytest.raises(InvalidTxnState, match=opened.group_id):
            await TransactionAdmin(cluster).fence(opened.member_id("task"))
        await group.commit(opened, 5, [opened.member_id("task")])

    with_broker(scenario)
