"""Batches with unusual or lying frames, varints, producers and formats: answered as Apache Kafka 4.3.1 answered them.

The answers were recorded from Kafka by `compat/answers/frame_lies.py`, which asks both again.
"""

from collections.abc import Mapping

import pytest

from compat.answers import frame_lies, lies
from compat.answers.frame_lies import FRAME_LIES, KNOWN_FRAMES
from tests.counted_calls import counted_calls
from tests.server.harness import Client, Harness, produce_request, with_broker
from tidelog.errors import (
    NO_ERROR,
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidRecord,
    KafkaError,
    TransactionalIdAuthorizationFailed,
    UnknownServerError,
)
from tidelog.protocol.compression import Codec, DecompressedTooLarge, compress, decompress, decompress_start
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.runtime.virtual_time import EPOCH_MS

REFUSED: Mapping[tuple[type[KafkaError], str], tuple[str, ...]] = {
    (UnknownServerError, "gzip-members"): (
        "gzip: a wrong CRC",
        "gzip: a wrong size",
        "gzip: a name that never ends",
        "gzip: an extra field of 64 KB that is not there",
        "gzip: a wrong CRC of the header",
        "gzip: another method",
    ),
    (InvalidRecord, "snappy-blocks"): ("snappy: no block",),
    (UnknownServerError, "snappy-blocks"): (
        "snappy: a block that claims 0 bytes",
        "snappy: a block that claims -1 bytes",
        "snappy: a block that claims -2147483647 bytes",
        "snappy: a block that claims 1 bytes",
        "snappy: a block that claims 46 bytes",
        "snappy: a block that claims 48 bytes",
        "snappy: a block that claims 2147483647 bytes",
        "snappy: an empty block behind",
        "snappy: a block that claims to hold 0 bytes inside",
        "snappy: a block that claims to hold 1 bytes inside",
        "snappy: a block that claims to hold 44 bytes inside",
        "snappy: a block that claims to hold 46 bytes inside",
        "snappy: a block that claims to hold 10000 bytes inside",
    ),
    (UnknownServerError, "lz4-frames"): (
        "lz4: a wrong check of the header",
        "lz4: dependent blocks",
        "lz4: a reserved flag",
        "lz4: version 2",
        "lz4: version 0",
        "lz4: blocks of no size",
        "lz4: a reserved bit of the block size",
        "lz4: a check of the content that is missing",
        "lz4: a check of the block that is wrong",
        "lz4: no end",
        "lz4: half an end",
        "lz4: a block of 2 GB",
        "lz4: a compressed block that is none",
        "lz4: a skippable frame before",
        "lz4: a legacy frame",
    ),
    (InvalidRecord, "lz4-frames"): (
        "lz4: two frames",
        "lz4: an empty frame before",
    ),
    (UnknownServerError, "zstd-frames"): (
        "zstd: a window of 2^28 bytes",
        "zstd: a window of 2^31 bytes",
        "zstd: a window of 2^41 bytes",
        "zstd: a content size of 44",
        "zstd: a content size of 46",
        "zstd: a content size of 0",
        "zstd: a content size of 2^64 - 1",
        "zstd: a content size of 2^40",
        "zstd: a check that is wrong",
        "zstd: a check that is missing",
        "zstd: a dictionary",
        "zstd: a reserved bit",
        "zstd: no last block",
        "zstd: a reserved kind of block",
        "zstd: a compressed block that is none",
        "zstd: a run of 2 MB",
        "zstd: a skippable frame of 4 GB",
    ),
    (UnknownServerError, "varints"): (
        "a record length of 6 bytes",
        "a record length of 10 bytes",
    ),
    (InvalidRecord, "varints"): (
        "an offset delta of 6 bytes",
        "a key length of 6 bytes",
        "a count of headers of 6 bytes",
        "an offset delta of 10 bytes",
        "a key length of 10 bytes",
        "a count of headers of 10 bytes",
        "a timestamp delta of 11 bytes",
        "an offset delta above 2^32",
    ),
    (InvalidRecord, "unusual"): (
        "a base offset of -5",
        "a base offset of 1",
        "a base offset of 2147483648",
        "a base offset of -9223372036854775808",
        "producer 7007, epoch 0, sequence -2147483648",
        "attributes 0x20 of a producer",
    ),
    (TransactionalIdAuthorizationFailed, "unusual"): (
        "attributes 0x10 of a producer",
        "attributes 0x30 of a producer",
    ),
    (InvalidRecord, "old-formats"): (
        "format 0: one message",
        "format 0: two messages",
        "format 0: a wrong CRC",
        "format 0: gzip with strange offsets inside",
        "format 0: gzip that is none",
        "format 0: before a batch",
        "format 0: behind a batch",
        "format 1: one message",
        "format 1: two messages",
        "format 1: a wrong CRC",
        "format 1: gzip with strange offsets inside",
        "format 1: gzip that is none",
        "format 1: before a batch",
        "format 1: behind a batch",
    ),
    (InvalidProducerEpoch, "unusual"): (
        "producer 7002, epoch -2, sequence 0",
        "producer 7003, epoch -32768, sequence 0",
    ),
}
"""By error and topic. All others were taken."""

KAFKA = {f"{topic}: {what}": error.code for (error, topic), cases in REFUSED.items() for what in cases}


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lies, frame_lies):
        monkeypatch.setattr(module, "now_ms", lambda: EPOCH_MS)


async def codes(client: Client, chapter: str) -> dict[str, int]:
    name, make = FRAME_LIES[chapter]
    found = list(make())
    await client.create_topic(name, len(found))
    answers = {}
    for partition, (what, batch) in enumerate(found):
        response = await client.ask(produce_request(name, batch, partition=partition), 9, ProduceResponse)
        answers[f"{name}: {what}"] = response.responses[0].partition_responses[0].error_code
    return answers


@pytest.mark.parametrize("chapter", FRAME_LIES)
def test_a_batch_that_lies_is_answered_as_kafka_answers_it(chapter: str) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        answers = await codes(client, chapter)
        differing = {title: code for title, code in answers.items() if code != KAFKA.get(title, NO_ERROR)}
        assert differing.keys() == answers.keys() & KNOWN_FRAMES.keys(), differing

    with_broker(scenario)


def test_members_of_gzip_without_end_are_refused_early() -> None:
    empty = compress(Codec.GZIP, b"")
    with counted_calls() as calls, pytest.raises(CorruptMessage, match="members"):
        decompress(Codec.GZIP, empty * 50_000, 1_000_000)
    assert calls.count < 1_000


def test_a_bomb_in_the_last_of_several_members_is_found() -> None:
    bomb = compress(Codec.GZIP, b"x") * 3 + compress(Codec.GZIP, bytes(10_000_000))
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.GZIP, bomb, 1_000_000)
    assert decompress(Codec.GZIP, bomb, 10_000_003) == b"xxx" + bytes(10_000_000)


def test_only_the_first_frame_of_lz4_counts() -> None:
    first, second = compress(Codec.LZ4, b"first"), compress(Codec.LZ4, b"second")
    assert decompress(Codec.LZ4, first + second, 1_000) == b"first"
    assert decompress_start(Codec.LZ4, first + second, 1_000) == (b"first", True)
