"""Batches whose compressed frames, varints, producers or old formats are unusual or lie, beside those of `lies`."""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping

from compat.answers.lies import (
    BEHIND,
    LAST_INT32,
    Lie,
    batch_of,
    body,
    field,
    honest,
    now_ms,
    number,
    payload_with,
    record,
    register,
    with_header,
)
from tidelog.protocol.compression import Codec, compress
from tidelog.protocol.record_batch import assemble, read_header

PAYLOAD = payload_with(record(body(1)))
HALF = len(PAYLOAD) // 2
UNCHECKED = "Kafka does not check the size and checksum of a frame: it accepts the batch, and librdkafka stops there"
RESERVED = "Kafka does not check the reserved flags of gzip; zlib, which other clients use, does"
CUT = "Kafka calculates with 32 bits and reads the length as 3"
KNOWN_FRAMES = {
    **{
        f"lz4-frames: lz4: a content size of {size}": UNCHECKED for size in (len(PAYLOAD) - 1, 10_000, 2**40, 2**64 - 1)
    },
    "lz4-frames: lz4: a check of the content that is wrong": UNCHECKED,
    "gzip-members: gzip: reserved flags": RESERVED,
    "gzip-members: gzip: half a member behind": BEHIND,
    "snappy-blocks: snappy: half a length behind": BEHIND,
    "zstd-frames: zstd: half a frame behind": BEHIND,
    "varints: a key length above 2^32": CUT,
}
"""Lies that are answered differently on purpose, with the reason."""


def framed(codec: Codec, frames: bytes) -> bytes:
    """A batch of three records with these bytes as its compressed payload."""
    return bytes(assemble(read_header(batch_of(PAYLOAD, codec)), frames))


# -- gzip


def member(data: bytes, *, flags: int = 0, extra: bytes = b"", method: int = 8, crc: int = 0, size: int = 0) -> bytes:
    """One member; `crc` and `size` are added to the right ones."""
    deflated = zlib.compressobj(9, zlib.DEFLATED, -15)
    content = deflated.compress(data) + deflated.flush()
    head = struct.pack("<BBBBIBB", 0x1F, 0x8B, method, flags, 0, 0, 255) + extra
    return head + content + struct.pack("<II", (zlib.crc32(data) + crc) % 2**32, (len(data) + size) % 2**32)


def gzip_lies() -> Iterator[Lie]:
    def lie(what: str, frames: bytes) -> Lie:
        return Lie(f"gzip: {what}", framed(Codec.GZIP, frames))

    yield lie("one member", member(PAYLOAD))
    yield lie("two members", member(PAYLOAD[:HALF]) + member(PAYLOAD[HALF:]))
    yield lie("a member of each byte", b"".join(member(bytes([each])) for each in PAYLOAD))
    yield lie("an empty member before", member(b"") + member(PAYLOAD))
    yield lie("an empty member behind", member(PAYLOAD) + member(b""))
    yield lie("half a member behind", member(PAYLOAD) + member(b"x")[:12])
    yield lie("a wrong CRC", member(PAYLOAD, crc=1))
    yield lie("a wrong size", member(PAYLOAD, size=1))
    yield lie("a name", member(PAYLOAD, flags=8, extra=b"name\0"))
    yield lie("a name that never ends", member(PAYLOAD, flags=8, extra=b"name").replace(b"\0", b"\1"))
    yield lie("an extra field", member(PAYLOAD, flags=4, extra=b"\3\0abc"))
    yield lie("an extra field of 64 KB that is not there", member(PAYLOAD, flags=4, extra=b"\xff\xff"))
    yield lie("a comment", member(PAYLOAD, flags=16, extra=b"comment\0"))
    yield lie("a wrong CRC of the header", member(PAYLOAD, flags=2, extra=b"\1\2"))
    yield lie("another method", member(PAYLOAD, method=9))
    yield lie("reserved flags", member(PAYLOAD, flags=0xE0))


# -- snappy


def blocks(*parts: tuple[int | None, bytes], version: int = 1, compatible: int = 1) -> bytes:
    """Blocks in the framing of snappy-java, each with its length or the one that it claims."""
    output = b"\x82SNAPPY\x00" + struct.pack(">ii", version, compatible)
    for length, data in parts:
        output += struct.pack(">i", len(data) if length is None else length) + data
    return output


def literal(data: bytes, claimed: int | None = None) -> bytes:
    """A raw block without compression, of at most 60 bytes, that claims this length."""
    length = len(data) if claimed is None else claimed
    head = bytes([length]) if length < 128 else bytes([length & 0x7F | 0x80, length >> 7])
    return head + bytes([(len(data) - 1) << 2]) + data


def snappy_lies() -> Iterator[Lie]:
    def lie(what: str, frames: bytes) -> Lie:
        return Lie(f"snappy: {what}", framed(Codec.SNAPPY, frames))

    raw = literal(PAYLOAD)
    yield lie("one raw block", raw)
    yield lie("one block", blocks((None, raw)))
    yield lie("two blocks", blocks((None, literal(PAYLOAD[:HALF])), (None, literal(PAYLOAD[HALF:]))))
    yield lie("no block", blocks())
    for length in (0, -1, -LAST_INT32, 1, len(raw) - 1, len(raw) + 1, LAST_INT32):
        yield lie(f"a block that claims {length} bytes", blocks((length, raw)))
    yield lie("an empty block behind", blocks((None, raw), (0, b"")))
    yield lie("half a length behind", blocks((None, raw)) + b"\0\0")
    for claimed in (0, 1, len(PAYLOAD) - 1, len(PAYLOAD) + 1, 10_000):
        yield lie(f"a block that claims to hold {claimed} bytes inside", blocks((None, literal(PAYLOAD, claimed))))
    yield lie("version 2", blocks((None, raw), version=2))
    yield lie("compatible with version 2", blocks((None, raw), compatible=2))
    yield lie("version 0", blocks((None, raw), version=0, compatible=0))
    yield lie(
        "the header again between two blocks",
        blocks((None, literal(PAYLOAD[:HALF]))) + blocks((None, literal(PAYLOAD[HALF:]))),
    )


# -- lz4


def xxh32(data: bytes) -> int:
    """Of less than 16 bytes."""
    prime1, prime2, prime3, prime4, prime5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    value = prime5 + len(data)
    while len(data) >= 4:
        value += int.from_bytes(data[:4], "little") * prime3
        value = rotated(value, 17) * prime4
        data = data[4:]
    for each in data:
        value += each * prime5
        value = rotated(value, 11) * prime1
    value %= 2**32
    value = (value ^ value >> 15) * prime2 % 2**32
    value = (value ^ value >> 13) * prime3 % 2**32
    return value ^ value >> 16


def rotated(value: int, bits: int) -> int:
    value %= 2**32
    return (value << bits | value >> 32 - bits) % 2**32


def lz4(data: bytes = PAYLOAD, *, flags: int = 0x60, size: int = 0x40, claimed: int | None = None, check: int = 0,
        length: int | None = None, end: bytes = bytes(4)) -> bytes:  # fmt: skip
    """A frame with one block that is not compressed. `check` is added to the right check of the header."""
    descriptor = bytes([flags, size]) + (b"" if claimed is None else struct.pack("<Q", claimed))
    head = b"\x04\x22\x4d\x18" + descriptor + bytes([(xxh32(descriptor) // 256 + check) % 256])
    block = struct.pack("<I", 2**31 + len(data) if length is None else length) + data
    return head + block + end


def lz4_lies() -> Iterator[Lie]:
    def lie(what: str, frames: bytes) -> Lie:
        return Lie(f"lz4: {what}", framed(Codec.LZ4, frames))

    yield lie("one frame", lz4())
    for claimed in (len(PAYLOAD), len(PAYLOAD) - 1, 0, 10_000, 2**40, 2**64 - 1):
        yield lie(f"a content size of {claimed}", lz4(flags=0x68, claimed=claimed))
    yield lie("a wrong check of the header", lz4(check=1))
    yield lie("dependent blocks", lz4(flags=0x40))
    yield lie("a reserved flag", lz4(flags=0x62))
    yield lie("version 2", lz4(flags=0xA0))
    yield lie("version 0", lz4(flags=0x20))
    yield lie("blocks of 4 MB", lz4(size=0x70))
    yield lie("blocks of no size", lz4(size=0x00))
    yield lie("a reserved bit of the block size", lz4(size=0xC0))
    yield lie("a check of the content that is wrong", lz4(flags=0x64, end=bytes(4) + b"\1\2\3\4"))
    yield lie("a check of the content that is missing", lz4(flags=0x64))
    yield lie("a check of the block that is wrong", lz4(flags=0x70, end=b"\1\2\3\4" + bytes(4)))
    yield lie("no end", lz4(end=b""))
    yield lie("half an end", lz4(end=bytes(2)))
    yield lie("a block of 2 GB", lz4(length=2**32 - 1))
    yield lie("a compressed block that is none", lz4(length=len(PAYLOAD)))
    yield lie("two frames", lz4(PAYLOAD[:HALF]) + lz4(PAYLOAD[HALF:]))
    yield lie("an empty frame before", b"\x04\x22\x4d\x18\x60\x40\x82" + bytes(4) + lz4())
    yield lie("a skippable frame before", b"\x50\x2a\x4d\x18" + struct.pack("<I", 3) + b"abc" + lz4())
    yield lie("a legacy frame", b"\x02\x21\x4c\x18" + struct.pack("<I", len(PAYLOAD)) + PAYLOAD)


# -- zstd


def zstd(data: bytes = PAYLOAD, *, head: bytes = b"\x00\x58", kind: int = 0, is_last: bool = True,
         size: int | None = None, end: bytes = b"") -> bytes:  # fmt: skip
    """A frame with one block that is not compressed."""
    length = len(data) if size is None else size
    return b"\x28\xb5\x2f\xfd" + head + (is_last | kind << 1 | length << 3).to_bytes(3, "little") + data + end


def zstd_lies() -> Iterator[Lie]:
    def lie(what: str, frames: bytes) -> Lie:
        return Lie(f"zstd: {what}", framed(Codec.ZSTD, frames))

    yield lie("one frame", zstd())
    for log in (10, 27, 28, 31, 41):
        yield lie(f"a window of 2^{log} bytes", zstd(head=bytes([0, (log - 10) << 3])))
    for claimed in (len(PAYLOAD), len(PAYLOAD) - 1, len(PAYLOAD) + 1, 0):
        yield lie(f"a content size of {claimed}", zstd(head=bytes([0x20, claimed])))
    yield lie("a content size of 2^64 - 1", zstd(head=b"\xe0" + b"\xff" * 8))
    yield lie("a content size of 2^40", zstd(head=b"\xe0" + struct.pack("<Q", 2**40)))
    yield lie("a check that is wrong", zstd(head=b"\x04\x58", end=b"\1\2\3\4"))
    yield lie("a check that is missing", zstd(head=b"\x04\x58"))
    yield lie("a dictionary", zstd(head=b"\x01\x58\x05"))
    yield lie("a reserved bit", zstd(head=b"\x08\x58"))
    yield lie("no last block", zstd(is_last=False))
    yield lie("a reserved kind of block", zstd(kind=3))
    yield lie("a compressed block that is none", zstd(kind=2))
    yield lie("a run of 2 MB", zstd(b"\0", kind=1, size=2**21 - 1))
    yield lie("two frames", zstd(PAYLOAD[:HALF]) + zstd(PAYLOAD[HALF:]))
    yield lie("an empty frame before", zstd(b"") + zstd())
    yield lie("an empty frame behind", zstd() + zstd(b""))
    skippable = b"\x50\x2a\x4d\x18" + struct.pack("<I", 3) + b"abc"
    yield lie("a skippable frame before", skippable + zstd())
    yield lie("a skippable frame behind", zstd() + skippable)
    yield lie("a skippable frame of 4 GB", zstd() + b"\x50\x2a\x4d\x18" + b"\xff" * 4)
    yield lie("half a frame behind", zstd() + zstd()[:9])


# -- varints


def padded(value: int, size: int) -> bytes:
    """A varint of so many bytes, more than it needs."""
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    found = [zigzag >> 7 * index & 0x7F for index in range(size)]
    return bytes(each | 0x80 for each in found[:-1]) + bytes(found[-1:])


def varint_lies() -> Iterator[Lie]:
    def lie(what: str, second: bytes) -> Lie:
        return Lie(what, batch_of(payload_with(second)))

    plain = body(1)
    for size in (2, 5, 6, 10):
        yield lie(f"a record length of {size} bytes", padded(len(plain), size) + plain)
        content = b"\0" + number(0) + padded(1, size) + field(b"key") + field(b"value") + number(0)
        yield lie(f"an offset delta of {size} bytes", record(content))
        yield lie(f"a key length of {size} bytes", record(body(1, key=padded(3, size) + b"key")))
        yield lie(f"a count of headers of {size} bytes", record(body(1, headers=padded(0, size))))
    for size in (5, 9, 10, 11):
        content = b"\0" + padded(7, size) + number(1) + field(b"key") + field(b"value") + number(0)
        yield lie(f"a timestamp delta of {size} bytes", record(content))
    yield lie("a key length above 2^32", record(body(1, key=padded(2**32 + 3, 5) + b"key")))
    yield lie("an offset delta above 2^32", record(b"\0" + number(0) + padded(2**32 + 1, 6) + plain[3:]))


# -- headers, producers and epochs


def unusual_batches() -> Iterator[Lie]:
    twice = number(2) + (field(b"name") + field(b"content")) * 2
    yield Lie("a header twice", batch_of(payload_with(record(body(1, headers=twice)))))
    yield Lie(
        "a header with an empty name", batch_of(payload_with(record(body(1, headers=number(1) + field(b"") * 2))))
    )
    many = number(1000) + (field(b"n") + field(None)) * 1000
    yield Lie("a thousand headers", batch_of(payload_with(record(body(1, headers=many)))))
    plain = honest()
    for epoch in (-1, -2, -5, -(2**31), 2**31 - 1):
        yield Lie(f"a leader epoch of {epoch}", with_header(plain, leader_epoch=epoch))
    for offset in (-5, 1, 2**31, -(2**63)):
        yield Lie(f"a base offset of {offset}", with_header(plain, base_offset=offset))
    for producer_id, epoch, sequence in (
        (-2, -1, -1), (-2, 0, 0), (-(2**63), 0, 0), (2**63 - 1, 0, 0), (7_001, -1, 0), (7_002, -2, 0),
        (7_003, -(2**15), 0), (7_004, 2**15 - 1, 0), (7_005, 0, LAST_INT32), (7_006, 0, LAST_INT32 - 1),
        (7_007, 0, -(2**31)), (7_008, 5, 1),
    ):  # fmt: skip
        fields = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        yield Lie(f"producer {producer_id}, epoch {epoch}, sequence {sequence}", with_header(plain, **fields))
    for attributes in (0x10, 0x20, 0x30):
        fields = {"producer_id": 7_100 + attributes, "producer_epoch": 0, "base_sequence": 0, "attributes": attributes}
        yield Lie(f"attributes {attributes:#x} of a producer", with_header(plain, **fields))


# -- formats 0 and 1


def message(magic: int, offset: int, value: bytes, attributes: int = 0, crc: int = 0) -> bytes:
    content = struct.pack(">bb", magic, attributes) + (struct.pack(">q", now_ms()) if magic else b"")
    content += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    whole = struct.pack(">I", (zlib.crc32(content) + crc) % 2**32) + content
    return struct.pack(">qi", offset, len(whole)) + whole


def old_formats() -> Iterator[Lie]:
    for magic in (0, 1):
        yield Lie(f"format {magic}: one message", message(magic, 0, b"value"))
        yield Lie(f"format {magic}: two messages", message(magic, 0, b"a") + message(magic, 1, b"b"))
        yield Lie(f"format {magic}: a wrong CRC", message(magic, 0, b"value", crc=1))
        inner = b"".join(message(magic, offset, b"v") for offset in (5, 3, -1))
        wrapper = compress(Codec.GZIP, inner)
        yield Lie(f"format {magic}: gzip with strange offsets inside", message(magic, 0, wrapper, Codec.GZIP))
        yield Lie(f"format {magic}: gzip that is none", message(magic, 0, b"garbage", Codec.GZIP))
        yield Lie(f"format {magic}: before a batch", message(magic, 0, b"value") + honest())
        yield Lie(f"format {magic}: behind a batch", honest() + message(magic, 0, b"value"))


FRAME_LIES: Mapping[str, tuple[str, Callable[[], Iterator[Lie]]]] = {
    "members of gzip": ("gzip-members", gzip_lies),
    "blocks of snappy": ("snappy-blocks", snappy_lies),
    "frames of lz4": ("lz4-frames", lz4_lies),
    "frames of zstd": ("zstd-frames", zstd_lies),
    "varints longer than they need be": ("varints", varint_lies),
    "headers, producers and epochs": ("unusual", unusual_batches),
    "messages of formats 0 and 1": ("old-formats", old_formats),
}
for title, (name, lies) in FRAME_LIES.items():
    register(title, name, lies)
