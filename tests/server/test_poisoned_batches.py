"""Produce with batches that lie or take long, through the wire protocol: refused as Kafka refuses them, and fairly."""

import asyncio

import pytest

from tests.server.harness import Client, Harness, batch_of, produce_request, with_broker
from tidelog.errors import CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge, UnknownServerError
from tidelog.protocol.compression import Codec, compress
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from tidelog.protocol.record_batch import BatchHeader, assemble, read_header
from tidelog.protocol.records import Record, build_batch
from tidelog.runtime.virtual_time import EPOCH_MS
from tidelog.storage.record_checks import INLINE_STEPS

NO_ERROR = 0


def answer_to(response: ProduceResponse) -> PartitionProduceResponse:
    return response.responses[0].partition_responses[0]


async def answer(client: Client, batch: bytes, topic: str = "t") -> PartitionProduceResponse:
    return answer_to(await client.ask(produce_request(topic, batch), 9, ProduceResponse))


def changed(batch: bytes, **fields: int) -> bytes:
    return bytes(assemble(read_header(batch)._replace(**fields), batch[61:]))


def broken_gzip() -> bytes:
    batch = bytes(build_batch([Record(0, EPOCH_MS, None, b"value")], compression=Codec.GZIP))
    return bytes(assemble(read_header(batch), batch[61:-5]))


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (changed(batch_of(b"a"), record_count=2**31 - 1, last_offset_delta=2**31 - 2), InvalidRecord),
        (changed(batch_of(b"a"), record_count=2, last_offset_delta=1), InvalidRecord),
        (changed(batch_of(b"a"), base_timestamp=-(2**63)), InvalidTimestamp),
        (bytes(assemble(read_header(batch_of(b"a")), b"")), InvalidRecord),
        (bytes(assemble(read_header(batch_of(b"a")), b"garbage")), InvalidRecord),
        (bytes(assemble(read_header(batch_of(b"a")), b"\1" * 20)), InvalidRecord),
        (broken_gzip(), UnknownServerError),
        (batch_of(b"a") + bytes(61), CorruptMessage),
        (batch_of(b"a") + batch_of(b"b"), InvalidRecord),
    ],
)
def test_a_batch_that_lies_is_refused_and_moves_nothing(batch: bytes, error: type[Exception]) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        assert (await answer(client, batch)).error_code == error.code  # type: ignore[attr-defined]
        assert (await answer(client, batch_of(b"next"))).base_offset == 0
        assert await client.values("t") == [b"next"]

    with_broker(scenario)


def long_batch(*, key: bytes | None = b"", codec: Codec = Codec.NONE, count: int = INLINE_STEPS + 1) -> bytes:
    records = [Record(index, EPOCH_MS, key, b"") for index in range(count)]
    return bytes(build_batch(records, compression=codec))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_requests_behind_a_long_batch_keep_their_order_and_others_do_not_wait(codec: Codec) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", max_message_bytes="10000000")
        batch = long_batch(codec=codec)
        first = client.start(produce_request("t", batch), 9)
        second = client.start(produce_request("t", batch_of(b"second")), 9)
        third = client.start(produce_request("t", batch), 9)
        fourth = client.start(produce_request("t", batch_of(b"fourth")), 9)
        responses = [answer_to(each) for each in await asyncio.gather(first, second, third, fourth)]  # type: ignore[arg-type]
        count = read_header(batch).record_count
        assert [each.error_code for each in responses] == [NO_ERROR] * 4
        assert [each.base_offset for each in responses] == [0, count, count + 1, 2 * count + 1]
        assert (await client.produce("t", b"fifth")).base_offset == 2 * count + 2

    with_broker(scenario)


def test_another_connection_is_served_while_a_long_batch_is_checked() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", max_message_bytes="10000000")
        other = await harness.connect("other")
        slow = client.start(produce_request("t", long_batch(count=20 * INLINE_STEPS, codec=Codec.ZSTD)), 9)
        await asyncio.sleep(0)
        quick = other.start(MetadataRequest(topics=[]), 9)
        await quick
        assert not slow.done()
        assert answer_to(await slow).error_code == NO_ERROR  # type: ignore[arg-type]

    with_broker(scenario)


def test_a_long_batch_without_keys_is_refused_by_a_compacted_topic() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", cleanup_policy="compact")
        found = await answer(client, long_batch(key=None, codec=Codec.ZSTD, count=100_000))
        assert found.error_code == InvalidRecord.code
        assert [each.batch_index for each in found.record_errors] == list(range(1000))
        assert found.log_start_offset == 0

    with_broker(scenario)


def test_a_bomb_is_refused_at_the_bound() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", max_decompressed_message_bytes="2000000")
        header = read_header(batch_of(b""))
        count = 18_000_000
        lie: BatchHeader = header._replace(record_count=count, last_offset_delta=count - 1, attributes=Codec.ZSTD)
        bomb = bytes(assemble(lie, compress(Codec.ZSTD, b"\x0c\0\0\0\1\1\0" * count)))
        assert len(bomb) < 20_000
        assert (await answer(client, bomb)).error_code == MessageTooLarge.code
        assert (await client.produce("t", b"next")).base_offset == 0

    with_broker(scenario)


def test_a_client_that_goes_while_its_batch_is_checked_leaves_nothing_behind() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", max_message_bytes="10000000")
        other = await harness.connect("other")
        other.start(produce_request("t", long_batch(count=20 * INLINE_STEPS)), 9)
        other.start(produce_request("t", batch_of(b"behind")), 9)
        await asyncio.sleep(0)
        other.channel.close("gone")
        assert answer_to(await client.start(produce_request("t", long_batch()), 9)).base_offset == 0  # type: ignore[arg-type]

    with_broker(scenario)
