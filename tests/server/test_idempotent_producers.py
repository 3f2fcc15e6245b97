"""InitProducerId, idempotent Produce and DescribeProducers, through the wire protocol."""

from unittest.mock import patch

import pytest

from tests.server.harness import Client, Harness, batch_of, produce_request, with_broker
from tidelog.errors import (
    InvalidProducerEpoch,
    InvalidRequest,
    InvalidTopic,
    OutOfOrderSequenceNumber,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.runtime.virtual_time import EPOCH_MS, run_virtually
from tidelog.server.cluster_state import ClusterState


async def init(
    client: Client,
    version: int = 5,
    *,
    transactional_id: str | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    return await client.ask(request, version, InitProducerIdResponse)


class Producer:
    """Numbers nothing by itself: tests say what it sends."""

    def __init__(self, client: Client, producer_id: int) -> None:
        self._client = client
        self.id = producer_id

    async def send(self, sequence: int, count: int = 2, *, epoch: int = 0) -> tuple[int, int]:
        """Error and base offset."""
        batch = batch_of(*[b"v"] * count, producer_id=self.id, producer_epoch=epoch, base_sequence=sequence)
        response = await self._client.ask(produce_request("t", batch), 9, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset


async def producer(client: Client) -> Producer:
    return Producer(client, (await init(client)).producer_id)


async def describe(client: Client, topic: str = "t", index: int = 0) -> PartitionResponse:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
    response = await client.ask(request, 0, DescribeProducersResponse)
    return response.topics[0].partitions[0]


# ---- ids


@pytest.mark.parametrize("version", range(6))
def test_every_version_gives_a_new_id(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        responses = [await init(client, version) for _ in range(3)]
        assert [(response.error_code, response.producer_epoch) for response in responses] == [(0, 0)] * 3
        assert len({response.producer_id for response in responses}) == 3

    with_broker(scenario)


def test_ids_are_unique_over_restarts_and_many_at_once() -> None:
    async def main() -> None:
        harness = Harness()
        seen: set[int] = set()
        for _ in range(3):
            async with harness.broker():
                client = await harness.connect()
                waiting = [client.start(InitProducerIdRequest(transactional_id=None), 4) for _ in range(500)]
                responses = [await each for each in waiting]
                ids = {response.producer_id for response in responses if isinstance(response, InitProducerIdResponse)}
                assert len(ids) == 500
                assert not ids & seen
                seen |= ids

    run_virtually(main())


def test_a_producer_that_asks_again_gets_a_new_id() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        first = await init(client)
        again = await init(client, producer_id=first.producer_id, producer_epoch=0)
        assert (again.error_code, again.producer_epoch) == (0, 0)
        assert again.producer_id != first.producer_id

    with_broker(scenario)


def test_half_an_identity_and_transactions_are_refused() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        for response in (
            await init(client, producer_id=5),
            await init(client, producer_epoch=5),
            await init(client, transactional_id=""),
        ):
            assert (response.error_code, response.producer_id, response.producer_epoch) == (InvalidRequest.code, -1, -1)

    with_broker(scenario)


# ---- sequences


def test_a_batch_that_is_sent_again_is_written_once() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        sender = await producer(client)
        assert await sender.send(0) == (0, 0)
        assert await sender.send(0) == (0, 0)
        for number in range(1, 5):
            assert await sender.send(2 * number) == (0, 2 * number)
        assert [await sender.send(2 * number) for number in range(5)] == [(0, 2 * number) for number in range(5)]
        assert len(await client.values("t")) == 10

    with_broker(scenario)


def test_a_repetition_older_than_five_batches_is_out_of_order() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        sender = await producer(client)
        for number in range(6):
            assert await sender.send(2 * number) == (0, 2 * number)
        assert await sender.send(0) == (OutOfOrderSequenceNumber.code, -1)
        assert await sender.send(2) == (0, 2)

    with_broker(scenario)


@pytest.mark.parametrize(("sequence", "count"), [(4, 2), (1, 2), (1, 1), (0, 1), (0, 3)])
def test_gaps_and_overlaps_are_refused(sequence: int, count: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        sender = await producer(client)
        await sender.send(0)
        assert await sender.send(sequence, count) == (OutOfOrderSequenceNumber.code, -1)
        assert await sender.send(2) == (0, 2)

    with_broker(scenario)


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        sender = await producer(client)
        await sender.send(0)
        assert await sender.send(2, epoch=1) == (OutOfOrderSequenceNumber.code, -1)
        assert await sender.send(0, epoch=1) == (0, 2)
        assert await sender.send(2, epoch=0) == (InvalidProducerEpoch.code, -1)
        assert await sender.send(2, epoch=1) == (0, 4)

    with_broker(scenario)


def test_a_producer_that_the_partition_does_not_know_may_start_anywhere() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        assert await (await producer(client)).send(7) == (0, 0)

    with_broker(scenario)


def test_batches_do_not_overtake_one_that_was_refused_for_now() -> None:
    """Five requests are in flight, and the topic appears between the first and the second."""

    async def scenario(harness: Harness, client: Client) -> None:
        sender = await producer(client)
        assert await sender.send(0) == (UnknownTopicOrPartition.code, -1)
        await client.create_topic("t")
        for sequence in (2, 4, 6, 8):
            assert await sender.send(sequence) == (UnknownTopicOrPartition.code, -1)
        assert [await sender.send(2 * number) for number in range(5)] == [(0, 2 * number) for number in range(5)]

    with_broker(scenario)


def test_batches_do_not_overtake_one_that_named_a_topic_by_an_id_not_known_yet() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        described = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12, MetadataResponse)
        topic_id = described.topics[0].topic_id

        async def send(sequence: int) -> int:
            batch = batch_of(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)
            data = [PartitionProduceData(index=0, records=memoryview(bytearray(batch)))]
            topic = TopicProduceData(name="", topic_id=topic_id, partition_data=data)
            response = await client.ask(ProduceRequest(acks=1, topic_data=[topic]), 13, ProduceResponse)
            return response.responses[0].partition_responses[0].error_code

        with patch.object(ClusterState, "topic_name", side_effect=UnknownTopicId):
            assert await send(0) == UnknownTopicId.code
        assert [await send(1), await send(2)] == [UnknownTopicId.code] * 2
        assert [await send(sequence) for sequence in range(3)] == [0, 0, 0]

    with_broker(scenario)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restart_remembers_what_was_written(is_clean: bool) -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            await client.create_topic("t")
            sender = await producer(client)
            for number in range(3):
                await sender.send(2 * number)
        if not is_clean:
            harness.disk.remove("/logs/.kafka_cleanshutdown")
        async with harness.broker():
            again = Producer(await harness.connect(), sender.id)
            assert await again.send(4) == (0, 4)
            assert await again.send(8) == (OutOfOrderSequenceNumber.code, -1)
            assert await again.send(6) == (0, 6)

    run_virtually(main())


# ---- describing


def test_producers_are_described() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        assert (await describe(client)).active_producers == []
        sender = await producer(client)
        await sender.send(0, 3, epoch=2)
        (state,) = (await describe(client)).active_producers
        assert (state.producer_id, state.producer_epoch, state.last_sequence) == (sender.id, 2, 2)
        assert (state.last_timestamp, state.coordinator_epoch, state.current_txn_start_offset) == (EPOCH_MS, -1, -1)

    with_broker(scenario)


def test_producers_of_what_is_not_there() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        for topic, index, error in (
            ("missing", 0, UnknownTopicOrPartition),
            ("t", 1, UnknownTopicOrPartition),
            ("a b", 0, InvalidTopic),
        ):
            response = await describe(client, topic, index)
            assert (response.error_code, response.active_producers) == (error.code, [])
            assert response.error_message

    with_broker(scenario)
