"""Log cleaner: compacts the log with the highest dirty ratio and swaps the new segments in.

`compaction` decides, this module reads and writes. Workers rewrite sealed segments, which never change. The swap is
one step on the event loop, and happens only if the log has not changed since the cleaning began.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Event
from typing import Final, NamedTuple, Never, ParamSpec, TypeVar

from tidelog.config.topic import TopicSettings
from tidelog.errors import CorruptMessage, KafkaStorageError
from tidelog.protocol.record_batch import HEADER_BYTES, BatchHeader, read_header, split_batches
from tidelog.runtime.disk import Disk, File
from tidelog.storage.cleaner_checkpoints import CleanerCheckpoints
from tidelog.storage.cleaner_throttle import CleanerThrottle
from tidelog.storage.compaction import (
    BatchFilter,
    CleanableRange,
    GroupableSegment,
    LastRecord,
    LogFacts,
    OffsetMap,
    SegmentFacts,
    TransactionTracker,
    cleanable_range,
    group_segments,
    map_batch,
)
from tidelog.storage.disk_errors import is_transient
from tidelog.storage.indexes import OFFSET_ENTRY, TIME_ENTRY
from tidelog.storage.log import Log
from tidelog.storage.log_directory import LogDirectory, StorageContext
from tidelog.storage.segment import CLEANED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX, Segment
from tidelog.storage.transaction_index import AbortedTransaction
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

MIN_BACKOFF_MS = 10
"""Lower bound for log.cleaner.backoff.ms, because the cleaner shares the event loop."""

P = ParamSpec("P")
T = TypeVar("T")


READ_BYTES: Final = 64 * 1024
"""Small, because the event loop gets the interpreter only between two reads."""

NEVER_OVERDUE_MS: Final = 2**63 - 1


class LogCleaningAborted(Exception):
    """The result is discarded: the log was truncated, trimmed or deleted meanwhile, or the broker stops."""


class Snapshot(NamedTuple):
    """State of a log on the event loop when its cleaning began."""

    log: Log
    segments: list[Segment]
    sizes: list[int]
    settings: TopicSettings
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    clean_until: int | None
    producers: dict[int, LastRecord]
    are_replicas_in_sync: bool
    now_ms: int
    stop: Event

    @classmethod
    def of(cls, log: Log, are_replicas_in_sync: bool, now_ms: int, stop: Event) -> "Snapshot":
        segments = log.segments
        producers = {
            state.producer_id: LastRecord(state.last_offset if state.batches else None, state.epoch)
            for state in log.producers.by_id.values()
        }
        return cls(
            log,
            segments,
            [segment.size_bytes for segment in segments],
            log.settings,
            log.log_start_offset,
            log.log_end_offset,
            log.last_stable_offset,
            log.cleaned_until,
            producers,
            are_replicas_in_sync,
            now_ms,
            stop,
        )

    def end_offset_of(self, number: int) -> int:
        """Upper bound of the sealed segment's end offset: the base offset of the next one."""
        return self.segments[number + 1].base_offset


class CleaningStatistics(NamedTuple):
    """Totals since the start of the broker."""

    cleanings: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    uncleanable_partitions: int = 0
    unreadable_batches: int = 0
    """Counted again each time their log is cleaned; the cleaner copies them unchanged."""


class Cleaner:
    """Cleans one log of the log dirs at a time."""

    def __init__(
        self,
        context: StorageContext,
        directories: Sequence[LogDirectory],
        logs: Mapping[TopicPartition, Log],
        dedupe_buffer_bytes: int,
    ) -> None:
        self._context = context
        self.checkpoints = CleanerCheckpoints(context, directories)
        self._logs = logs
        self.dedupe_buffer_bytes = dedupe_buffer_bytes
        self.backoff_ms = 0
        self.throttle = CleanerThrottle()
        self.are_replicas_in_sync: Callable[[TopicPartition], bool] = lambda _: True
        """Asked before tombstones and transaction markers are deleted (R45). A broker sets it once it has replicas."""
        self._uncleanable: dict[TopicPartition, Log] = {}
        self.paused: set[TopicPartition] = set()
        """Partitions that move between log dirs: a copy that has a record but not its later tombstone, because the
        tombstone was removed on the way, would bring a deleted key back."""
        self._statistics = CleaningStatistics()
        self._stop = Event()

    def statistics(self) -> CleaningStatistics:
        return self._statistics

    async def run(self, backoff_ms: int) -> Never:
        self.backoff_ms = backoff_ms
        while True:
            if not await self.clean_once():
                await asyncio.sleep(max(self.backoff_ms, MIN_BACKOFF_MS) / 1000)

    async def clean_once(self) -> bool:
        """Clean the log with the highest dirty ratio. False if none is due, or if the cleaner must back off."""
        found = await self._grab_filthiest_log()
        is_done = found is not None and await self._clean_safely(*found)
        await self.checkpoints.write()
        return is_done

    # ---- choice of a log

    async def _grab_filthiest_log(self) -> tuple[Snapshot, CleanableRange] | None:
        now_ms = self._context.clock.now_ms()
        logs = [log for log in self._logs.values() if self._may_clean(log)]
        candidates = [
            Snapshot.of(log, self.are_replicas_in_sync(log.topic_partition), now_ms, self._stop) for log in logs
        ]
        if not candidates:
            return None
        ranges = await self._context.workers.run(_ranges_of, candidates)
        due = [
            (snapshot, found)
            for snapshot, found in zip(candidates, ranges, strict=True)
            if found is not None and found.is_due(snapshot.settings)
        ]
        return max(due, key=lambda entry: entry[1].dirty_ratio, default=None)

    def _may_clean(self, log: Log) -> bool:
        return (
            "compact" in log.settings.cleanup_policy
            and log.directory.is_online
            and len(log.segments) > 1
            and self._uncleanable.get(log.topic_partition) is not log
            and log.topic_partition not in self.paused
        )

    # ---- cleaning

    async def _clean_safely(self, snapshot: Snapshot, found: CleanableRange) -> bool:
        """False if an immediate retry would fail again."""
        log, renames = snapshot.log, snapshot.log.local.renames
        try:
            await self._clean(snapshot, found)
        except LogCleaningAborted:
            logger.info("cleaning aborted, log has changed partition=%s", log.topic_partition)
        except CorruptMessage as error:
            self._uncleanable[log.topic_partition] = log
            self._count(uncleanable_partitions=1)
            logger.error("marked log as uncleanable partition=%s error=%s", log.topic_partition, error)
        except KafkaStorageError as error:
            logger.info("cleaning aborted partition=%s reason=%s", log.topic_partition, error)
            return not is_transient(error)
        except OSError as error:
            is_retired = isinstance(error, FileNotFoundError) and log.local.renames != renames
            if not log.is_deleted and not is_retired:
                log.directory.fail(error)
            return not is_transient(error)
        return True

    async def _clean(self, snapshot: Snapshot, found: CleanableRange) -> None:
        log = snapshot.log
        round_ = await self._in_worker(_prepare_round, snapshot, found, self.dedupe_buffer_bytes)
        bytes_read = bytes_written = 0
        log.mark_gaps()  # synced with the first group, before its swap
        for numbers in round_.groups:
            cleaned = await self._in_worker(_clean_group, self._context, snapshot, round_, numbers)
            old = [snapshot.segments[number] for number in numbers]
            bytes_read += sum(snapshot.sizes[number] for number in numbers)
            bytes_written += cleaned.size_bytes
            self._swap(snapshot, numbers, old, cleaned)
            await self._context.workers.run(self._context.disk.sync_directory, log.path)
            await self.throttle.pause_after(sum(snapshot.sizes[number] for number in numbers) + cleaned.size_bytes)
        log.cleaned_until = round_.end_offset
        unreadable = round_.batch_filter.unreadable
        if unreadable:
            logger.warning(
                "kept unreadable batches unchanged partition=%s batches=%d first_offset=%d",
                log.topic_partition,
                len(unreadable),
                unreadable[0],
            )
        self._count(cleanings=1, bytes_read=bytes_read, bytes_written=bytes_written, unreadable_batches=len(unreadable))
        logger.info(
            "cleaned log partition=%s until=%d bytes_before=%d bytes_after=%d",
            log.topic_partition,
            round_.end_offset,
            bytes_read,
            bytes_written,
        )

    async def _in_worker(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """On cancellation, stops the worker and waits for it, so that it does not write files afterwards."""
        task = asyncio.ensure_future(self._context.workers.run(work, *args, **kwargs))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._stop.set()
            await asyncio.wait([task])
            if not task.cancelled() and task.exception() is None:
                _discard_result(self._context.disk, task.result())
            raise

    def _swap(self, snapshot: Snapshot, numbers: Sequence[int], old: list[Segment], cleaned: Segment) -> None:
        if not _is_unchanged(snapshot, numbers) or snapshot.log.topic_partition in self.paused:
            _discard(self._context.disk, cleaned)
            raise LogCleaningAborted
        snapshot.log.replace_segments(old, [cleaned])

    def _count(self, **counts: int) -> None:
        """Add to the totals, by their names in CleaningStatistics."""
        before = self._statistics
        self._statistics = before._replace(**{name: getattr(before, name) + count for name, count in counts.items()})


def _is_unchanged(snapshot: Snapshot, numbers: Sequence[int]) -> bool:
    """Whether the log still has the group and the segment after it. A truncation would have changed them."""
    expected = snapshot.segments[numbers[0] : numbers[-1] + 2]
    now = snapshot.log.segments
    if snapshot.log.is_deleted or expected[0] not in now:
        return False
    first = now.index(expected[0])
    sizes = [segment.size_bytes for segment in expected[:-1]]
    return now[first : first + len(expected)] == expected and sizes == [snapshot.sizes[n] for n in numbers]


# ---- in workers


class Round(NamedTuple):
    """One cleaning of one log: its offset map and the groups of segments to rewrite."""

    batch_filter: BatchFilter
    transactions: TransactionTracker
    groups: list[list[int]]
    """Indexes into the snapshot's segments. Each group becomes one segment."""
    end_offset: int


def _ranges_of(snapshots: Sequence[Snapshot]) -> list[CleanableRange | None]:
    return [_range_of(snapshot) for snapshot in snapshots]


def _range_of(snapshot: Snapshot) -> CleanableRange | None:
    """None if the files cannot be read now: the log may have been deleted or trimmed."""
    settings = snapshot.settings
    needs_largest = settings.min_compaction_lag_ms > 0
    needs_first = settings.max_compaction_lag_ms < NEVER_OVERDUE_MS
    try:
        segments = [
            SegmentFacts(
                segment.base_offset,
                size_bytes,
                segment.largest_timestamp() if needs_largest else 0,
                segment.first_timestamp() if needs_first else 0,
            )
            for segment, size_bytes in zip(snapshot.segments, snapshot.sizes, strict=True)
        ]
    except OSError as error:
        logger.warning("cannot read log for cleaning partition=%s error=%s", snapshot.log.topic_partition, error)
        return None
    facts = LogFacts(snapshot.log_start_offset, snapshot.log_end_offset, snapshot.last_stable_offset, segments)
    return cleanable_range(facts, snapshot.clean_until, settings, snapshot.now_ms)


def _prepare_round(snapshot: Snapshot, found: CleanableRange, dedupe_buffer_bytes: int) -> Round:
    """First pass: build the offset map of the dirty section."""
    offset_map = OffsetMap(dedupe_buffer_bytes)
    _fill(offset_map, snapshot, found)
    end_offset = offset_map.end_offset
    transactions = TransactionTracker(_aborted_transactions(snapshot, 0, end_offset))
    groups = _groups(snapshot, end_offset)
    batch_filter = BatchFilter(
        offset_map,
        transactions,
        snapshot.producers,
        kept_end_offsets={snapshot.end_offset_of(group[-1]) for group in groups},
        now_ms=snapshot.now_ms,
        delete_retention_ms=snapshot.settings.delete_retention_ms,
        may_delete_tombstones=snapshot.are_replicas_in_sync,
    )
    return Round(batch_filter, transactions, groups, end_offset)


def _fill(offset_map: OffsetMap, snapshot: Snapshot, found: CleanableRange) -> None:
    first, end = found.first_dirty_offset, found.first_uncleanable_offset
    transactions = TransactionTracker(_aborted_transactions(snapshot, first, end))
    for number, segment in enumerate(snapshot.segments):
        if segment.base_offset >= end:
            return
        if snapshot.end_offset_of(number) <= first:
            continue
        for header, batch in _batches(snapshot, number):
            if header.end_offset > first and not map_batch(offset_map, transactions, header, batch, first):
                return
        offset_map.covers_up_to(snapshot.end_offset_of(number))


def _groups(snapshot: Snapshot, end_offset: int) -> list[list[int]]:
    numbers = {segment.base_offset: number for number, segment in enumerate(snapshot.segments)}
    groupable = [
        GroupableSegment(
            segment.base_offset,
            snapshot.end_offset_of(number),
            snapshot.sizes[number],
            segment.offset_index.count * OFFSET_ENTRY.size,
            segment.time_index.count * TIME_ENTRY.size,
        )
        for number, segment in enumerate(snapshot.segments[:-1])
        if segment.base_offset < end_offset
    ]
    groups = group_segments(groupable, snapshot.settings)
    return [[numbers[segment.base_offset] for segment in group] for group in groups]


def _aborted_transactions(snapshot: Snapshot, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Aborted transactions with records in the range. Their abort markers may be in any later segment."""
    found = [entry for segment in snapshot.segments for entry in segment.transaction_index.entries(first_offset)]
    return [entry for entry in found if entry.first_offset < end_offset]


def _clean_group(context: StorageContext, snapshot: Snapshot, round_: Round, numbers: Sequence[int]) -> Segment:
    """Second pass: write the retained batches of a group into one new segment, synced and ready for the swap."""
    last = snapshot.segments[numbers[-1]]
    cleaned = Segment.create(
        context.disk,
        context.cache,
        snapshot.log.path,
        snapshot.segments[numbers[0]].base_offset,
        now_ms=last.modified_ms,
        extra_suffix=CLEANED_SUFFIX,
    )
    try:
        for number in numbers:
            _clean_into(cleaned, snapshot, round_.batch_filter, number)
        cleaned.transaction_index.replace(round_.transactions.pop_needed())
        cleaned.seal()
        cleaned.sync()
        cleaned.change_suffix(SWAP_SUFFIX)
        context.disk.sync_directory(snapshot.log.path)
    except BaseException:
        _discard(context.disk, cleaned)
        raise
    return cleaned


def _clean_into(cleaned: Segment, snapshot: Snapshot, batch_filter: BatchFilter, number: int) -> None:
    index_interval_bytes = snapshot.settings.index_interval_bytes
    for header, batch in _batches(snapshot, number):
        kept = batch_filter.retained(header, batch)
        if kept is not None:
            max_timestamp = header.max_timestamp if kept is batch else read_header(kept).max_timestamp
            cleaned.append(kept, len(kept), header.last_offset, max_timestamp, index_interval_bytes)


def _discard(disk: Disk, cleaned: Segment) -> None:
    cleaned.release_resources()
    for suffix in SEGMENT_SUFFIXES:
        disk.remove(cleaned.path(suffix))


def _discard_result(disk: Disk, result: object) -> None:
    if isinstance(result, Segment):
        _discard(disk, result)


def _batches(snapshot: Snapshot, number: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """All batches of a sealed segment, in order."""
    segment, size_bytes = snapshot.segments[number], snapshot.sizes[number]
    try:
        file = snapshot.log.directory.context.disk.open(segment.path(LOG_SUFFIX), "read")
    except FileNotFoundError:
        raise LogCleaningAborted from None
    try:
        for header, batch in _batches_in(file, size_bytes):
            if snapshot.stop.is_set():
                raise LogCleaningAborted
            yield header, batch
    finally:
        file.close()


def _batches_in(file: File, size_bytes: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    position = 0
    while position < size_bytes:
        data = file.read(position, min(READ_BYTES, size_bytes - position))
        consumed = 0
        for header, batch in split_batches(data):
            consumed += header.size_bytes
            yield header, batch
        if consumed == 0:
            header, batch = _large_batch(file, position, size_bytes, data)
            consumed = header.size_bytes
            yield header, batch
        position += consumed


def _large_batch(file: File, position: int, size_bytes: int, data: bytes) -> tuple[BatchHeader, memoryview]:
    if len(data) < HEADER_BYTES or position + read_header(data).size_bytes > size_bytes:
        raise CorruptMessage(f"{file.path} does not hold a whole batch at position {position}")
    header = read_header(data)
    whole = file.read(position, header.size_bytes)
    if len(whole) < header.size_bytes:
        raise LogCleaningAborted
    return header, memoryview(whole)
