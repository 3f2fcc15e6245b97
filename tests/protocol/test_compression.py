import os
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.allocations import allocations
from tidelog.errors import CorruptMessage
from tidelog.protocol.compression import CODECS_BY_SETTING, Codec, compress, decompress, decompress_into

MEGABYTE = 1024 * 1024
COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    "data", [b"", b"x", b"tide " * 50_000, os.urandom(200_000)], ids=["none", "one", "text", "noise"]
)
def test_every_codec_gives_back_what_it_got(codec: Codec, data: bytes) -> None:
    for buffer in (data, bytearray(data), memoryview(data)):
        packed = compress(codec, buffer)
        assert decompress(codec, packed, len(data)) == data
        assert decompress(codec, memoryview(bytearray(packed)), MEGABYTE) == data


@given(codec=st.sampled_from(Codec), data=st.binary(max_size=2000))
def test_any_data_round_trips(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, [-1, 1, 9]), (Codec.LZ4, [1, 9, 12, 17]), (Codec.ZSTD, [-131072, 1, 3, 22])],
)
def test_every_level_of_the_settings_is_understood(codec: Codec, levels: list[int]) -> None:
    data = b"level " * 1000
    for level in levels:
        assert decompress(codec, compress(codec, data, level), len(data)) == data


def test_codecs_are_found_by_the_names_of_compression_type() -> None:
    assert set(CODECS_BY_SETTING) == {"uncompressed", "gzip", "snappy", "lz4", "zstd"}


@pytest.mark.parametrize("codec", list(Codec))
def test_one_byte_more_than_the_limit_is_refused(codec: Codec) -> None:
    with pytest.raises(CorruptMessage, match="limit"):
        decompress(codec, compress(codec, bytes(100_000)), 99_999)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_costs_no_more_than_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 * MEGABYTE))
    assert len(bomb) < MEGABYTE
    with allocations() as peak, pytest.raises(CorruptMessage):
        decompress(codec, bomb, 4 * MEGABYTE)
    assert peak.bytes < 10 * MEGABYTE


@pytest.mark.parametrize("codec", list(Codec))
def test_data_is_decompressed_into_a_buffer_that_is_there(codec: Codec) -> None:
    data = os.urandom(500) * 300
    room = bytearray(len(data) + 9)
    assert decompress_into(codec, compress(codec, data), memoryview(room), len(room)) == len(data)
    assert room == data + bytes(9)
    exact = bytearray(len(data))
    assert decompress_into(codec, compress(codec, data), memoryview(exact), len(room)) == len(data)
    assert exact == data


@pytest.mark.parametrize("codec", list(Codec))
def test_a_buffer_that_is_too_small_is_distinguished_from_bad_data(codec: Codec) -> None:
    data = os.urandom(500) * 300
    for size_bytes in (0, 1000, len(data) - 1):
        assert decompress_into(codec, compress(codec, data), memoryview(bytearray(size_bytes)), len(data)) is None
    if codec != Codec.NONE:
        with pytest.raises(CorruptMessage):
            decompress_into(codec, b"\x00garbage" * 9, memoryview(bytearray(1000)), 1000)


def test_a_snappy_block_that_lies_about_its_size_is_refused_before_anything_is_allocated() -> None:
    with pytest.raises(CorruptMessage):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(10), MEGABYTE)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("data", [b"", b"\x00", b"not compressed at all", bytes(100)])
def test_garbage_is_corrupt(codec: Codec, data: bytes) -> None:
    try:
        assert decompress(codec, data, MEGABYTE) == b""
    except CorruptMessage:
        return
    assert codec is Codec.SNAPPY
    assert data == b"\x00"


@pytest.mark.parametrize("codec", COMPRESSING)
def test_cut_data_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, b"some text to cut short, " * 10)
    for size in range(1, len(packed)):
        if codec is Codec.SNAPPY and size == 16:
            continue  # a header without blocks is whole
        with pytest.raises(CorruptMessage):
            decompress(codec, packed[:size], MEGABYTE)


def test_what_follows_a_gzip_stream_is_corrupt() -> None:
    with pytest.raises(CorruptMessage):
        decompress(Codec.GZIP, compress(Codec.GZIP, b"data") + b"more", MEGABYTE)


def test_snappy_is_read_with_and_without_framing_and_written_with_it() -> None:
    data = b"snap " * 30_000
    framed = compress(Codec.SNAPPY, data)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), len(data)) == data
    assert decompress(Codec.SNAPPY, framed, len(data)) == data


def test_the_blocks_of_a_snappy_frame_share_one_limit() -> None:
    framed = compress(Codec.SNAPPY, bytes(100_000))
    with pytest.raises(CorruptMessage):
        decompress(Codec.SNAPPY, framed, 70_000)


def test_lz4_frames_have_independent_blocks_as_java_clients_need() -> None:
    flags = compress(Codec.LZ4, b"block " * 100_000)[4]
    assert flags >> 6 == 1, "frame version"
    assert flags & 0x20, "independent blocks"
    assert not flags & 0x04, "no content checksum"


def test_gzip_is_a_gzip_stream_and_not_bare_zlib() -> None:
    assert zlib.decompress(compress(Codec.GZIP, b"data"), 16 + zlib.MAX_WBITS) == b"data"
