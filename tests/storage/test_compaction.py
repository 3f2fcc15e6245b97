from collections.abc import Collection, Iterable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.both import both_kernels  # noqa: F401 - a fixture
from tidelog.config.topic import TopicSettings
from tidelog.errors import CorruptMessage
from tidelog.protocol.compression import Codec
from tidelog.protocol.record_batch import crc_matches, read_header, seal
from tidelog.protocol.records import ControlType, Record, build_batch, build_end_marker, records_of
from tidelog.storage.compaction import (
    BYTES_PER_KEY,
    BatchFilter,
    GroupableSegment,
    LastRecord,
    LogFacts,
    OffsetMap,
    SegmentFacts,
    TransactionTracker,
    cleanable_range,
    group_segments,
    map_batch,
    readable_payload,
)
from tidelog.storage.transaction_index import AbortedTransaction

pytestmark = pytest.mark.usefixtures("both_kernels")

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000

Batch = bytes | bytearray | memoryview


def clean(
    batches: Sequence[Batch],
    *,
    aborted: Sequence[AbortedTransaction] = (),
    producers: Mapping[int, LastRecord] | None = None,
    now_ms: int = NOW_MS,
    kept_end_offsets: Collection[int] = (),
) -> list[Batch]:
    """One whole cleaning of a log of these batches."""
    offset_map = mapped(batches, aborted)
    batch_filter = BatchFilter(
        offset_map,
        TransactionTracker(aborted),
        producers or {},
        kept_end_offsets=kept_end_offsets,
        now_ms=now_ms,
        delete_retention_ms=DAY_MS,
    )
    found = [batch_filter.retained(read_header(batch), batch) for batch in batches]
    return [batch for batch in found if batch is not None]


def mapped(batches: Iterable[Batch], aborted: Sequence[AbortedTransaction] = ()) -> OffsetMap:
    offset_map, tracker = OffsetMap(10**6), TransactionTracker(aborted)
    for batch in batches:
        map_batch(offset_map, tracker, read_header(batch), batch, 0)
    return offset_map


def survivors(batches: Iterable[Batch]) -> list[Record]:
    return [record for batch in batches for record in records_of(batch)]


def record(offset: int, key: str, value: str | None = "v", timestamp: int = 5) -> Record:
    return Record(offset, timestamp, key.encode(), None if value is None else value.encode())


keys = st.sampled_from([b"a", b"b", b"c", b"a key that is longer than a hash", b""])
values = st.none() | st.binary(max_size=5)


@st.composite
def logs(draw: st.DrawFn) -> list[Batch]:
    batches: list[Batch] = []
    offset = 0
    for size in draw(st.lists(st.integers(1, 5), min_size=1, max_size=8)):
        offset += draw(st.integers(0, 2))
        records = [Record(offset + i, draw(st.integers(0, 100)), draw(keys), draw(values)) for i in range(size)]
        batches.append(build_batch(records, compression=draw(st.sampled_from(Codec)), leader_epoch=3))
        offset += size
    return batches


@given(logs())
def test_the_latest_record_of_every_key_stays_in_its_place(batches: list[Batch]) -> None:
    before = survivors(batches)
    latest = {entry.key: entry.offset for entry in before}
    assert survivors(clean(batches)) == [entry for entry in before if latest[entry.key] == entry.offset]


@given(logs(), st.integers(1, 3))
def test_cleaning_again_changes_nothing_but_tombstones_after_their_time(batches: list[Batch], rounds: int) -> None:
    once = clean(batches)
    again = once
    for _ in range(rounds):
        again = clean(again, now_ms=NOW_MS + DAY_MS - 1)
    assert [bytes(batch) for batch in again] == [bytes(batch) for batch in once]
    late = clean(once, now_ms=NOW_MS + DAY_MS)
    assert survivors(late) == [entry for entry in survivors(once) if entry.value is not None]


@given(logs())
def test_cleaned_batches_are_whole_and_keep_their_offsets(batches: list[Batch]) -> None:
    extents = {header.base_offset: header.last_offset for header in map(read_header, batches)}
    for batch in clean(batches):
        header = read_header(batch)
        assert crc_matches(batch, header)
        assert extents[header.base_offset] == header.last_offset
        assert header.leader_epoch == 3
        assert header.max_timestamp == max(entry.timestamp for entry in records_of(batch))


@given(logs(), st.integers(0, 40))
def test_nothing_is_removed_beyond_the_end_of_the_offset_map(batches: list[Batch], cut: int) -> None:
    dirty = [batch for batch in batches if read_header(batch).end_offset <= cut]
    offset_map = mapped(dirty)
    batch_filter = BatchFilter(
        offset_map, TransactionTracker([]), {}, kept_end_offsets=(), now_ms=NOW_MS, delete_retention_ms=DAY_MS
    )
    kept = [batch_filter.retained(read_header(batch), batch) for batch in batches]
    beyond = [entry for entry in survivors(batches) if entry.offset >= offset_map.end_offset]
    assert [e for e in survivors(b for b in kept if b is not None) if e.offset >= offset_map.end_offset] == beyond


def test_a_batch_that_stays_whole_stays_as_it_is() -> None:
    batch = build_batch([record(0, "a"), record(1, "b")], compression=Codec.LZ4)
    [kept] = clean([batch])
    assert kept is batch


def test_a_tombstone_gets_its_horizon_at_the_first_cleaning() -> None:
    batch = build_batch([record(0, "a", None, timestamp=42), record(1, "b", timestamp=43)])
    [kept] = clean([batch])
    assert read_header(kept).delete_horizon_ms == NOW_MS + DAY_MS
    assert list(records_of(kept)) == list(records_of(batch))
    assert [bytes(again) for again in clean([kept], now_ms=NOW_MS + 5)] == [bytes(kept)]
    [late] = clean([kept], now_ms=NOW_MS + DAY_MS)
    assert survivors([late]) == [record(1, "b", timestamp=43)]
    assert read_header(late).delete_horizon_ms == NOW_MS + DAY_MS


def test_records_without_a_key_go() -> None:
    batch = build_batch([Record(0, 1, None, b"v"), record(1, "a")])
    assert survivors(clean([batch])) == [record(1, "a")]


def test_log_append_time_stays() -> None:
    first = build_batch([record(0, "a"), record(1, "b")], log_append_time_ms=99)
    second = build_batch([record(2, "a")], log_append_time_ms=100)
    assert [entry.timestamp for entry in survivors(clean([first, second]))] == [99, 100]


def test_a_damaged_batch_is_not_rewritten_as_a_sound_one() -> None:
    batch = build_batch([record(0, "a")])
    batch[-1] ^= 1
    with pytest.raises(CorruptMessage):
        clean([batch])


@pytest.mark.parametrize("position", [61, 64, 65, 67])
def test_a_batch_that_cannot_be_read_stays_as_it_is_and_hides_no_other(position: int) -> None:
    batch = build_batch([record(1, "a"), record(2, "b")])
    batch[position] = 0x7F
    seal(batch)
    earlier, later = build_batch([record(0, "a")]), build_batch([record(3, "b")])
    assert clean([earlier, batch, later]) == [earlier, batch, later]


def test_what_the_crc_finds_damaged_is_reported() -> None:
    batch = build_batch([record(0, "a")])
    batch[-1] ^= 1
    with pytest.raises(CorruptMessage):
        clean([batch])


def test_records_that_claim_offsets_of_others_cannot_be_read() -> None:
    batch = build_batch([record(0, "a"), record(9, "b"), record(2, "c")])
    assert readable_payload(batch, read_header(batch)) is None


# ---- producers


def idempotent(offset: int, key: str, sequence: int) -> bytearray:
    return build_batch([record(offset, key)], producer_id=7, producer_epoch=1, base_sequence=sequence)


def test_the_last_batch_of_a_producer_stays_for_its_sequence() -> None:
    batches = [idempotent(0, "a", 0), idempotent(1, "a", 1), build_batch([record(2, "a")])]
    kept = clean(batches, producers={7: LastRecord(1, 1)})
    headers = [read_header(batch) for batch in kept]
    assert [(header.base_offset, header.record_count, header.base_sequence) for header in headers] == [
        (1, 0, 1),
        (2, 1, -1),
    ]


def test_a_producer_that_was_forgotten_leaves_nothing() -> None:
    batches = [idempotent(0, "a", 0), build_batch([record(1, "a")])]
    assert [read_header(batch).base_offset for batch in clean(batches)] == [1]


def test_the_last_batch_of_a_segment_stays_for_its_offset() -> None:
    batches = [build_batch([record(0, "a"), record(1, "b")]), build_batch([record(2, "a")])]
    markers = [Record(3, 1, None, b"no key")]
    kept = clean([*batches, build_batch(markers)], kept_end_offsets={4})
    assert [(read_header(batch).last_offset, read_header(batch).record_count) for batch in kept] == [
        (1, 1),
        (2, 1),
        (3, 0),
    ]


# ---- transactions


def transactional(offset: int, key: str, producer_id: int = 7) -> bytearray:
    return build_batch(
        [record(offset, key)], producer_id=producer_id, producer_epoch=0, base_sequence=offset, is_transactional=True
    )


def end(offset: int, control_type: ControlType, producer_id: int = 7) -> bytearray:
    return build_end_marker(
        control_type,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=5,
        base_offset=offset,
    )


def offsets(batches: Iterable[Batch]) -> list[int]:
    return [read_header(batch).base_offset for batch in batches]


def test_aborted_records_go_at_once_and_do_not_hide_older_ones() -> None:
    aborted = [AbortedTransaction(7, 1, 2, 3)]
    batches = [build_batch([record(0, "a")]), transactional(1, "a"), end(2, ControlType.ABORT)]
    kept = clean(batches, aborted=aborted)
    assert survivors(kept[:1]) == [record(0, "a")]
    assert offsets(kept) == [0, 2]


def test_an_abort_marker_goes_when_readers_had_time_to_see_it() -> None:
    aborted = [AbortedTransaction(7, 0, 1, 2)]
    first = clean([transactional(0, "a"), end(1, ControlType.ABORT)], aborted=aborted)
    assert offsets(first) == [1]
    assert read_header(first[0]).delete_horizon_ms is None
    second = clean(first)
    assert read_header(second[0]).delete_horizon_ms == NOW_MS + DAY_MS
    assert read_header(second[0]).is_control
    assert offsets(clean(second, now_ms=NOW_MS + DAY_MS - 1)) == [1]
    assert offsets(clean(second, now_ms=NOW_MS + DAY_MS)) == []


def test_a_commit_marker_stays_as_long_as_a_record_of_its_transaction() -> None:
    committed = [transactional(0, "a"), end(1, ControlType.COMMIT)]
    kept = clean(committed)
    assert offsets(kept) == [0, 1]
    assert read_header(kept[1]).delete_horizon_ms is None
    newer = [*kept, build_batch([record(2, "a")])]
    without_record = clean(clean(newer))
    assert offsets(without_record) == [1, 2]
    assert offsets(clean(without_record, now_ms=NOW_MS + DAY_MS)) == [2]


def test_the_transaction_index_keeps_what_readers_still_need() -> None:
    aborted = [AbortedTransaction(7, 0, 1, 2), AbortedTransaction(8, 5, 6, 7)]
    tracker = TransactionTracker(aborted)
    batch_filter = BatchFilter(
        OffsetMap(1000), tracker, {}, kept_end_offsets=(), now_ms=NOW_MS, delete_retention_ms=DAY_MS
    )
    for batch in [transactional(0, "a"), end(1, ControlType.ABORT), end(6, ControlType.ABORT, producer_id=8)]:
        batch_filter.retained(read_header(batch), batch)
    assert tracker.pop_needed() == aborted[:1]
    assert tracker.pop_needed() == []


def test_transactions_of_several_producers_are_distinguished() -> None:
    aborted = [AbortedTransaction(7, 0, 3, 2)]
    batches = [
        transactional(0, "a", 7),
        transactional(1, "a", 8),
        end(2, ControlType.COMMIT, 8),
        end(3, ControlType.ABORT, 7),
        transactional(4, "b", 7),
        end(5, ControlType.COMMIT, 7),
    ]
    assert offsets(clean(batches, aborted=aborted)) == [1, 2, 3, 4, 5]


def test_the_last_marker_of_a_producer_stays_for_its_epoch() -> None:
    marker = clean(clean([end(0, ControlType.COMMIT)]))
    kept = clean(marker, now_ms=NOW_MS + DAY_MS, producers={7: LastRecord(None, 0)})
    assert [read_header(batch).record_count for batch in kept] == [0]
    assert offsets(clean(kept, producers={7: LastRecord(None, 0)})) == [0]
    assert offsets(clean(kept)) == []


# ---- the offset map


def test_the_offset_map_is_bounded_and_may_end_inside_a_batch() -> None:
    offset_map = OffsetMap(4 * BYTES_PER_KEY)
    tracker = TransactionTracker([])
    batches = [build_batch([record(3 * n + i, f"{n}-{i}") for i in range(3)]) for n in range(2)]
    assert map_batch(offset_map, tracker, read_header(batches[0]), batches[0], 0)
    assert not map_batch(offset_map, tracker, read_header(batches[1]), batches[1], 0)
    assert len(offset_map) == 4
    assert offset_map.end_offset == 4


@given(st.lists(st.binary(max_size=40), unique=True))
def test_keys_short_and_long_are_distinguished(found: list[bytes]) -> None:
    offset_map = OffsetMap(10**6)
    for offset, key in enumerate(found):
        offset_map.put(key, offset)
    assert [offset_map.latest_offset(key) for key in found] == list(range(len(found)))
    assert offset_map.latest_offset(b"a key that is nowhere in the map, hopefully") == -1


# ---- what to clean

COMPACT = TopicSettings(cleanup_policy=("compact",))


def facts(*segments: SegmentFacts, start: int = 0, stable: int | None = None) -> LogFacts:
    end_offset = segments[-1].base_offset + 10
    return LogFacts(start, end_offset, end_offset if stable is None else stable, segments)


def segment(base_offset: int, size_bytes: int = 100, largest: int = NOW_MS - 1000, first: int = 0) -> SegmentFacts:
    return SegmentFacts(base_offset, size_bytes, largest, first or largest)


def test_everything_but_the_active_segment_is_dirty_at_first() -> None:
    found = cleanable_range(facts(segment(0), segment(10), segment(20)), None, COMPACT, NOW_MS)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 20)
    assert (found.clean_bytes, found.cleanable_bytes, found.dirty_ratio) == (0, 200, 1.0)
    assert found.is_due(COMPACT)


def test_an_active_segment_alone_is_never_cleaned() -> None:
    found = cleanable_range(facts(segment(0)), None, TopicSettings(min_cleanable_dirty_ratio=0.0), NOW_MS)
    assert found.cleanable_bytes == 0
    assert not found.is_due(TopicSettings(min_cleanable_dirty_ratio=0.0))


def test_cleaning_starts_where_the_last_one_ended() -> None:
    log = facts(segment(0, 300), segment(10), segment(20))
    found = cleanable_range(log, 10, COMPACT, NOW_MS)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (10, 20)
    assert found.dirty_ratio == 0.25
    assert not found.is_due(COMPACT)
    assert found.is_due(TopicSettings(min_cleanable_dirty_ratio=0.2))


@pytest.mark.parametrize("checkpoint", [4, 1000])
def test_a_checkpoint_outside_of_the_log_is_not_believed(checkpoint: int) -> None:
    log = facts(segment(0), segment(10), segment(20), start=5)
    assert cleanable_range(log, checkpoint, COMPACT, NOW_MS).first_dirty_offset == 5


def test_undecided_transactions_are_not_cleaned() -> None:
    log = facts(segment(0), segment(10), segment(20), segment(30), stable=15)
    assert cleanable_range(log, None, COMPACT, NOW_MS).first_uncleanable_offset == 10


def test_young_segments_are_not_cleaned() -> None:
    settings = TopicSettings(min_compaction_lag_ms=500)
    log = facts(segment(0), segment(10, largest=NOW_MS - 500), segment(20, largest=NOW_MS - 499), segment(30))
    assert cleanable_range(log, None, settings, NOW_MS).first_uncleanable_offset == 20


def test_a_record_that_waited_too_long_is_reason_enough() -> None:
    settings = TopicSettings(max_compaction_lag_ms=5000, min_cleanable_dirty_ratio=0.9)
    log = facts(segment(0, 900), segment(10, first=NOW_MS - 5000), segment(20))
    assert not cleanable_range(log, 10, settings, NOW_MS).is_due(settings)
    assert cleanable_range(log, 10, settings, NOW_MS + 1).is_due(settings)


def test_a_dirty_part_that_may_not_be_cleaned_yet_is_not_due() -> None:
    settings = TopicSettings(max_compaction_lag_ms=1, min_cleanable_dirty_ratio=0.0, min_compaction_lag_ms=10**9)
    log = facts(segment(0), segment(10))
    assert not cleanable_range(log, None, settings, NOW_MS).is_due(settings)


# ---- which segments become one


def groupable(base_offset: int, size_bytes: int, end_offset: int | None = None, index: int = 8) -> GroupableSegment:
    return GroupableSegment(base_offset, end_offset or base_offset + 10, size_bytes, index, index)


def groups(segments: Sequence[GroupableSegment], **settings: int) -> list[list[int]]:
    found = group_segments(segments, TopicSettings(**settings))  # type: ignore[arg-type]
    return [[entry.base_offset for entry in group] for group in found]


def test_small_neighbours_become_one_segment() -> None:
    segments = [groupable(0, 40), groupable(10, 40), groupable(20, 30), groupable(30, 200), groupable(40, 5)]
    assert groups(segments, segment_bytes=100) == [[0, 10], [20], [30], [40]]


def test_a_segment_never_outgrows_its_indexes() -> None:
    segments = [groupable(0, 1, index=60), groupable(10, 1, index=60)]
    assert groups(segments, segment_index_bytes=100) == [[0], [10]]
    assert groups(segments, segment_index_bytes=120) == [[0, 10]]


def test_a_segment_never_spans_more_offsets_than_its_index_can_hold() -> None:
    limit = 2**31 - 1
    assert groups([groupable(0, 1), groupable(10, 1, end_offset=limit + 1)]) == [[0, 10]]
    assert groups([groupable(0, 1), groupable(10, 1, end_offset=limit + 2)]) == [[0], [10]]
    assert groups([groupable(0, 1), groupable(limit + 5, 0, end_offset=2 * limit)]) == [[0, limit + 5]]
