"""Compression codecs of record batches. Decompression has a limit: a small batch may expand to a huge one."""

import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final

from tidelog.config.topic import DECOMPRESSED_LIMIT_BYTES
from tidelog.errors import CorruptMessage
from tidelog.types import Buffer


class Codec(IntEnum):
    """Codec numbers, as in the lowest three attribute bits of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def setting(self) -> str:
        """Name in the setting `compression.type`."""
        return "uncompressed" if self is Codec.NONE else self.name.lower()


CODECS_BY_SETTING: Final = {codec.setting: codec for codec in Codec}

LZ4_DEFAULT_LEVEL: Final = 9
"""Kafka's default of compression.lz4.level: the fast compressor; other levels are high compression."""

ZSTD_DEFAULT_LEVEL: Final = 3

_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_PIECE_BYTES: Final = 1024 * 1024
_MAX_GZIP_MEMBERS: Final = 64
"""Each costs some memory and microseconds, and may be empty."""
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_BLOCK_LENGTH: Final = struct.Struct(">i")

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_VERSION_MASK: Final = 0xC0
_LZ4_VERSION: Final = 0x40
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_DICTIONARY: Final = 0x01
_LZ4_UNCOMPRESSED: Final = 2**31
_LZ4_LENGTH: Final = struct.Struct("<I")

_FIRST_GUESS_BYTES: Final = 64 * 1024
_GUESSED_RATIO: Final = 4
_OUTPUT_TOO_SMALL: Final = "failed to write whole buffer"
"""Message of cramjam for a full output buffer; any other message means bad input."""


class DecompressedTooLarge(CorruptMessage):
    """Decompression stopped at the limit. The data may be valid."""


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`level`: as in the setting of the codec, such as compression.gzip.level. None: the codec's default."""
    return _COMPRESSORS[codec](data, level)


def decompress(codec: Codec, data: Buffer, limit_bytes: int) -> bytes:
    """Raises CorruptMessage for malformed data, DecompressedTooLarge if the result is larger than `limit_bytes`.

    Long data may be decompressed in a worker: all codecs release the interpreter lock.
    """
    return _DECOMPRESSORS[codec](data, limit_bytes)


def decompress_start(codec: Codec, data: Buffer, most_bytes: int) -> tuple[bytes, bool]:
    """Decompress about the first `most_bytes`. Returns them, and whether that is all of the data."""
    match codec:
        case Codec.NONE:
            return bytes(data), True
        case Codec.GZIP:
            return _start_of_gzip(data, most_bytes)
        case Codec.SNAPPY:
            return _start_of_snappy(data, most_bytes)
        case Codec.LZ4 | Codec.ZSTD:
            output = bytearray(most_bytes)
            count = _decompress_frame_into(codec, data, output)
            return (bytes(output), False) if count is None else (bytes(memoryview(output)[:count]), True)


def decompress_into(codec: Codec, data: Buffer, output: memoryview, limit_bytes: int) -> int | None:
    """Decompress into `output`. Returns the number of bytes; None if `output` is too small. Raises CorruptMessage.

    Saves the memory of `decompress` if the codec can write to an existing buffer.
    """
    if codec in _FRAME_CODECS:
        return _decompress_frame_into(codec, data, output)
    decompressed = decompress(codec, data, limit_bytes)
    if len(decompressed) > len(output):
        return None
    output[: len(decompressed)] = decompressed
    return len(decompressed)


def _too_large(codec: str, limit_bytes: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(f"{codec} data decompresses to more than the {limit_bytes} bytes that its limit leaves")


def _malformed(codec: str, why: object) -> CorruptMessage:
    return CorruptMessage(f"{codec} data is malformed: {why}")


def _compress_none(data: Buffer, level: int | None) -> bytes:
    return bytes(data)


def _decompress_none(data: Buffer, limit_bytes: int) -> bytes:
    if len(data) > limit_bytes:
        raise DecompressedTooLarge(f"{len(data)} bytes of records exceed the limit of {limit_bytes} bytes")
    return bytes(data)


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Buffer, limit_bytes: int) -> bytes:
    output, is_whole = _inflate(data, limit_bytes + 1)
    if len(output) > limit_bytes:
        raise _too_large("gzip", limit_bytes)
    if not is_whole:
        raise _malformed("gzip", "it does not end where the batch ends")
    return bytes(output)


def _start_of_gzip(data: Buffer, most_bytes: int) -> tuple[bytes, bool]:
    output, is_whole = _inflate(data, most_bytes)
    return bytes(output), is_whole


def _inflate(data: Buffer, most_bytes: int) -> tuple[bytearray, bool]:
    """Members one after the other are one stream, as in Java's GZIPInputStream."""
    output = bytearray()
    rest: Buffer = data
    for _ in range(_MAX_GZIP_MEMBERS):
        decompressor = zlib.decompressobj(_GZIP_WINDOW)
        try:
            # In pieces: zlib keeps what it returns twice while it returns it.
            while not decompressor.eof and len(output) < most_bytes:
                piece = decompressor.decompress(rest, min(most_bytes - len(output), _GZIP_PIECE_BYTES))
                rest = decompressor.unconsumed_tail
                output += piece
                if not piece and not rest:
                    break
        except zlib.error as error:
            raise _malformed("gzip", error) from error
        rest = decompressor.unused_data
        if len(output) >= most_bytes:
            return output, decompressor.eof and not rest
        if not decompressor.eof or (rest and not rest.startswith(_GZIP_MAGIC)):
            raise _malformed("gzip", "it does not end where the batch ends")
        if not rest:
            return output, True
    raise _malformed("gzip", f"it has more than {_MAX_GZIP_MEMBERS} members")


def _compress_snappy(data: Buffer, level: int | None) -> bytes:
    """Raw blocks in the framing of snappy-java, which Java clients expect."""
    import cramjam

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> bytes:
    """Accepts both forms that clients write: blocks in snappy-java's framing, and a single raw block."""
    output = bytearray()
    for block in _snappy_blocks(memoryview(data)):
        output += _decompress_snappy_block(block, limit_bytes - len(output))
    return bytes(output)


def _start_of_snappy(data: Buffer, most_bytes: int) -> tuple[bytes, bool]:
    output = bytearray()
    for block in _snappy_blocks(memoryview(data)):
        if len(output) >= most_bytes:
            return bytes(output), False
        output += _decompress_snappy_block(block, DECOMPRESSED_LIMIT_BYTES)
    return bytes(output), True


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield view
        return
    if len(view) < len(_XERIAL_HEADER):
        raise _malformed("snappy", "its header is cut short")
    position = len(_XERIAL_HEADER)
    while position < len(view):
        block_start = position + _BLOCK_LENGTH.size
        if block_start > len(view):
            raise _malformed("snappy", "a block length is cut short")
        if (
            bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC
        ):  # another stream, which Java reads too
            position += len(_XERIAL_HEADER)
            continue
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position = block_start + length
        if length < 0 or position > len(view):
            raise _malformed("snappy", f"a block claims {length} bytes")
        yield view[block_start:position]


def _decompress_snappy_block(block: memoryview, limit_bytes: int) -> bytes:
    import cramjam

    try:
        if cramjam.snappy.decompress_raw_len(block) > limit_bytes:
            raise _too_large("snappy", limit_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _malformed("snappy", error) from error


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    """Independent blocks without content checksum: Kafka's Java clients read no other frames."""
    import cramjam

    is_default = level is None or level == LZ4_DEFAULT_LEVEL
    compressor = cramjam.lz4.Compressor(1 if is_default else level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _decompress_lz4(data: Buffer, limit_bytes: int) -> bytes:
    return _decompress_growing(Codec.LZ4, data, limit_bytes)


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    import cramjam

    return bytes(cramjam.zstd.compress(data, ZSTD_DEFAULT_LEVEL if level is None else level))


def _decompress_zstd(data: Buffer, limit_bytes: int) -> bytes:
    return _decompress_growing(Codec.ZSTD, data, limit_bytes)


def _decompress_growing(codec: Codec, data: Buffer, limit_bytes: int) -> bytes:
    """A frame may lack its decompressed size: start with an estimate and enlarge the buffer, up to the limit."""
    capacity = min(limit_bytes, max(_FIRST_GUESS_BYTES, len(data) * _GUESSED_RATIO))
    while True:
        output = bytearray(capacity)
        count = _decompress_frame_into(codec, data, output)
        if count is not None:
            return bytes(memoryview(output)[:count])
        if capacity >= limit_bytes:
            raise _too_large(codec.setting, limit_bytes)
        del output  # before the larger one is there
        capacity = min(limit_bytes, capacity * _GUESSED_RATIO)


def _decompress_frame_into(codec: Codec, data: Buffer, output: bytearray | memoryview) -> int | None:
    import cramjam

    try:
        if codec == Codec.LZ4:
            return int(cramjam.lz4.decompress_into(_first_lz4_frame(memoryview(data)), output))
        return int(cramjam.zstd.decompress_into(data, output))
    except cramjam.DecompressionError as error:
        if _OUTPUT_TOO_SMALL not in str(error):
            raise _malformed(codec.setting, error) from error
    return None


def _first_lz4_frame(view: memoryview) -> memoryview:
    """What Kafka's Java clients read: one frame of independent blocks, and nothing of further frames.

    Other decoders read more: records that only some consumers see must not be accepted.
    """
    if bytes(view[: len(_LZ4_MAGIC)]) != _LZ4_MAGIC or len(view) <= len(_LZ4_MAGIC):
        raise _malformed("lz4", "it does not begin with a frame")
    flags = view[len(_LZ4_MAGIC)]
    if flags & _LZ4_VERSION_MASK != _LZ4_VERSION or not flags & _LZ4_INDEPENDENT:
        raise _malformed("lz4", "only frames of version 1 with independent blocks are read by all clients")
    position = len(_LZ4_MAGIC) + 3 + (8 if flags & _LZ4_CONTENT_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY else 0)
    while position + _LZ4_LENGTH.size <= len(view):
        (length,) = _LZ4_LENGTH.unpack_from(view, position)
        position += _LZ4_LENGTH.size
        if not length:
            end = position + (4 if flags & _LZ4_CONTENT_CHECKSUM else 0)
            return view[:end] if bytes(view[end : end + len(_LZ4_MAGIC)]) == _LZ4_MAGIC else view
        position += (length & ~_LZ4_UNCOMPRESSED) + (4 if flags & _LZ4_BLOCK_CHECKSUM else 0)
    return view  # cut short, as the decoder will notice


_FRAME_CODECS: Final = (Codec.LZ4, Codec.ZSTD)

_COMPRESSORS: Final[dict[Codec, Callable[[Buffer, int | None], bytes]]] = {
    Codec.NONE: _compress_none,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}

_DECOMPRESSORS: Final[dict[Codec, Callable[[Buffer, int], bytes]]] = {
    Codec.NONE: _decompress_none,
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
