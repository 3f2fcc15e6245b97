"""Fetch sessions, through the wire protocol, on virtual time: what they answer, and what they cost."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from tests.allocations import assert_leaves_no_cycles
from tests.server.harness import Client, Harness, batch_of, fetch_request, produce_request, with_broker
from tests.server.session_reader import IDS_VERSION, SessionReader, by_index, errors, topic_id_of
from tidelog.errors import (
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InconsistentTopicId,
    InvalidFetchSessionEpoch,
    OffsetOutOfRange,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.protocol.messages.fetch import FetchPartition, FetchResponse, PartitionData
from tidelog.protocol.record_batch import read_header
from tidelog.replication.assignment import PartitionAssignment
from tidelog.replication.fetch_reads import FetchParams
from tidelog.replication.partition import Partition
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server.broker import Broker
from tidelog.server.fetch_sessions import LAST_EPOCH
from tidelog.types import TopicPartition


async def reader_of(client: Client, partitions: int, **options: int) -> SessionReader:
    """A session with all partitions of topic t, from their start."""
    reader = SessionReader(client, **options)
    for index in range(partitions):
        reader.wants("t", index, 0)
    assert set(await reader.fetch()) == set(range(partitions))
    return reader


async def delete_records(client: Client, offset: int) -> None:
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[wanted])], timeout_ms=1000)
    response = await client.ask(request, 2, DeleteRecordsResponse)
    assert response.topics[0].partitions[0].error_code == 0


@contextmanager
def counted_reads() -> Iterator[list[int]]:
    """The partitions that are read meanwhile."""
    fetch_records, indexes = Partition.fetch_records, []

    def counting(
        self: Partition, params: FetchParams, request: FetchPartition, max_bytes: int, **options: Any
    ) -> PartitionData:
        indexes.append(request.partition)
        return fetch_records(self, params, request, max_bytes, **options)

    with patch.object(Partition, "fetch_records", counting):
        yield indexes


def test_a_session_answers_with_what_changed_only() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", 3)
        reader = await reader_of(client, 3)
        assert await reader.fetch() == {}
        await client.produce("t", b"x", partition=1)
        responses = await reader.fetch()
        assert list(responses) == [1]
        assert responses[1].records
        assert responses[1].high_watermark == 1
        reader.wants("t", 1, 1)
        assert await reader.fetch() == {}

    with_broker(scenario)


def test_a_thousand_partitions_of_which_one_moves_cost_what_one_costs() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", 1000)
        producer = await harness.connect()
        reader = await reader_of(client, 1000)
        with counted_reads() as reads:
            for offset in range(10):
                waiting = reader.start(max_wait_ms=30_000)
                await asyncio.sleep(0.1)
                await producer.produce("t", b"x", partition=700)
                assert list(await waiting) == [700]
                assert reader.last_request is not None
                assert len(reader.last_request.topics) == (1 if offset else 0)
                reader.wants("t", 700, offset + 1)
            assert set(reads) == {700}
            assert len(reads) <= 2 * 10  # once when the request comes, once when there are records
            reads.clear()
            await reader.fetch(max_wait_ms=500)  # the one that moved last is looked at once more
            for _ in range(10):
                assert await reader.fetch(max_wait_ms=500) == {}
            assert len(reads) <= 2

    with_broker(scenario)


def test_a_waiting_session_is_one_wait_and_ends_at_its_deadline() -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("t", 50)
            reader = await reader_of(client, 50)
            started = harness.clock.monotonic()
            waiting = reader.start(max_wait_ms=700)
            await asyncio.sleep(0.1)
            assert sum(len(partition.watchers.operations) for partition in broker._services.replicas) == 0
            assert broker._services.purgatory.size == 1
            assert await waiting == {}
            assert 0.7 <= harness.clock.monotonic() - started < 0.72

    run_virtually(scenario())


def test_min_bytes_are_gathered_from_all_partitions_of_a_session() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", 3)
        producer = await harness.connect()
        reader = await reader_of(client, 3)
        waiting = reader.start(max_wait_ms=30_000, min_bytes=600)
        for index in (0, 1, 0):
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await producer.produce("t", b"x" * 150, partition=index)
        assert set(await waiting) == {0, 1}

    with_broker(scenario)


def test_records_are_sent_again_to_a_reader_that_does_not_move_on() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", 2)
        reader = await reader_of(client, 2)
        await client.produce("t", b"x")
        for _ in range(3):
            assert (await reader.fetch())[0].records

    with_broker(scenario)


def test_a_reader_that_asks_again_without_moving_on_gets_the_high_watermark_again() -> None:
    """It was not ready for the answer: a follower reconciles with its leader whenever the leader epoch changes."""

    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", 1)
        reader = await reader_of(client, 1)
        await client.produce("t", b"x")
        assert (await reader.fetch())[0].high_watermark == 1
        reader.wants("t", 0, 1)
        assert await reader.fetch() == {}
        reader.session.remove(TopicPartition("t", 0))
        reader.wants("t", 0, 1)
        assert (await reader.fetch())[0].high_watermark == 1
        assert await reader.fetch() == {}

    with_broker(scenario)


def test_a_new_log_start_is_returned() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", 2)
        await client.produce("t", b"a")
        await client.produce("t", b"b")
        reader = await reader_of(client, 2)
        reader.wants("t", 0, 2)
        await reader.fetch()
        assert await reader.fetch() == {}
        waiting = reader.start(max_wait_ms=500)
        await asyncio.sleep(0.1)
        await delete_records(await harness.connect(), 1)
        await asyncio.sleep(0.1)
        assert not waiting.done(), "a new log start is no reason to answer"
        assert (await waiting)[0].log_start_offset == 1
        assert await reader.fetch() == {}

    with_broker(scenario)


def test_an_offset_that_falls_out_of_the_log_ends_the_wait() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", 2)
        for value in (b"a", b"b", b"c"):
            await client.produce("t", value)
        reader = await reader_of(client, 2)
        reader.wants("t", 0, 1)
        await delete_records(client, 2)
        assert errors(await reader.fetch(max_wait_ms=30_000)) == {0: OffsetOutOfRange.code}

    with_broker(scenario)


def test_a_partition_with_an_error_is_named_every_time_until_all_is_well() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        reader = SessionReader(client)
        reader.wants("t", 0, 0)
        for _ in range(3):
            assert errors(await reader.fetch(max_wait_ms=30_000)) == {0: UnknownTopicOrPartition.code}
        await client.create_topic("t")
        responses = await reader.fetch()
        assert errors(responses) == {0: 0}
        assert responses[0].high_watermark == 0
        waiting = reader.start(max_wait_ms=30_000)
        await (await harness.connect()).produce("t", b"x")
        assert (await waiting)[0].records

    with_broker(scenario)


def test_offsets_out_of_range_are_named_every_time() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        reader = SessionReader(client)
        reader.wants("t", 0, 7)
        for _ in range(3):
            assert errors(await reader.fetch(max_wait_ms=30_000)) == {0: OffsetOutOfRange.code}

    with_broker(scenario)


def test_forgotten_partitions_are_neither_answered_nor_waited_for() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", 3)
        reader = await reader_of(client, 3)
        reader.session.remove(TopicPartition("t", 1))
        await client.produce("t", b"x", partition=1)
        waiting = reader.start(max_wait_ms=500)
        await asyncio.sleep(0.1)
        await (await harness.connect()).produce("t", b"y", partition=1)
        assert await waiting == {}

    with_broker(scenario)


def test_a_session_without_partitions_is_closed() -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("t", 2)
            reader = await reader_of(client, 2)
            assert broker._services.fetch_sessions.statistics().partitions == 2
            for index in range(2):
                reader.session.remove(TopicPartition("t", index))
            response = await client.ask(reader.request(max_wait_ms=30_000), 12, FetchResponse)
            assert (response.error_code, response.session_id) == (0, 0)
            assert broker._services.fetch_sessions.statistics().sessions == 0
            assert_nobody_observes(broker)

    run_virtually(scenario())


def assert_nobody_observes(broker: Broker) -> None:
    for partition in broker._services.replicas:
        assert not partition.watchers.observers
        assert not partition.end_watchers.observers


@pytest.mark.parametrize("session_epoch", [0, -1])
def test_a_full_request_closes_the_session_it_names(session_epoch: int) -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("t", 2)
            reader = await reader_of(client, 2)
            closing = fetch_request("t", 0, max_wait_ms=0)
            closing.session_id, closing.session_epoch = reader.request().session_id, session_epoch
            response = await client.ask(closing, 12, FetchResponse)
            assert list(by_index(response)) == [0]
            assert (response.session_id == 0) == (session_epoch == -1)
            assert response.session_id != closing.session_id
            statistics = broker._services.fetch_sessions.statistics()
            assert (statistics.sessions, statistics.partitions) == ((0, 0) if session_epoch == -1 else (1, 1))
            if session_epoch == -1:
                assert_nobody_observes(broker)

    run_virtually(scenario())


def test_requests_out_of_step_are_refused() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        reader = await reader_of(client, 1)
        request = reader.request()

        async def rejection(session_id: int, session_epoch: int, version: int = 12) -> int:
            request.session_id, request.session_epoch = session_id, session_epoch
            response = await client.ask(request, version, FetchResponse)
            assert response.responses == []
            return response.error_code

        session_id = request.session_id
        assert await rejection(session_id, 2) == InvalidFetchSessionEpoch.code
        assert await rejection(session_id ^ 1, 1) == FetchSessionIdNotFound.code
        assert await rejection(0, 1) == FetchSessionIdNotFound.code
        assert await rejection(session_id, 1, version=13) == FetchSessionTopicIdError.code
        assert await rejection(session_id, 1) == 0
        assert await rejection(session_id, 1) == InvalidFetchSessionEpoch.code

    with_broker(scenario)


def test_session_epochs_go_round() -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("t")
            reader = await reader_of(client, 1)
            (session,) = broker._services.fetch_sessions._sessions.values()
            session.epoch = reader.session._epoch = LAST_EPOCH
            await reader.fetch()
            assert session.epoch == 1
            await reader.fetch()

    run_virtually(scenario())


def test_a_later_request_ends_the_wait_of_the_one_before() -> None:
    """A follower that got a partition to follow does not wait for records of the others first."""

    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        reader = await reader_of(client, 1)
        earlier = client.start(reader.request(max_wait_ms=30_000), 12)
        await asyncio.sleep(1)
        reader.session.on_response(FetchResponse(session_id=reader.session._session_id))
        later = client.start(reader.request(max_wait_ms=100), 12)
        await asyncio.sleep(0)
        assert (await earlier).error_code == 0  # type: ignore[attr-defined]
        assert not later.done()
        await client.produce("t", b"x")
        answered = await later
        assert isinstance(answered, FetchResponse)
        assert answered.responses[0].partitions[0].records

    with_broker(scenario)


def test_what_max_bytes_left_out_comes_first_the_next_time() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", 4)
        for index in range(4):
            for _ in range(3):
                await client.produce("t", b"x" * 1000, partition=index)
        reader = SessionReader(client)
        offsets = dict.fromkeys(range(4), 0)
        served: list[int] = []
        for index in range(4):
            reader.wants("t", index, 0, partition_max_bytes=1100)
        for _ in range(12):
            responses = await reader.fetch(max_bytes=1100)
            (index,) = (index for index, data in responses.items() if data.records)
            served.append(index)
            offsets[index] = read_header(bytes(responses[index].records or b"")).end_offset  # type: ignore[arg-type]
            reader.wants("t", index, offsets[index], partition_max_bytes=1100)
        assert served == [0, 1, 2, 3] * 3
        assert set(offsets.values()) == {3}
        assert await reader.fetch(max_bytes=1100) == {}

    with_broker(scenario)


def test_a_new_leader_epoch_is_noticed_inside_a_session() -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("t")
            reader = SessionReader(client)
            reader.wants("t", 0, 0, current_leader_epoch=0)
            assert errors(await reader.fetch()) == {0: 0}
            waiting = reader.start(max_wait_ms=30_000)
            await asyncio.sleep(0.1)
            replicas = broker._services.replicas
            partition = replicas.get("t", 0)
            assignment = PartitionAssignment(
                partition.topic_partition, partition.topic_id, 1, 0, 1, (0,), version=1, replicas=(0,)
            )
            replicas.become_leader_or_follower(replicas.controller_epoch, [assignment], {})
            assert errors(await waiting) == {0: FencedLeaderEpoch.code}
            reader.wants("t", 0, 0, current_leader_epoch=1)
            assert errors(await reader.fetch()) == {0: 0}

    run_virtually(scenario())


def test_a_recreated_topic_is_another_topic_by_its_id_and_the_same_by_its_name() -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("t")
            by_name, by_id = SessionReader(client), SessionReader(await harness.connect(), version=IDS_VERSION)
            by_name.wants("t", 0, 0)
            by_id.wants("t", 0, 0, topic_id_of(broker, "t"))
            assert errors(await by_name.fetch()) == errors(await by_id.fetch()) == {0: 0}
            waiting = by_name.start(max_wait_ms=30_000), by_id.start(max_wait_ms=30_000)
            await asyncio.sleep(0.1)
            admin = await harness.connect()
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
            assert (await admin.ask(request, 6, DeleteTopicsResponse)).responses[0].error_code == 0
            for task in waiting:
                assert errors(await task)[0] != 0
            await asyncio.sleep(1)
            await admin.create_topic("t")
            await admin.produce("t", b"new")
            assert (await by_name.fetch())[0].records
            assert errors(await by_id.fetch()) == {0: UnknownTopicId.code}
            by_id.wants("t", 0, 0, topic_id_of(broker, "t"))
            responses = await by_id.fetch()
            assert list(responses) == [0]
            assert responses[0].records

    run_virtually(scenario())


def test_a_recreated_topic_between_two_fetches_is_found_by_its_name() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        await client.produce("t", b"old")
        reader = await reader_of(client, 1)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
        assert (await client.ask(request, 6, DeleteTopicsResponse)).responses[0].error_code == 0
        await asyncio.sleep(1)
        await client.create_topic("t")
        responses = await reader.fetch()
        assert (responses[0].error_code, responses[0].high_watermark) == (0, 0)
        waiting = reader.start(max_wait_ms=30_000)
        await (await harness.connect()).produce("t", b"new")
        await asyncio.sleep(0.1)
        assert waiting.done()

    with_broker(scenario)


def test_a_partition_of_another_topic_of_the_same_name_is_not_served_by_id() -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("t")
            cluster = broker._services.cluster
            cluster.apply(cluster.image.with_topics(replace(cluster.image.topics["t"], topic_id=b"another" + bytes(9))))
            reader = SessionReader(client, version=IDS_VERSION)
            reader.wants("t", 0, 0, topic_id_of(broker, "t"))
            assert errors(await reader.fetch()) == {0: InconsistentTopicId.code}

    run_virtually(scenario())


def test_cold_records_of_a_session_are_read_by_a_worker_and_changes_meanwhile_are_not_missed() -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            await client.create_topic("t", 2, segment_bytes="1048576")
            for index in range(30):
                await client.produce("t", b"%d" % index + b"x" * 100_000)
            harness.disk.uncached_paths.add("/logs/t-0/00000000000000000000.log")
            reader = await reader_of(client, 2)
            reader.wants("t", 0, 3)
            waiting = reader.start(max_wait_ms=30_000)
            await (await harness.connect()).produce("t", b"x", partition=1)
            assert 0 in await waiting
            reader.wants("t", 0, 30)
            assert (await reader.fetch())[1].records

    run_virtually(scenario())


def test_without_slots_every_fetch_is_a_full_one() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", 2)
        reader = await reader_of(client, 2)
        assert reader.request().session_id == 0
        reader.session.on_lost()
        assert set(await reader.fetch()) == {0, 1}

    with_broker(scenario, max_incremental_fetch_session_cache_slots=0)


def test_an_evicted_session_is_answered_and_not_known_any_more() -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker(max_incremental_fetch_session_cache_slots=1) as broker:
            client = await harness.connect()
            await client.create_topic("t", 3)
            reader = await reader_of(client, 2)
            await asyncio.sleep(121)
            waiting = client.start(reader.request(max_wait_ms=200_000), 12)
            await asyncio.sleep(1)
            larger = await reader_of(await harness.connect(), 3)
            assert waiting.done()
            assert (await waiting).error_code == FetchSessionIdNotFound.code  # type: ignore[attr-defined]
            assert await larger.fetch() == {}
            statistics = broker._services.fetch_sessions.statistics()
            assert (statistics.sessions, statistics.partitions, statistics.evictions) == (1, 3, 1)

    run_virtually(scenario())


def test_sessions_leave_nothing_for_the_garbage_collector() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", 2)
        producer = await harness.connect()
        reader = await reader_of(client, 2)

        async def exchange(offset: int) -> None:
            waiting = client.start(reader.request(max_wait_ms=30_000), 12)
            await asyncio.sleep(0.01)
            await producer.ask(produce_request("t", batch_of(b"x")), 9, object)
            response = await waiting
            assert isinstance(response, FetchResponse)
            assert response.responses
            reader.session.on_response(response)
            reader.wants("t", 0, offset + 1)

        await assert_leaves_no_cycles(exchange)

    with_broker(scenario)
