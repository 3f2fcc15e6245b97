"""Batches that lie: in their header, about their records, in their compression. Each goes to a partition of its own."""

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from compat.answers.conversation import Conversation, chapter
from compat.answers.requests import create_topic
from tidelog.protocol.compression import Codec, compress
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.record_batch import BatchHeader, assemble, read_header, seal
from tidelog.protocol.records import Record, build_batch, write_varint

VERSION = 12
RECORDS = 3
FIRST_INT64, LAST_INT64 = -(2**63), 2**63 - 1
LAST_INT32 = 2**31 - 1
HOUR_MS = 3_600_000
CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)


LENGTHS = (-1, 0, 1, 5, 13, 15, 100_000, LAST_INT32, -LAST_INT32)
"""Of a record that has 14 bytes."""

UNSEEN = "Kafka does not check the lengths of compressed records: it accepts the batch, and its consumers stop there"
BEHIND = "Kafka does not check what follows compressed records"
FAILS = "Kafka calculates with 32 bits and fails"
NO_FRAME = "empty data is not a zstd frame: Tidelog answers as for the other codecs"
RENUMBERED = (
    "Kafka renumbers records where it compresses them again; Tidelog refuses wrong offsets of compressed records"
    " there too, since a few bytes can hold millions of records"
)
OFFSETS = (0, 2, -1, 5, LAST_INT32)
"""Wrong ones of a record that is the second one."""
OPENED = ("gzip", "snappy", "lz4")
KNOWN_LIES = {
    **{f"record-{each.setting}: {each.setting}: a record of {n} bytes": UNSEEN for each in CODECS for n in LENGTHS},
    **{f"record-gzip-append-time: gzip: a record of {n} bytes": UNSEEN for n in LENGTHS},
    **{f"record-{codec}-opened: {codec}: a record of {LAST_INT32} bytes": FAILS for codec in OPENED},
    **{f"record-{codec}-opened: {codec}: an offset delta of {n}": RENUMBERED for codec in OPENED for n in OFFSETS},
    **{f"{name}: {codec}: a byte more": BEHIND for name in ("compression", "compression-zstd") for codec in OPENED},
    "compression: zstd: no bytes": NO_FRAME,
    "compression-zstd: zstd: no bytes": NO_FRAME,
    **{f"{name}: a length of {LAST_INT32}": FAILS for name in ("header", "header-v3", "header-v7", "large")},
    "timestamp: a timestamp far past the last of all": "Kafka calculates with 64 bits, which gives a current time",
}
"""Lies that are answered differently on purpose, with the reason."""


class Lie(NamedTuple):
    what: str
    batch: bytes


def now_ms() -> int:
    return int(time.time() * 1000)


def honest(codec: Codec = Codec.NONE, key: bytes | None = b"key") -> bytes:
    now = now_ms()
    return bytes(build_batch([Record(n, now, key, b"value") for n in range(RECORDS)], compression=codec))


def with_header(batch: bytes, **changes: int) -> bytes:
    """The same with other numbers in its header, and a CRC that is right."""
    header = read_header(batch)._replace(**changes)
    changed = bytearray(assemble(header, batch[61:]))
    if "length" in changes:
        struct.pack_into(">i", changed, 8, changes["length"])
    return bytes(changed)


def number(value: int) -> bytes:
    output = bytearray()
    write_varint(output, value)
    return bytes(output)


def field(value: bytes | None) -> bytes:
    return number(-1) if value is None else number(len(value)) + value


def body(index: int, *, attributes: int = 0, timestamp_delta: int = 0, offset_delta: int | None = None,
         key: bytes = field(b"key"), value: bytes = field(b"value"), headers: bytes = number(0)) -> bytes:  # fmt: skip
    offset = number(index if offset_delta is None else offset_delta)
    return bytes([attributes]) + number(timestamp_delta) + offset + key + value + headers


def record(content: bytes, length: int | None = None) -> bytes:
    return number(len(content) if length is None else length) + content


def payload_with(second: bytes) -> bytes:
    """Three records, of which the one in the middle lies."""
    return record(body(0)) + second + record(body(2))


def batch_of(payload: bytes, codec: Codec = Codec.NONE, **changes: int) -> bytes:
    header = BatchHeader(
        base_offset=0, length=0, leader_epoch=-1, magic=2, crc=0, attributes=codec, last_offset_delta=RECORDS - 1,
        base_timestamp=now_ms(), max_timestamp=now_ms(), producer_id=-1, producer_epoch=-1, base_sequence=-1,
        record_count=RECORDS,
    )._replace(**changes)  # fmt: skip
    return bytes(assemble(header, compress(codec, payload)))


def header_lies() -> Iterator[Lie]:
    plain = honest()
    yield Lie("nothing is wrong", plain)
    yield Lie("an empty string of bytes", b"")
    yield Lie("five bytes", plain[:5])
    yield Lie("16 bytes", plain[:16])
    yield Lie("60 bytes", plain[:60])
    yield Lie("a batch cut short", plain[:-1])
    for count in (0, -1, RECORDS - 1, RECORDS + 1, LAST_INT32, -LAST_INT32):
        yield Lie(f"a count of {count}", with_header(plain, record_count=count))
        delta = max(count - 1, -LAST_INT32)
        yield Lie(
            f"a count of {count} and a last offset that fits",
            with_header(plain, record_count=count, last_offset_delta=delta),
        )
    for delta in (-1, 0, RECORDS, LAST_INT32, -LAST_INT32 - 1):
        yield Lie(f"a last offset delta of {delta}", with_header(plain, last_offset_delta=delta))
    for offset in (5, -1, LAST_INT64):
        yield Lie(f"a base offset of {offset}", with_header(plain, base_offset=offset))
    for length in (0, -1, 10, 13, 14, 48, len(plain) - 13, len(plain) - 11, len(plain) + 100, LAST_INT32):
        yield Lie(f"a length of {length}", with_header(plain, length=length))
    damaged = bytearray(plain)
    damaged[-2] ^= 1
    yield Lie("a wrong CRC", bytes(damaged))
    for magic in (0, 1, 3, -1):
        changed = bytearray(plain)
        struct.pack_into("b", changed, 16, magic)
        yield Lie(f"format version {magic}", bytes(changed))
    yield Lie("two batches", plain + honest())
    for extra in (1, 12, 17, 61):
        yield Lie(f"{extra} bytes of zeros behind", plain + bytes(extra))
    yield Lie("an empty batch", bytes(assemble(read_header(plain)._replace(record_count=0, last_offset_delta=0), b"")))
    yield Lie("a header alone that claims three records", bytes(assemble(read_header(plain), b"")))
    for attributes in (0x20, 0x10, 0x30, 0x40, 0x80, 0x100, 0x7F00, 5, 6, 7):
        yield Lie(f"attributes {attributes:#x}", with_header(plain, attributes=attributes))
    yield Lie("a leader epoch", with_header(plain, leader_epoch=77))
    yield Lie("a producer without a sequence", with_header(plain, producer_id=9_999, producer_epoch=0))
    yield Lie(
        "a producer with a sequence of -2", with_header(plain, producer_id=9_999, producer_epoch=0, base_sequence=-2)
    )
    yield Lie("a sequence without a producer", with_header(plain, base_sequence=5))
    yield Lie("an epoch without a producer", with_header(plain, producer_epoch=5))


def timestamp_lies() -> Iterator[Lie]:
    plain, now = honest(), now_ms()
    for shown, latest in (("0", 0), ("-1", -1), ("the last of all", LAST_INT64), ("the first of all", FIRST_INT64)):
        yield Lie(f"a latest timestamp of {shown}", with_header(plain, max_timestamp=latest))
    yield Lie("a latest timestamp in two hours", with_header(plain, max_timestamp=now + 2 * HOUR_MS))
    for shown, base in (
        ("0", 0),
        ("-1", -1),
        ("-2", -2),
        ("the first of all", FIRST_INT64),
        ("the last of all", LAST_INT64),
        ("in two hours", now + 2 * HOUR_MS),
        ("in half an hour", now + HOUR_MS // 2),
        ("two hours ago", now - 2 * HOUR_MS),
        ("in 1997", 862_000_000_000),
    ):
        yield Lie(f"timestamps of {shown}", with_header(plain, base_timestamp=base, max_timestamp=base))
    for shown, base, delta in (
        ("past the last of all", LAST_INT64, 1),
        ("before the first of all", FIRST_INT64, -1),
        ("far past the last of all", LAST_INT64, LAST_INT64),
        ("that differ by the most", now, LAST_INT64 - now),
        ("that lie in the future by their delta", now, 2 * HOUR_MS),
        ("that lie in the past by their delta", now, -2 * HOUR_MS),
    ):
        payload = payload_with(record(body(1, timestamp_delta=delta)))
        yield Lie(f"a timestamp {shown}", batch_of(payload, base_timestamp=base, max_timestamp=base))
    yield Lie("log append time", with_header(plain, attributes=8))
    yield Lie("log append time of -1", with_header(plain, attributes=8, max_timestamp=-1))
    yield Lie("log append time in two hours", with_header(plain, attributes=8, max_timestamp=now + 2 * HOUR_MS))


def record_lies(codec: Codec) -> Iterator[Lie]:
    def lie(what: str, payload: bytes, **changes: int) -> Lie:
        return Lie(f"{codec.setting}: {what}", batch_of(payload, codec, **changes))

    sound = record(body(1))
    yield lie("nothing is wrong", payload_with(sound))
    for length in LENGTHS:
        yield lie(f"a record of {length} bytes", payload_with(record(body(1), length)))
    yield lie("a length that never ends", payload_with(b"\xff" * 12))
    yield lie("one record cut short", payload_with(sound)[:-3])
    yield lie("a byte behind the last record", payload_with(sound) + b"\0")
    yield lie("a fourth record", payload_with(sound) + record(body(3)))
    yield lie("no bytes at all", b"")
    yield lie("zeros", bytes(100))
    yield lie("garbage", bytes(range(40, 140)))
    for offset in OFFSETS:
        yield lie(f"an offset delta of {offset}", payload_with(record(body(1, offset_delta=offset))))
    yield lie("record attributes of 0x7f", payload_with(record(body(1, attributes=0x7F))))
    for length in (-2, -LAST_INT32, 3, 100, LAST_INT32):
        changed = record(body(1, key=number(length) + b"k"))
        yield lie(f"a key of {length} bytes", payload_with(changed))
        yield lie(f"a value of {length} bytes", payload_with(record(body(1, value=number(length) + b"v"))))
    yield lie("neither key nor value", payload_with(record(body(1, key=field(None), value=field(None)))))
    header = field(b"name") + field(b"content")
    yield lie("a header", payload_with(record(body(1, headers=number(1) + header))))
    yield lie("a header without content", payload_with(record(body(1, headers=number(1) + field(b"n") + field(None)))))
    yield lie("a header without a name", payload_with(record(body(1, headers=number(1) + field(None) + field(b"c")))))
    yield lie(
        "a header named in no text", payload_with(record(body(1, headers=number(1) + field(b"\xff") + field(b""))))
    )
    for count in (-1, 2, 100, LAST_INT32):
        yield lie(
            f"{count} headers, of which one is there", payload_with(record(body(1, headers=number(count) + header)))
        )
    yield lie("a header that is not counted", payload_with(record(body(1, headers=number(0) + header))))
    long_name = number(100) + b"n"
    yield lie("a header name past the end", payload_with(record(body(1, headers=number(1) + long_name))))


def compression_lies() -> Iterator[Lie]:
    payload = payload_with(record(body(1)))
    for codec in CODECS:
        sound = batch_of(payload, codec)
        plain = batch_of(payload)
        name = codec.setting
        yield Lie(f"{name}: claimed and not done", with_header(plain, attributes=codec))
        yield Lie(f"{name}: done and not claimed", with_header(sound, attributes=0))
        yield Lie(f"{name}: cut in half", bytes(assemble(read_header(sound), sound[61 : 61 + (len(sound) - 61) // 2])))
        yield Lie(f"{name}: the last byte missing", bytes(assemble(read_header(sound), sound[61:-1])))
        yield Lie(f"{name}: a byte more", bytes(assemble(read_header(sound), sound[61:] + b"\0")))
        yield Lie(f"{name}: no bytes", bytes(assemble(read_header(sound), b"")))
        broken = bytearray(sound)
        broken[61 + (len(sound) - 61) // 2] ^= 0xFF
        seal(broken)
        yield Lie(f"{name}: a byte changed", bytes(broken))
        yield Lie(f"{name}: said to be another", with_header(sound, attributes=CODECS[codec % len(CODECS)]))


def key_lies() -> Iterator[Lie]:
    yield Lie("keys", honest())
    yield Lie("no keys", honest(key=None))
    yield Lie("one without a key", batch_of(payload_with(record(body(1, key=field(None))))))
    yield Lie("one without a key, gzip", batch_of(payload_with(record(body(1, key=field(None)))), Codec.GZIP))
    late = record(body(1, key=field(None), timestamp_delta=2 * HOUR_MS))
    yield Lie("one without a key that is late as well", batch_of(payload_with(late)))
    both = record(body(0, key=field(None))) + record(body(1, timestamp_delta=2 * HOUR_MS)) + record(body(2))
    yield Lie("one without a key and one that is late", batch_of(both))
    broken = record(body(0, key=field(None))) + record(body(1)) + record(body(2))[:-1]
    yield Lie("one without a key and one that is broken", batch_of(broken))


def send_lies(
    talk: Conversation, name: str, lies: Sequence[Lie], configs: dict[str, str] | None = None, version: int = VERSION
) -> None:
    topic, _ = create_topic(talk, name, len(lies), configs)
    for partition, (what, batch) in enumerate(lies):
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(partition, memoryview(batch))])
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[data])
        talk.ask(f"{name}: {what}", request, version)


def register(title: str, name: str, lies: Callable[[], Iterator[Lie]], version: int = VERSION, **configs: str) -> None:
    @chapter(title)
    def send(talk: Conversation) -> None:
        send_lies(talk, name, list(lies()), {key.replace("_", "."): value for key, value in configs.items()}, version)


register("batches with headers that lie", "header", header_lies)
register("batches with headers that lie, in version 3 of Produce", "header-v3", header_lies, version=3)
register("batches with headers that lie, in version 7 of Produce", "header-v7", header_lies, version=7)
register("batches with timestamps that lie", "timestamp", timestamp_lies)
register("the same with log append time", "append-time", timestamp_lies, message_timestamp_type="LogAppendTime")
register(
    "the same where records may be one hour old", "recent", timestamp_lies, message_timestamp_before_max_ms="3600000"
)
register("records that lie", "record", lambda: record_lies(Codec.NONE))
register("records that lie behind gzip", "record-gzip", lambda: record_lies(Codec.GZIP))
register("records that lie behind zstd", "record-zstd", lambda: record_lies(Codec.ZSTD))
register(
    "records that lie, to be compressed", "record-recompressed", lambda: record_lies(Codec.NONE), compression_type="lz4"
)
for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
    register(
        f"records that lie behind {codec.setting}, to be written without compression",
        f"record-{codec.setting}-opened",
        lambda codec=codec: record_lies(codec),  # type: ignore[misc]
        compression_type="uncompressed",
    )
register("records that lie behind snappy", "record-snappy", lambda: record_lies(Codec.SNAPPY))
register("records that lie behind lz4", "record-lz4", lambda: record_lies(Codec.LZ4))
register(
    "records that lie behind gzip, with log append time",
    "record-gzip-append-time",
    lambda: record_lies(Codec.GZIP),
    message_timestamp_type="LogAppendTime",
)
register("compression that lies", "compression", compression_lies)
register("compression that lies, to be zstd", "compression-zstd", compression_lies, compression_type="zstd")
register("batches larger than a topic takes", "large", header_lies, max_message_bytes="100")
register("records without keys in a compacted topic", "compacted", key_lies, cleanup_policy="compact")
