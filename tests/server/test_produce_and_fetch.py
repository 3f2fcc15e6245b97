"""Produce and Fetch, through the wire protocol, on virtual time."""

import asyncio

import pytest

from tests.allocations import assert_leaves_no_cycles
from tests.server.harness import Client, Harness, batch_of, fetch_request, produce_request, with_broker
from tidelog.errors import (
    FencedLeaderEpoch,
    InvalidRequiredAcks,
    InvalidTopic,
    MessageTooLarge,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.protocol.record_batch import read_header
from tidelog.runtime.virtual_time import run_virtually


def test_what_is_produced_is_read_back_in_order() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        for index in range(10):
            response = await client.produce("t", b"%d" % index)
            assert (response.error_code, response.base_offset) == (0, index)
        assert await client.values("t") == [b"%d" % index for index in range(10)]
        assert await client.values("t", offset=7) == [b"7", b"8", b"9"]

    with_broker(scenario)


def test_an_offset_inside_a_batch_gives_the_whole_batch() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        await client.produce("t", b"a", b"b", b"c")
        data = await client.fetch("t", 1)
        assert read_header(bytes(data.records or b"")).base_offset == 0  # type: ignore[arg-type]

    with_broker(scenario)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_kind_of_acks(acks: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        if acks == 0:
            client.start(produce_request("t", batch_of(b"x"), acks=0), 9)
        else:
            assert (await client.produce("t", b"x", acks=acks)).error_code == 0
        assert await client.values("t") == [b"x"]
        assert client.closed_because is None

    with_broker(scenario)


def test_unknown_acks_are_refused() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        assert (await client.produce("t", b"x", acks=2)).error_code == InvalidRequiredAcks.code
        assert await client.values("t") == []

    with_broker(scenario)


def test_a_failed_produce_without_acks_closes_the_connection() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        client.start(produce_request("missing", batch_of(b"x"), acks=0), 9)
        await asyncio.sleep(0.1)
        assert client.closed_because == "closed by the peer"

    with_broker(scenario)


def test_refused_batches_leave_nothing_behind() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", max_message_bytes="200")
        assert (await client.produce("t", b"x" * 500)).error_code == MessageTooLarge.code
        assert (await client.produce("t", b"x", partition=1)).error_code == UnknownTopicOrPartition.code
        assert (await client.produce("nowhere", b"x")).error_code == UnknownTopicOrPartition.code
        assert (await client.produce("__consumer_offsets", b"x")).error_code == InvalidTopic.code
        response = await client.ask(produce_request("t", b"short"), 9, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code == 87
        assert await client.values("t") == []

    with_broker(scenario)


def test_zstd_needs_a_client_that_knows_it() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        batch = batch_of(b"x" * 100, compression=4)
        old = await client.ask(produce_request("t", batch), 6, ProduceResponse)
        assert old.responses[0].partition_responses[0].error_code == UnsupportedCompressionType.code
        new = await client.ask(produce_request("t", batch), 7, ProduceResponse)
        assert new.responses[0].partition_responses[0].error_code == 0

    with_broker(scenario)


def test_a_topic_cannot_ask_for_more_in_sync_replicas_than_it_has() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", min_insync_replicas="2")
        assert (await client.produce("t", b"x", acks=-1)).error_code == 0
        assert await client.values("t") == [b"x"]

    with_broker(scenario)


def test_a_fetch_waits_for_data_and_wakes_at_once() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        producer = await harness.connect()
        started = harness.clock.monotonic()
        waiting = client.start(fetch_request("t", 0, max_wait_ms=30_000), 12)
        await asyncio.sleep(5)
        assert not waiting.done()
        await producer.produce("t", b"x")
        response = await waiting
        assert isinstance(response, FetchResponse)
        assert response.responses[0].partitions[0].records
        assert harness.clock.monotonic() - started < 5.01

    with_broker(scenario)


def test_a_fetch_without_data_is_answered_when_its_time_is_up() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        started = harness.clock.monotonic()
        data = await client.fetch("t", 0, max_wait_ms=700)
        assert (data.error_code, bytes(data.records or b"")) == (0, b"")  # type: ignore[arg-type]
        assert 0.7 <= harness.clock.monotonic() - started < 0.72

    with_broker(scenario)


def test_a_fetch_waits_until_min_bytes_are_there() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        producer = await harness.connect()
        waiting = client.start(fetch_request("t", 0, max_wait_ms=30_000, min_bytes=1000), 12)
        for _ in range(3):
            await producer.produce("t", b"x" * 200)
            await asyncio.sleep(0.1)
            assert not waiting.done()
        await producer.produce("t", b"x" * 200)
        await asyncio.sleep(0.1)
        assert waiting.done()

    with_broker(scenario)


def test_at_least_one_whole_batch_is_returned_whatever_the_limits() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        await client.produce("t", b"x" * 5000)
        await client.produce("t", b"y" * 5000)
        data = await client.fetch("t", 0, max_bytes=10, partition_max_bytes=10)
        header = read_header(bytes(data.records or b""))  # type: ignore[arg-type]
        assert len(data.records or b"") == header.size_bytes

    with_broker(scenario)


def test_offsets_outside_the_log_are_out_of_range() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        await client.produce("t", b"x")
        assert (await client.fetch("t", 2)).error_code == OffsetOutOfRange.code
        assert (await client.fetch("t", -5)).error_code == OffsetOutOfRange.code
        assert (await client.fetch("t", 1, max_wait_ms=0)).error_code == 0

    with_broker(scenario)


@pytest.mark.parametrize("version", [4, 7, 12])
@pytest.mark.parametrize("isolation", [2, -1])
def test_an_isolation_that_does_not_exist_is_refused(version: int, isolation: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        await client.produce("t", b"a")
        response = await client.ask(fetch_request("t", 0, isolation_level=isolation), version, FetchResponse)
        assert response.error_code == (UnknownServerError.code if version >= 7 else 0)
        (partition,) = response.responses[0].partitions
        assert (partition.error_code, partition.high_watermark) == (UnknownServerError.code, -1)
        assert not bytes(partition.records or b"")  # type: ignore[arg-type]

    with_broker(scenario)


def test_leader_epochs_of_the_client_are_checked() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        await client.produce("t", b"x")
        assert (await client.fetch("t", 0, current_leader_epoch=0)).error_code == 0
        assert (await client.fetch("t", 0, current_leader_epoch=7)).error_code == UnknownLeaderEpoch.code

    with_broker(scenario)


def test_a_broker_that_comes_back_leads_in_a_new_epoch() -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            await client.create_topic("t")
            await client.produce("t", b"x")
        async with harness.broker():
            client = await harness.connect()
            assert (await client.fetch("t", 0, current_leader_epoch=0)).error_code == FencedLeaderEpoch.code
            assert (await client.fetch("t", 0, current_leader_epoch=1)).error_code == 0
            await client.produce("t", b"y")
            assert await client.values("t") == [b"x", b"y"]

    run_virtually(scenario())


def test_a_deleted_topic_ends_the_wait_of_its_readers() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

        await client.create_topic("t")
        admin = await harness.connect()
        waiting = client.start(fetch_request("t", 0, max_wait_ms=30_000), 12)
        await asyncio.sleep(1)
        deleted = await admin.ask(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6, DeleteTopicsResponse
        )
        assert deleted.responses[0].error_code == 0
        await asyncio.sleep(0.1)
        assert waiting.done()

    with_broker(scenario)


def test_requests_leave_nothing_for_the_garbage_collector() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        producer = await harness.connect()

        async def exchange(offset: int) -> None:
            waiting = client.start(fetch_request("t", offset, max_wait_ms=30_000), 12)
            await asyncio.sleep(0.01)
            await producer.produce("t", b"x")
            await waiting
            await client.fetch("t", offset)

        await assert_leaves_no_cycles(exchange)

    with_broker(scenario)


def test_answers_come_in_the_order_of_requests() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        client.order_of_responses.clear()
        responses = [client.start(fetch_request("t", 0, max_wait_ms=2000), 12)]
        responses += [client.start(produce_request("t", batch_of(b"%d" % index)), 9) for index in range(20)]
        await asyncio.gather(*responses)
        assert client.order_of_responses == sorted(client.order_of_responses)
        assert await client.values("t") == [b"%d" % index for index in range(20)]

    with_broker(scenario)


def test_flush_messages_brings_records_to_the_disk_before_they_are_acknowledged() -> None:
    async def scenario() -> None:
        harness = Harness()
        await harness.start()
        client = await harness.connect()
        await client.create_topic("careful", flush_messages="1")
        await client.create_topic("usual")
        for index in range(3):
            assert (await client.produce("careful", b"%d" % index)).error_code == 0
            assert (await client.produce("usual", b"%d" % index)).error_code == 0
        await harness.crash()
        async with harness.broker():
            client = await harness.connect()
            assert await client.values("careful") == [b"0", b"1", b"2"]
            assert await client.values("usual") == []

    run_virtually(scenario())
