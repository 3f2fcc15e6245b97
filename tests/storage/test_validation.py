import struct
from collections.abc import Callable

import pytest

from tests.kernels.both import both_kernels  # noqa: F401 - a fixture
from tidelog.config.topic import TopicSettings
from tidelog.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
)
from tidelog.protocol.compression import Codec, compress
from tidelog.protocol.record_batch import HEADER, BatchHeader, assemble, crc_matches, read_header, seal
from tidelog.protocol.records import ControlType, Record, build_batch, build_end_marker, records_of
from tidelog.storage.record_checks import INLINE_STEPS, PIECE_BYTES, SLICE_STEPS, UndecodableBatch
from tidelog.storage.validation import (
    AppendOrigin,
    NeedsSlices,
    PreparedBatch,
    long_preparation,
    only_batch,
    prepare,
    stamped,
)

pytestmark = pytest.mark.usefixtures("both_kernels")

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000

Change = Callable[[BatchHeader], BatchHeader]


def records(count: int = 3, *, key: bytes | None = b"key", timestamp: int = NOW_MS - 10) -> list[Record]:
    return [Record(i, timestamp + i, key, b"value %d" % i, (("h", b"1"),)) for i in range(count)]


def prepared(
    batch: bytes | bytearray, settings: TopicSettings | None = None, origin: AppendOrigin = AppendOrigin.CLIENT
) -> PreparedBatch:
    return prepare(memoryview(bytearray(batch)), settings or TopicSettings(), NOW_MS, origin)


def changed(batch: bytearray, **fields: int) -> bytearray:
    """The batch with other header fields and a CRC that fits them."""
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(**fields))
    seal(batch)
    return batch


def rejection(batch: bytes | bytearray, settings: TopicSettings | None = None) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        prepared(batch, settings)
    return caught.value


def test_an_ordinary_batch_is_kept_as_it_came() -> None:
    batch = build_batch(records())
    result = prepared(batch)
    assert result == PreparedBatch(read_header(batch), memoryview(batch), -1)


@pytest.mark.parametrize("size", [0, 1, 60])
def test_less_than_a_header_is_no_batch(size: int) -> None:
    assert type(rejection(build_batch(records())[:size])) is CorruptMessage


@pytest.mark.parametrize("cut", [1, 10])
def test_a_batch_cut_short_is_refused(cut: int) -> None:
    assert type(rejection(build_batch(records())[:-cut])) is InvalidRecord


def test_exactly_one_batch_is_accepted() -> None:
    batch = build_batch(records())
    assert "exactly one" in str(rejection(batch + batch))
    assert type(rejection(batch + b"x")) is InvalidRecord


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_only_format_2_is_accepted(magic: int) -> None:
    error = rejection(changed(build_batch(records()), magic=magic))
    assert type(error) is InvalidRecord
    assert "format version 2" in str(error)


def test_the_base_offset_must_be_zero() -> None:
    error = rejection(build_batch(records(), base_offset=-1))
    assert type(error) is InvalidRecord
    assert "base offset" in str(error)
    moved = [record._replace(offset=record.offset + 7) for record in records()]
    assert type(rejection(build_batch(moved))) is InvalidRecord


def test_a_batch_may_be_as_large_as_the_setting_and_no_larger() -> None:
    batch = build_batch(records())
    prepared(batch, TopicSettings(max_message_bytes=len(batch)))
    error = rejection(batch, TopicSettings(max_message_bytes=len(batch) - 1))
    assert type(error) is MessageTooLarge
    assert str(len(batch)) in str(error)


@pytest.mark.parametrize("position", [21, 40, 61, -1])
def test_damage_is_noticed(position: int) -> None:
    batch = build_batch(records())
    batch[position] ^= 0x10
    assert type(rejection(batch)) is CorruptMessage


def test_size_is_checked_before_the_crc_and_the_crc_before_the_content() -> None:
    batch = build_batch(records(), is_control=True)
    assert type(rejection(batch)) is InvalidRecord
    batch[-1] ^= 1
    assert type(rejection(batch)) is CorruptMessage
    assert type(rejection(batch, TopicSettings(max_message_bytes=10))) is MessageTooLarge


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    assert type(rejection(changed(build_batch(records()), attributes=codec))) is UndecodableBatch


@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": 0, "last_offset_delta": -1},
        {"record_count": -1, "last_offset_delta": -2},
        {"record_count": 4},
        {"record_count": 2},
        {"last_offset_delta": 3},
        {"last_offset_delta": -5},
    ],
)
def test_the_number_of_records_must_fit_the_offsets(fields: dict[str, int]) -> None:
    assert type(rejection(changed(build_batch(records()), **fields))) is InvalidRecord


def test_clients_may_not_write_control_records() -> None:
    marker = build_end_marker(
        ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS
    )
    error = rejection(marker)
    assert type(error) is InvalidRecord
    assert "control" in str(error)
    assert prepared(marker, origin=AppendOrigin.COORDINATOR).data == marker


def test_a_producer_id_needs_a_sequence() -> None:
    error = rejection(build_batch(records(), producer_id=5, producer_epoch=0))
    assert type(error) is InvalidRecord
    assert "sequence" in str(error)
    prepared(build_batch(records(), producer_id=5, producer_epoch=0, base_sequence=0))


@pytest.mark.parametrize("policy", [("compact",), ("compact", "delete"), ("delete", "compact")])
@pytest.mark.parametrize("codec", list(Codec))
def test_a_compacted_topic_needs_keys(policy: tuple[str, ...], codec: Codec) -> None:
    settings = TopicSettings(cleanup_policy=policy)
    prepared(build_batch(records(), compression=codec), settings)
    without = records()
    without[1] = without[1]._replace(key=None)
    error = rejection(build_batch(without, compression=codec), settings)
    assert isinstance(error, InvalidRecord)
    assert [record_error.batch_index for record_error in error.record_errors] == [1]
    assert "no key" in str(error)


def test_coordinators_are_trusted_with_keys() -> None:
    settings = TopicSettings(cleanup_policy=("compact",))
    prepared(build_batch(records(key=None)), settings, AppendOrigin.COORDINATOR)


def test_malformed_records_are_an_error_the_producer_does_not_retry() -> None:
    batch = build_batch(records())
    batch[61] = 0x7F
    seal(batch)
    error = rejection(batch)
    assert type(error) is InvalidRecord
    assert not error.retriable


def test_a_timestamp_may_not_be_too_far_in_the_future() -> None:
    prepared(build_batch(records(1, timestamp=NOW_MS + HOUR_MS)))
    error = rejection(build_batch(records(2, timestamp=NOW_MS + HOUR_MS)))
    assert isinstance(error, InvalidTimestamp)
    assert [record_error.batch_index for record_error in error.record_errors] == [1]
    assert "message.timestamp.after.max.ms" in str(error)


@pytest.mark.parametrize("claimed", [NOW_MS + HOUR_MS + 1, 2**63 - 1, -(2**63), -1, 0])
def test_the_latest_timestamp_is_that_of_the_records_whatever_the_header_claims(claimed: int) -> None:
    result = prepared(changed(build_batch(records()), max_timestamp=claimed))
    assert result.header.max_timestamp == NOW_MS - 8
    assert crc_matches(result.data, result.header)


def test_a_timestamp_may_not_be_too_far_in_the_past() -> None:
    settings = TopicSettings(message_timestamp_before_max_ms=1000)
    prepared(build_batch(records(timestamp=NOW_MS - 1000)), settings)
    late = records()
    late[2] = late[2]._replace(timestamp=NOW_MS - 1001)
    error = rejection(build_batch(late), settings)
    assert isinstance(error, InvalidTimestamp)
    assert [record_error.batch_index for record_error in error.record_errors] == [2]
    prepared(build_batch(late))


def test_records_without_a_timestamp_are_accepted() -> None:
    batch = build_batch([Record(0, -1, b"k", b"v")])
    prepared(batch, TopicSettings(message_timestamp_before_max_ms=1000))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("timestamps", [(1_500_000_000_123, 999_999_999_000), (999_999_999_000, 1_500_000_000_123)])
def test_a_latest_timestamp_that_cannot_be_trusted_is_read_from_the_records(
    timestamps: tuple[int, ...], codec: Codec
) -> None:
    batch = build_batch([Record(i, timestamp, b"k", b"v") for i, timestamp in enumerate(timestamps)], compression=codec)
    wrong = changed(bytearray(batch), max_timestamp=999_999_999_000)
    result = prepared(wrong)
    assert result.header.max_timestamp == 1_500_000_000_123
    assert bytes(result.data) == bytes(batch)
    assert crc_matches(result.data, result.header)


def test_a_right_but_old_latest_timestamp_is_kept() -> None:
    batch = build_batch(records(timestamp=5_000))
    assert bytes(prepared(batch).data) == bytes(batch)


def test_log_append_time_from_a_client_counts_for_nothing_or_is_refused() -> None:
    batch = build_batch(records(), log_append_time_ms=NOW_MS)
    assert not prepared(batch).header.has_log_append_time
    assert type(rejection(build_batch(records(), log_append_time_ms=NOW_MS + 2 * HOUR_MS))) is InvalidTimestamp
    assert type(rejection(build_batch(records(), log_append_time_ms=-1))) is InvalidTimestamp
    assert type(rejection(batch, TopicSettings(message_timestamp_type="LogAppendTime"))) is InvalidTimestamp


def test_log_append_time_is_stamped_on_the_batch() -> None:
    settings = TopicSettings(message_timestamp_type="LogAppendTime")
    batch = build_batch(records(timestamp=5))
    result = prepared(batch, settings)
    assert result.log_append_time_ms == NOW_MS
    assert crc_matches(result.data, result.header)
    assert result.header == read_header(result.data)
    assert [record.timestamp for record in records_of(result.data)] == [NOW_MS] * 3
    assert result.header.base_timestamp == 5


def test_log_append_time_does_not_need_a_writable_buffer() -> None:
    settings = TopicSettings(message_timestamp_type="LogAppendTime")
    batch = memoryview(bytes(build_batch(records())))
    assert prepare(batch, settings, NOW_MS, AppendOrigin.CLIENT).header.max_timestamp == NOW_MS


def test_log_append_time_accepts_any_timestamp_of_the_producer() -> None:
    settings = TopicSettings(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=0)
    prepared(build_batch(records(timestamp=5)), settings)
    prepared(build_batch(records(timestamp=NOW_MS * 2)), settings)


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_the_topic_may_want_another_codec(source: Codec, target: Codec) -> None:
    original = build_batch(
        records(100), compression=source, producer_id=9, producer_epoch=2, base_sequence=4, is_transactional=True
    )
    result = prepared(original, TopicSettings(compression_type=target.setting))
    assert result.header.compression == target
    assert crc_matches(result.data, result.header)
    assert list(records_of(result.data)) == records(100)
    kept = ("base_offset", "last_offset_delta", "producer_id", "base_sequence", "max_timestamp", "is_transactional")
    assert all(getattr(result.header, name) == getattr(read_header(original), name) for name in kept)
    if source is target:
        assert result.data == original


@pytest.mark.parametrize("codec", list(Codec))
def test_the_codec_of_the_producer_is_kept_by_default(codec: Codec) -> None:
    batch = build_batch(records(), compression=codec)
    assert prepared(batch).data == batch


def test_another_codec_and_log_append_time_go_together() -> None:
    settings = TopicSettings(compression_type="zstd", message_timestamp_type="LogAppendTime")
    result = prepared(build_batch(records()), settings)
    assert result.header.compression == Codec.ZSTD
    assert crc_matches(result.data, result.header)
    assert [record.timestamp for record in records_of(result.data)] == [NOW_MS] * 3


def test_control_batches_stay_uncompressed() -> None:
    marker = build_end_marker(ControlType.ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1)
    assert prepared(marker, TopicSettings(compression_type="gzip"), AppendOrigin.COORDINATOR).data == marker


def test_a_batch_that_grows_beyond_the_limit_by_another_codec_is_refused() -> None:
    batch = build_batch([Record(0, NOW_MS, b"k", bytes(10_000))], compression=Codec.ZSTD)
    settings = TopicSettings(compression_type="uncompressed", max_message_bytes=1000)
    assert type(rejection(batch, settings)) is MessageTooLarge


def test_undecodable_compressed_data_is_refused() -> None:
    batch = bytearray(build_batch(records(), compression=Codec.GZIP))
    batch[61:71] = struct.pack(">10x")
    seal(batch)
    assert type(rejection(batch)) is UndecodableBatch
    assert type(rejection(batch, TopicSettings(compression_type="lz4"))) is UndecodableBatch


def test_what_the_leader_sent_is_only_checked_for_damage() -> None:
    moved = build_batch(records(key=None, timestamp=1), base_offset=-5)
    settings = TopicSettings(
        cleanup_policy=("compact",), max_message_bytes=10, compression_type="gzip", message_timestamp_before_max_ms=1
    )
    assert prepared(moved, settings, AppendOrigin.REPLICATION).data == moved
    moved[-1] ^= 1
    with pytest.raises(CorruptMessage):
        prepared(moved, settings, AppendOrigin.REPLICATION)


def test_uncompressed_records_get_the_offsets_of_their_places() -> None:
    moved = [record._replace(offset=offset) for record, offset in zip(records(), (0, 7, 2), strict=True)]
    batch = build_batch(moved, base_offset=0)
    result = prepared(batch)
    assert [record.offset for record in records_of(result.data)] == [0, 1, 2]
    assert [record.value for record in records_of(result.data)] == [record.value for record in moved]
    assert crc_matches(result.data, result.header)
    assert type(rejection(build_batch(moved, base_offset=0, compression=Codec.ZSTD))) is UndecodableBatch


@pytest.mark.parametrize("size", [600, 2000, 70_000, 300_000])
def test_large_batches_are_checked_in_pieces(size: int) -> None:
    written = [Record(i, NOW_MS, b"key", bytes(size)) for i in range(PIECE_BYTES // size + 2)]
    batch = build_batch(written)
    assert len(batch) > PIECE_BYTES
    assert bytes(prepared(batch).data) == bytes(batch)
    late = batch.copy()
    late[-1] = 2  # the last record claims a header
    seal(late)
    assert type(rejection(late)) is InvalidRecord
    assert (
        type(rejection(changed(batch, record_count=len(written) + 1, last_offset_delta=len(written)))) is InvalidRecord
    )
    gap = [*written[:-1], written[-1]._replace(offset=len(written) + 5)]
    mended = prepared(changed(build_batch(gap), last_offset_delta=len(written) - 1))
    assert [record.offset for record in records_of(mended.data)] == list(range(len(written)))


@pytest.mark.parametrize("place", [0, 150, 299])
def test_large_batches_get_the_timestamp_of_their_latest_record(place: int) -> None:
    written = [Record(i, NOW_MS, b"key", bytes(PIECE_BYTES // 100)) for i in range(300)]
    written[place] = written[place]._replace(timestamp=NOW_MS + 9)
    batch = build_batch(written)
    assert read_header(batch).base_timestamp == written[0].timestamp
    assert len(batch) > 3 * PIECE_BYTES  # three pieces, and a rest
    assert bytes(prepared(batch).data) == bytes(batch)
    for wrong in (NOW_MS + 8, NOW_MS + 10):
        result = prepared(changed(batch.copy(), max_timestamp=wrong))
        assert bytes(result.data) == bytes(batch)


@pytest.mark.parametrize("place", [0, 150, 299])
def test_large_batches_need_keys_in_compacted_topics(place: int) -> None:
    written = [Record(i, NOW_MS, b"key", bytes(PIECE_BYTES // 100)) for i in range(300)]
    settings = TopicSettings(cleanup_policy=("compact",))
    assert bytes(prepared(build_batch(written), settings).data) == bytes(build_batch(written))
    written[place] = written[place]._replace(key=None)
    error = rejection(build_batch(written), settings)
    assert isinstance(error, InvalidRecord)
    assert [each.batch_index for each in error.record_errors] == [place]


def test_no_more_than_a_thousand_refused_records_are_named() -> None:
    settings = TopicSettings(cleanup_policy=("compact",))
    with pytest.raises(InvalidRecord, match="1001 of 1001") as caught:
        prepared_in_slices(build_batch(records(1001, key=None)), settings)
    assert len(caught.value.record_errors) == 1000


def only(data: bytes | bytearray) -> bytes:
    return bytes(only_batch(memoryview(data)))


def test_what_follows_the_batch_and_is_no_whole_batch_is_left_out() -> None:
    batch = bytes(build_batch(records()))
    assert only(batch) == only(batch + b"x" * 11) == only(batch + batch[:-1]) == batch
    for rejected in (batch + batch, b"", batch[:-1], batch[:16] + b"\1" + batch[17:]):
        with pytest.raises(InvalidRecord):
            only(rejected)
    for damaged in (batch + bytes(12), batch[:8] + bytes(4) + batch[12:], batch[:16] + b"\3" + batch[17:]):
        with pytest.raises(CorruptMessage):
            only(damaged)


# ---- long batches


def long_batch(codec: Codec = Codec.NONE, count: int = INLINE_STEPS + 1) -> bytearray:
    return build_batch([Record(i, NOW_MS, b"", None) for i in range(count)], compression=codec)


def prepared_in_slices(batch: bytes | bytearray, settings: TopicSettings | None = None) -> tuple[PreparedBatch, int]:
    steps, result, turns = long_preparation(memoryview(bytearray(batch)), settings or TopicSettings(), NOW_MS), None, 0
    while True:
        try:
            work = steps.send(result)
        except StopIteration as end:
            return end.value, turns
        result = work() if work is not None else None
        turns += 1


@pytest.mark.parametrize("codec", Codec)
def test_a_long_batch_is_checked_in_slices(codec: Codec) -> None:
    batch = long_batch(codec, SLICE_STEPS + 1)
    with pytest.raises(NeedsSlices):
        prepared(batch)
    result, turns = prepared_in_slices(batch)
    assert bytes(result.data) == bytes(batch)
    assert turns == 3  # decompressed, a slice, and the form of the topic


def test_a_record_with_many_headers_is_long() -> None:
    headers = tuple(("h", b"") for _ in range(INLINE_STEPS + 1))
    batch = build_batch([Record(0, NOW_MS, b"", None, headers)])
    with pytest.raises(NeedsSlices):
        prepared(batch)
    assert bytes(prepared_in_slices(batch)[0].data) == bytes(batch)


def test_a_long_batch_takes_the_form_of_the_topic() -> None:
    settings = TopicSettings(compression_type="gzip", message_timestamp_type="LogAppendTime")
    batch = long_batch(Codec.ZSTD)
    result, _ = prepared_in_slices(batch, settings)
    assert result.header.compression == Codec.GZIP
    assert result.log_append_time_ms == -1
    late = stamped(result, settings, NOW_MS + 5)
    assert (late.header.max_timestamp, late.log_append_time_ms) == (NOW_MS + 5, NOW_MS + 5)
    assert crc_matches(late.data, late.header)


def test_a_long_batch_is_refused_as_a_short_one() -> None:
    batch = long_batch(Codec.GZIP)
    with pytest.raises(InvalidRecord):
        prepared_in_slices(changed(batch, record_count=INLINE_STEPS, last_offset_delta=INLINE_STEPS - 1))
    with pytest.raises(CorruptMessage):
        prepared_in_slices(bytes(batch[:-1]) + b"x")


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_decompression_stops_at_the_bound(codec: Codec) -> None:
    settings = TopicSettings(max_decompressed_message_bytes=2 * 1024 * 1024, max_message_bytes=2**30)
    bomb = build_batch([Record(0, NOW_MS, b"key", bytes(20 * 1024 * 1024))], compression=codec)
    with pytest.raises(NeedsSlices):
        prepared(bomb, settings)
    with pytest.raises(MessageTooLarge, match=r"max\.decompressed\.message\.bytes"):
        prepared_in_slices(bomb, settings)


def test_the_same_record_again_and_again_is_refused_after_one_slice() -> None:
    count = 3 * SLICE_STEPS
    header = read_header(long_batch(Codec.ZSTD))._replace(record_count=count, last_offset_delta=count - 1)
    batch = assemble(header, compress(Codec.ZSTD, b"\x0c\0\0\0\1\1\0" * count))
    steps = long_preparation(memoryview(batch), TopicSettings(), NOW_MS)
    work = next(steps)
    assert work is not None
    with pytest.raises(UndecodableBatch):
        steps.send(work())
