"""Produce and Fetch of very many partitions: divided, with the same answers in the same order."""

import asyncio

import pytest

from tests.server.harness import Client, Harness, batch_of, produce_request, with_broker
from tidelog.errors import UnknownTopicOrPartition
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.runtime.turns import Turns
from tidelog.server.sliced_requests import MANY

VERY_MANY = 2000


def produce_to_all(partitions: int, value: bytes, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=memoryview(batch_of(value))) for index in range(partitions)]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name="t", partition_data=data)])


def fetch_of_all(partitions: int, *, max_wait_ms: int = 0, offset: int = 0, session_epoch: int = -1) -> FetchRequest:
    wanted = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000, current_leader_epoch=-1)
        for index in range(partitions)
    ]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1_000_000,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic="t", partitions=wanted)],
    )


@pytest.fixture
def every_slice_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """On virtual time none would end."""
    monkeypatch.setattr(Turns, "is_slice_over", lambda _: True)


@pytest.mark.usefixtures("every_slice_is_over")
@pytest.mark.parametrize("partitions", [MANY + 1, VERY_MANY])
def test_no_later_request_overtakes_a_divided_produce(partitions: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", MANY + 1)
        first = client.start(produce_to_all(partitions, b"first"), 9)
        second = client.start(produce_request("t", batch_of(b"second"), partition=MANY), 9)
        response = await first
        assert isinstance(response, ProduceResponse)
        responses = response.responses[0].partition_responses
        assert [each.index for each in responses] == list(range(partitions))
        assert {each.error_code for each in responses[: MANY + 1]} == {0}
        assert {each.error_code for each in responses[MANY + 1 :]} <= {UnknownTopicOrPartition.code}
        await second
        assert await client.values("t", partition=MANY) == [b"first", b"second"]

    with_broker(scenario)


@pytest.mark.usefixtures("every_slice_is_over")
def test_a_divided_produce_without_acks_is_done_to_its_end() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", MANY + 1)
        leaving = await harness.connect()
        leaving.start(produce_to_all(MANY + 1, b"x", acks=0), 9)
        await asyncio.sleep(0)
        leaving.channel.close("left")
        await asyncio.sleep(1)
        assert await client.values("t", partition=MANY) == [b"x"]

    with_broker(scenario)


def offsets_and_sizes(response: FetchResponse) -> list[tuple[int, int, bool]]:
    return [
        (each.partition_index, each.error_code, bool(each.records))
        for topic in response.responses
        for each in topic.partitions
    ]


@pytest.mark.usefixtures("every_slice_is_over")
@pytest.mark.parametrize("session_epoch", [-1, 0])
@pytest.mark.parametrize("partitions", [MANY + 1, VERY_MANY])
def test_a_divided_fetch_is_answered_for_every_partition(partitions: int, session_epoch: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", MANY)
        await client.produce("t", b"x", partition=3)
        response = await client.ask(fetch_of_all(partitions, session_epoch=session_epoch), 12, FetchResponse)
        unknown = UnknownTopicOrPartition.code
        assert offsets_and_sizes(response) == [
            (index, 0 if index < MANY else unknown, index == 3) for index in range(partitions)
        ]
        assert bool(response.session_id) == (session_epoch == 0)

    with_broker(scenario)


@pytest.mark.usefixtures("every_slice_is_over")
@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_a_divided_fetch_waits_until_something_comes(session_epoch: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", MANY + 1)
        request = fetch_of_all(MANY + 1, max_wait_ms=60_000, session_epoch=session_epoch)
        other = await harness.connect()
        waiting = other.start(request, 12)
        await asyncio.sleep(1)
        assert not waiting.done()
        await client.produce("t", b"x", partition=MANY)
        async with asyncio.timeout(1):
            response = await waiting
        assert isinstance(response, FetchResponse)
        assert (MANY, 0, True) in offsets_and_sizes(response)

    with_broker(scenario)


@pytest.mark.usefixtures("every_slice_is_over")
def test_what_comes_between_the_slices_of_a_fetch_is_not_missed() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", MANY + 1)
        other = await harness.connect()
        waiting = other.start(fetch_of_all(MANY + 1, max_wait_ms=60_000), 12)
        for _ in range(3 * MANY // 2 + 20):  # all is found, and the first half read
            await asyncio.sleep(0)
        await client.produce("t", b"x", partition=0)
        async with asyncio.timeout(1):
            response = await waiting
        assert isinstance(response, FetchResponse)
        assert (0, 0, True) in offsets_and_sizes(response)

    with_broker(scenario)
