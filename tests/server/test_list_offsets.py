"""ListOffsets, through the wire protocol: the ends of a partition, and offsets by timestamp."""

import pytest

from tests.server.harness import Client, Harness, batch_of, produce_request, with_broker
from tidelog.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    KafkaError,
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.protocol.records import Record, build_batch
from tidelog.runtime.virtual_time import EPOCH_MS, run_virtually

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
FIRST_VERSIONS = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
VERSIONS = range(1, 12)
TIMES = (1000, 3000, 2000, 3000, 2500, 500)
"""Of the records in the partition that most tests look at, after EPOCH_MS."""


def asking(
    *wanted: ListOffsetsPartition, topic: str = "t", replica_id: int = -1, isolation: int = 0
) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=list(wanted))],
    )


async def partition_responses(
    client: Client, request: ListOffsetsRequest, version: int = 11
) -> list[ListOffsetsPartitionResponse]:
    (topic,) = (await client.ask(request, version, ListOffsetsResponse)).topics
    return topic.partitions


async def look_up(
    client: Client, timestamp: int, version: int = 11, *, partition: int = 0, isolation: int = 0, replica_id: int = -1
) -> tuple[int, int, int, int]:
    """Error, offset, timestamp and leader epoch."""
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    (response,) = await partition_responses(client, asking(wanted, isolation=isolation, replica_id=replica_id), version)
    return response.error_code, response.offset, response.timestamp, response.leader_epoch


async def fill(client: Client) -> None:
    """Three batches: of three records, of two and of one."""
    await client.create_topic("t", partitions=2)
    for times in (TIMES[:3], TIMES[3:5], TIMES[5:]):
        records = [Record(index, EPOCH_MS + time, None, b"v", ()) for index, time in enumerate(times)]
        response = await client.ask(produce_request("t", bytes(build_batch(records))), 9, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_start_and_end_in_every_version(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        epoch = 0 if version >= 4 else -1
        assert await look_up(client, EARLIEST, version) == (0, 0, -1, epoch)
        assert await look_up(client, LATEST, version) == (0, 6, -1, epoch)
        assert await look_up(client, LATEST, version, isolation=1) == (0, 6, -1, epoch)

    with_broker(scenario)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("special", [MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD, -7, -100])
def test_a_special_timestamp_is_unknown_before_its_version(version: int, special: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        error, offset, _, _ = await look_up(client, special, version)
        if version < FIRST_VERSIONS.get(special, 1000):
            assert (error, offset) == (UnsupportedVersion.code, -1)
        else:
            assert (error, offset) == (0, {MAX_TIMESTAMP: 1, EARLIEST_LOCAL: 0}.get(special, -1))

    with_broker(scenario)


def test_the_largest_timestamp_gives_the_first_record_that_has_it() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        assert await look_up(client, MAX_TIMESTAMP) == (0, 1, EPOCH_MS + 3000, 0)

    with_broker(scenario)


@pytest.mark.parametrize(
    ("time", "expected"),
    [(0, (0, 0, 1000)), (1000, (0, 0, 1000)), (1001, (0, 1, 3000)), (2500, (0, 1, 3000)), (3000, (0, 1, 3000))],
)
def test_a_timestamp_gives_the_first_record_that_is_not_older(time: int, expected: tuple[int, int, int]) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        error, offset, timestamp, epoch = await look_up(client, EPOCH_MS + time)
        assert (error, offset, timestamp - EPOCH_MS, epoch) == (*expected, 0)

    with_broker(scenario)


def test_a_timestamp_after_all_records_gives_nothing() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        for version in VERSIONS:
            assert await look_up(client, EPOCH_MS + 3001, version) == (0, -1, -1, -1)

    with_broker(scenario)


def test_an_empty_partition_has_its_ends_and_nothing_else() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        for special in (EARLIEST, LATEST, EARLIEST_LOCAL):
            assert (await look_up(client, special, partition=1))[:2] == (0, 0)
        for timestamp in (MAX_TIMESTAMP, LATEST_TIERED, EARLIEST_PENDING_UPLOAD, 0):
            assert (await look_up(client, timestamp, partition=1))[:3] == (0, -1, -1)

    with_broker(scenario)


def test_deleted_records_are_not_found_by_their_timestamp() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        partition = DeleteRecordsPartition(partition_index=0, offset=2)
        deletion = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[partition])])
        await client.ask(deletion, 2, DeleteRecordsResponse)
        assert (await look_up(client, EARLIEST))[:2] == (0, 2)
        assert (await look_up(client, EPOCH_MS))[:3] == (0, 2, EPOCH_MS + 2000)

    with_broker(scenario)


def test_a_partition_named_twice_gets_one_answer_an_error() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        twice = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in (0, 1, 0)]
        for version in (1, 5, 11):
            found = await partition_responses(client, asking(*twice), version)
            assert [(response.partition_index, response.error_code, response.offset) for response in found] == [
                (0, InvalidRequest.code, -1),
                (1, 0, 0),
            ]

    with_broker(scenario)


def test_unknown_topics_and_partitions_are_errors() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        for topic, index in (("missing", 0), ("t", 2), ("t", -1), ("a b", 0)):
            wanted = ListOffsetsPartition(partition_index=index, timestamp=LATEST)
            (response,) = await partition_responses(client, asking(wanted, topic=topic))
            assert (response.error_code, response.offset) == (UnknownTopicOrPartition.code, -1)

    with_broker(scenario)


@pytest.mark.parametrize(("epoch", "error"), [(-1, None), (1, None), (0, FencedLeaderEpoch), (2, UnknownLeaderEpoch)])
def test_a_client_with_another_leader_epoch_is_fenced(epoch: int, error: type[KafkaError] | None) -> None:
    async def main() -> None:
        harness = Harness()
        first = await harness.start()
        client = await harness.connect()
        await client.create_topic("t")
        await client.produce("t", b"x")
        await first.stop()
        harness.disk.remove("/logs/.kafka_cleanshutdown")
        async with harness.broker():
            wanted = ListOffsetsPartition(partition_index=0, timestamp=LATEST, current_leader_epoch=epoch)
            (response,) = await partition_responses(await harness.connect(), asking(wanted))
            assert response.error_code == (error.code if error else 0)
            assert response.leader_epoch == (-1 if error else 1)

    run_virtually(main())


def test_a_topic_without_partitions_is_left_out() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        response = await client.ask(asking(), 7, ListOffsetsResponse)
        assert response.topics == []

    with_broker(scenario)


@pytest.mark.parametrize("isolation", [2, -1])
def test_an_isolation_that_does_not_exist_is_refused(isolation: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        assert await look_up(client, LATEST, isolation=isolation) == (UnknownServerError.code, -1, -1, -1)

    with_broker(scenario)


def test_reading_committed_ends_at_the_first_open_transaction() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("t")
            await client.produce("t", b"a", b"b")
            batch = batch_of(b"c", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
            broker._services.replicas.get("t", 0).append_as_leader(memoryview(bytearray(batch)), -1)
            assert (await look_up(client, LATEST, isolation=0))[:2] == (0, 3)
            assert (await look_up(client, LATEST, isolation=1))[:2] == (0, 2)

    run_virtually(main())
