"""The log of one replica (R1 to R5): segments of batches, appended at the end and read from any offset.

All changes happen on the event loop and none of them waits for a disk: appends and index entries go to the page
cache, `flush` syncs in a worker. `read`, `find_by_timestamp` and `find_max_timestamp` may run in a worker too.
"""

import asyncio
import logging
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, TypeVar

from tidelog.config.topic import TopicSettings
from tidelog.errors import KafkaError, KafkaStorageError, OffsetOutOfRange, RecordListTooLarge
from tidelog.protocol.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from tidelog.protocol.records import EndMarker, read_end_marker
from tidelog.runtime.disk import FileSlice
from tidelog.storage import retention, timestamps
from tidelog.storage.disk_errors import half_done
from tidelog.storage.flushing import flush_log, write_epochs_of
from tidelog.storage.follower_checks import checked_batches
from tidelog.storage.leader_epochs import EpochStart, LeaderEpochs
from tidelog.storage.log_directory import LogDirectory
from tidelog.storage.partition_metadata import write_topic_id
from tidelog.storage.producer_snapshots import ProducerSnapshots
from tidelog.storage.producer_state import ProducerStates, RememberedBatch
from tidelog.storage.reading import Demand, Tail, find_aborted, find_end_of_slice, find_slice
from tidelog.storage.rolling import is_full, roll_check_bytes, set_roll_limits
from tidelog.storage.segment import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, NOT_LOADED, Segment
from tidelog.storage.timestamps import TimestampAndOffset
from tidelog.storage.transaction_index import AbortedTransaction
from tidelog.storage.validation import AppendOrigin, PreparedBatch, prepare, stamped
from tidelog.types import NO_TIMESTAMP, Buffer, TopicPartition, Uuid

logger = logging.getLogger(__name__)

T = TypeVar("T")

REMEMBERED_TAIL_BATCHES: Final = 256
"""So many of the last batches are found without index or file: tail readers and high watermarks live there."""

_PLACE: Final = struct.Struct(">qii")
"""Base offset, length and leader epoch: the start of a batch, outside of its CRC."""

_new_result: Final = tuple.__new__  # half the time of the named tuple's own constructor


class AppendResult(NamedTuple):
    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic stamps its records."""
    log_start_offset: int
    is_duplicate: bool = False


class LogRead(NamedTuple):
    slice: FileSlice | None
    """Bytes in one segment file, from the start of a batch; None if there is nothing to read below the end."""
    log_start_offset: int


class PendingDeletion(NamedTuple):
    due_ms: int
    paths: list[str]


class Log:
    __slots__ = (
        "_first_unstable_offset",
        "_now_ms",
        "_roll_check_bytes",
        "_segment_bytes",
        "_settings",
        "_tail",
        "cleaned_until",
        "directory",
        "epochs_lock",
        "epochs_write",
        "high_watermark",
        "is_closed",
        "is_deleted",
        "last_flush_ms",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "on_roll",
        "on_start_moved",
        "path",
        "pending_deletions",
        "producers",
        "recovery_point",
        "renames",
        "segments",
        "snapshots",
        "topic_id",
        "topic_partition",
        "truncations",
        "unsynced_directories",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        settings: TopicSettings,
        directory: LogDirectory,
        path: str,
        segments: list[Segment],
        *,
        log_start_offset: int,
        log_end_offset: int,
        high_watermark: int,
        recovery_point: int,
        leader_epochs: LeaderEpochs,
        producers: ProducerStates,
        snapshots: ProducerSnapshots,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory = directory
        self.path = path
        self.segments = segments
        """Oldest first; a change replaces the list, so that a reader in a worker keeps the one it started with."""
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark: int = min(max(high_watermark, log_start_offset), log_end_offset)
        self.recovery_point: int = recovery_point
        self.leader_epochs = leader_epochs
        self.producers = producers
        self.snapshots = snapshots
        self.pending_deletions: list[PendingDeletion] = []
        self.on_roll: Callable[[Log], None] | None = None
        self.on_start_moved: Callable[[], None] | None = None
        """Told when retention, or whoever deletes records, has moved the log start."""
        self.last_flush_ms = directory.context.clock.now_ms()
        self._tail = Tail(segments[-1], log_end_offset, [], [])
        self.truncations = 0
        self.renames = 0
        self.unsynced_directories = {path}
        """Where names are new: a file that was synced is safe only with its name."""
        self.epochs_write: asyncio.Task[None] | None = None
        """The leader epochs are on their way to their file."""
        self.epochs_lock = threading.Lock()
        """Of whoever writes that file: a worker that flushes, or the event loop before the first record of an epoch."""
        self.cleaned_until: int | None = None
        """How far compaction has come; the cleaner sets it, truncation takes it back."""
        producers.on_high_watermark(self.high_watermark)
        self._first_unstable_offset = producers.first_unstable_offset()
        self._now_ms = directory.context.clock.now_ms
        self.is_deleted = False
        self.is_closed = False
        """Everything has reached the disk, and nothing is appended any more."""
        self.settings = settings

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, [{self.log_start_offset}, {self.log_end_offset}))"

    # ---- settings and sizes

    @property
    def settings(self) -> TopicSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: TopicSettings) -> None:
        self._settings = settings
        self._segment_bytes = settings.segment_bytes
        self._roll_check_bytes = roll_check_bytes(settings)
        self.segments[-1].roll_after_timestamp = NOT_LOADED

    @property
    def active_segment(self) -> Segment:
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        unstable = self._first_unstable_offset
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        return max(self.log_start_offset, unstable)

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Note the id of the topic; for logs from before topics had ids."""
        self._check_online()
        try:
            write_topic_id(self.directory.context.disk, self.path, topic_id)
        except OSError as error:
            raise self.failed(error) from error
        self.topic_id = topic_id

    def end_offset_for_epoch(self, epoch: int) -> EpochStart:
        """The largest known epoch not above `epoch`, and where it ends (R3)."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def _check_online(self) -> None:
        """Before every access. Where a log was deleted, or set aside, the next one of its name may have its files."""
        if not self.directory.is_online:
            raise self.directory.offline_error()
        if self.is_deleted:
            raise self._deleted_error()

    def _deleted_error(self) -> KafkaStorageError:
        return KafkaStorageError(f"the log of {self.topic_partition} was deleted")

    def failed(self, error: OSError) -> KafkaStorageError:
        """What to raise after an I/O error: the directory goes offline (R5), unless the log was deleted meanwhile, or
        the error passes: then nothing has changed, and the same may succeed later."""
        return self._deleted_error() if self.is_deleted else self.directory.fail(error)

    # ---- appending as leader

    def append_as_leader(
        self,
        batch: memoryview,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        prepared: PreparedBatch | None = None,
    ) -> AppendResult:
        """Append one batch, giving it its offsets in place; on any KafkaError nothing has changed.

        The high watermark does not move: the leader of the partition decides on it. A client's batch that is too long
        to be checked at once raises NeedsSlices; it comes again as `prepared`.
        """
        if not self.directory.is_online:
            raise self.directory.offline_error()
        now_ms = self._now_ms()
        if prepared is None:
            header, data, log_append_time_ms = prepare(batch, self._settings, now_ms, origin)
        else:
            header, data, log_append_time_ms = stamped(prepared, self._settings, now_ms)
        length, max_timestamp, producer_id = header.length, header.max_timestamp, header.producer_id
        marker = None
        if producer_id >= 0:
            duplicate = self.producers.check(header, origin)
            if duplicate is not None:
                return self._duplicate(duplicate)
            if header.attributes & CONTROL_BIT:
                marker = self._checked_marker(header, data)
        size_bytes = length + 12
        first_offset = self.log_end_offset
        last_offset = first_offset + header.last_offset_delta
        segment = self.segments[-1]
        try:
            if (
                segment.size_bytes + size_bytes > self._roll_check_bytes
                or max_timestamp > segment.roll_after_timestamp
                or now_ms > segment.roll_after_clock_ms
                or last_offset > segment.last_possible_offset
            ):
                segment = self._segment_for(size_bytes, last_offset, max_timestamp, now_ms)
            _PLACE.pack_into(data, 0, first_offset, length, leader_epoch)
            position = segment.size_bytes
            if leader_epoch != self.leader_epochs.latest_epoch or self.leader_epochs.is_unwritten:
                self._begin_epoch(leader_epoch, first_offset)
            segment.append(data, size_bytes, last_offset, max_timestamp, self._settings.index_interval_bytes)
            self._remember_tail(last_offset + 1, position)
            self.log_end_offset = last_offset + 1
            if producer_id >= 0:
                self._note_producer(header, marker, first_offset)
        except OSError as error:
            raise self.failed(error) from error
        return _new_result(AppendResult, (first_offset, last_offset, log_append_time_ms, self.log_start_offset, False))

    def _begin_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Its first record is about to be written; recovery takes records of unknown epochs for damaged ones."""
        self.leader_epochs.assign(leader_epoch, start_offset)
        if self.leader_epochs.is_unwritten:
            write_epochs_of(self, is_synced=False)

    def require_short(self, batch: memoryview) -> None:
        """Raises NeedsSlices for a client's batch that must be checked before it can be appended."""
        with suppress(KafkaError):
            prepare(batch, self._settings, self._now_ms(), AppendOrigin.CLIENT)

    def _checked_marker(self, header: BatchHeader, batch: Buffer) -> EndMarker | None:
        marker = read_end_marker(batch)
        if marker is not None:
            self.producers.check_end_marker(header, marker)
        return marker

    def _duplicate(self, earlier: RememberedBatch) -> AppendResult:
        # As Kafka, which tells the time of the first one even where the topic does not stamp its records.
        return AppendResult(
            earlier.first_offset, earlier.last_offset, earlier.timestamp, self.log_start_offset, is_duplicate=True
        )

    def _note_producer(self, header: BatchHeader, marker: EndMarker | None, first_offset: int) -> None:
        attributes = header.attributes
        if not attributes & CONTROL_BIT:
            self.producers.update(header, first_offset)
        elif marker is None:
            self.producers.note_epoch(header)
        else:
            aborted = self.producers.end_transaction(header, marker, first_offset)
            if aborted is not None:
                self.segments[-1].transaction_index.append(aborted)
        if attributes & TRANSACTIONAL_BIT:
            self._first_unstable_offset = self.producers.first_unstable_offset()

    def _remember_tail(self, end_offset: int, position: int) -> None:
        _, _, ends, positions = self._tail
        positions.append(position)
        ends.append(end_offset)
        if len(ends) > REMEMBERED_TAIL_BATCHES:
            # Replaced as a whole, not cut: a reader in a worker may hold the old one.
            half = REMEMBERED_TAIL_BATCHES // 2
            self._tail = Tail(self.segments[-1], ends[half - 1], ends[half:], positions[half:])
            self.snapshots.remember(self.producers, self.log_end_offset)

    def _forget_tail(self) -> None:
        self._tail = Tail(self.segments[-1], self.log_end_offset, [], [])

    # ---- appending as follower

    def append_as_follower(self, batches: Buffer, leader_epoch: int | None = None) -> AppendResult | None:
        """Append what the leader sent, offsets and epochs as they are (R28); None if there is no whole batch.

        Nothing of a later epoch than `leader_epoch`, in which it was fetched. On a KafkaError the log ends before the
        batch that could not be appended; nearly always that is the first.
        """
        self._check_online()
        checked = checked_batches(batches, self.log_start_offset, self.log_end_offset, leader_epoch)
        if not checked:
            return None
        first = checked[0][0]
        try:
            if first.base_offset < self.log_end_offset:
                self._start_inside(first)
            now_ms = self.directory.context.clock.now_ms()
            for header, batch in checked:
                self._append_given(header, batch, now_ms)
        except OSError as error:
            raise self.failed(error) from error
        return AppendResult(first.base_offset, checked[-1][0].last_offset, NO_TIMESTAMP, self.log_start_offset)

    def _start_inside(self, header: BatchHeader) -> None:
        self._start_over_at(header.base_offset, self.log_start_offset)

    def _append_given(self, header: BatchHeader, batch: memoryview, now_ms: int) -> None:
        segment = self.segments[-1]
        if (
            segment.size_bytes + len(batch) > self._roll_check_bytes
            or header.max_timestamp > segment.roll_after_timestamp
            or now_ms > segment.roll_after_clock_ms
            or header.last_offset > segment.last_possible_offset
        ):
            segment = self._segment_for(
                len(batch), header.last_offset, header.max_timestamp, now_ms, new_base_offset=header.base_offset
            )
        position = segment.size_bytes
        if header.leader_epoch != self.leader_epochs.latest_epoch or self.leader_epochs.is_unwritten:
            self._begin_epoch(header.leader_epoch, header.base_offset)
        segment.append(batch, len(batch), header.last_offset, header.max_timestamp, self._settings.index_interval_bytes)
        self._remember_tail(header.end_offset, position)
        self.log_end_offset = header.end_offset
        if header.producer_id >= 0:
            marker = read_end_marker(batch) if header.is_control else None
            self._note_producer(header, marker, header.base_offset)

    # ---- rolling

    def _segment_for(
        self, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int, new_base_offset: int | None = None
    ) -> Segment:
        """The segment that takes a batch of this size and end, a new one if the last one is full or old."""
        if size_bytes > self._segment_bytes and new_base_offset is None:
            raise RecordListTooLarge(
                f"a batch of {size_bytes} bytes is larger than a segment of {self._segment_bytes} (segment.bytes)"
            )
        segment = self.segments[-1]
        if segment.roll_after_timestamp == NOT_LOADED:
            set_roll_limits(segment, self._settings, max_timestamp, self.directory.context.randomness)
        if is_full(segment, self._settings, size_bytes, last_offset, max_timestamp, now_ms):
            segment = self.roll(new_base_offset)
            set_roll_limits(segment, self._settings, max_timestamp, self.directory.context.randomness)
        return segment

    def roll(self, new_base_offset: int | None = None) -> Segment:
        """Seal the last segment and start a new one at the end of the log."""
        self._check_online()
        context = self.directory.context
        base_offset = self.log_end_offset if new_base_offset is None else new_base_offset
        old = self.segments[-1]
        try:
            if old.size_bytes == 0:
                return self._replace_empty_segment(base_offset)
            old.modified_ms = context.clock.now_ms()
            old.seal()
            self.snapshots.take(self.producers, self.log_end_offset)
            segment = Segment.create(context.disk, context.cache, self.path, base_offset, now_ms=context.clock.now_ms())
        except OSError as error:
            raise self.failed(error) from error
        self.segments = [*self.segments, segment]
        self.unsynced_directories.add(self.path)
        self._forget_tail()
        if self.on_roll is not None:
            self.on_roll(self)
        return segment

    def _replace_empty_segment(self, base_offset: int) -> Segment:
        old = self.segments[-1]
        if old.base_offset == base_offset:
            return old
        context = self.directory.context
        segment = Segment.create(context.disk, context.cache, self.path, base_offset, now_ms=context.clock.now_ms())
        with _irrevocably():
            self.segments = [*self.segments[:-1], segment]
            self._delete_files([old])
        self._forget_tail()
        return segment

    # ---- watermarks

    def raise_high_watermark(self, offset: int) -> bool:
        """Everything below `offset` is committed, as far as this log holds it (R4); whether it moved."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self._first_unstable_offset is not None:
            self.producers.on_high_watermark(offset)
            self._first_unstable_offset = self.producers.first_unstable_offset()
        return True

    def advance_log_start_offset(self, offset: int) -> bool:
        """Records below `offset` are gone for readers; whether it moved. It may lie inside a batch."""
        self._check_online()
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: log start {offset} would pass the high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self._start_at(offset)
        return True

    def _start_at(self, offset: int) -> None:
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        if self.on_start_moved is not None:
            self.on_start_moved()

    # ---- reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        end_offset: int,
        *,
        at_least_one_batch: bool = True,
        may_block: bool = True,
    ) -> LogRead:
        """The bytes of the batches from the one with `offset` up to `end_offset`, of one segment, never decoded.

        `end_offset` is the high watermark, the last stable offset or the log end offset. At most `max_bytes`, but
        at least the first batch if so asked. With `may_block=False` it raises NotCached instead of waiting for the
        disk: run it again in a worker then. Whether the slice itself is cached, the slice's file can tell.
        """
        if not self.directory.is_online:
            raise self.directory.offline_error()
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: offset {offset} is outside of"
                f" [{self.log_start_offset}, {self.log_end_offset}]"
            )
        if offset >= end_offset:
            return LogRead(None, self.log_start_offset)
        demand = Demand(offset, max_bytes, end_offset, at_least_one_batch, may_block)
        try:
            found = find_slice(self.segments, self._tail, self.log_end_offset, demand)
        except OSError:
            found = self._look_up(lambda: find_slice(self.segments, self._tail, self.log_end_offset, demand))
        return LogRead(found, self.log_start_offset)

    def _look_up(self, look: Callable[[], T]) -> T:
        """Look into the files, maybe in a worker; once more if a file got another name under the reader's eyes."""
        while True:
            renames = self.renames
            try:
                return look()
            except FileNotFoundError as error:
                if self.renames == renames and renames % 2 == 0:
                    raise self.failed(error) from error
            except OSError as error:
                raise self.failed(error) from error

    def aborted_transactions(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [first_offset, end_offset)."""
        self._check_online()
        return self._look_up(lambda: find_aborted(self.segments, first_offset, end_offset))

    def end_of_slice(self, found: FileSlice, offset: int, end_offset: int, *, may_block: bool = True) -> int:
        """Where a slice that was read from `offset` up to `end_offset` ends, or a little further; as `read` else."""
        demand = Demand(offset, len(found), end_offset, at_least_one_batch=True, may_block=may_block)
        return self._look_up(lambda: find_end_of_slice(self.segments, found, demand))

    def find_by_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record with this timestamp or a later one. Blocking: for a worker."""
        self._check_online()
        return self._look_up(lambda: timestamps.find_by_timestamp(self.segments, timestamp, self.log_start_offset))

    def find_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record with the largest timestamp of all. Blocking: for a worker."""
        self._check_online()
        return self._look_up(lambda: timestamps.find_max_timestamp(self.segments))

    # ---- truncation

    def truncate_to(self, offset: int) -> None:
        """Forget everything from `offset` on; a batch that holds it goes whole."""
        self._check_online()
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(offset)
            return
        logger.debug("truncating log partition=%s from=%d to=%d", self.topic_partition, self.log_end_offset, offset)
        try:
            self._truncate_to(offset)
        except OSError as error:
            raise self.failed(error) from error

    def _truncate_to(self, offset: int) -> None:
        kept = [segment for segment in self.segments if segment.base_offset <= offset]
        if not kept:
            self._start_over_at(offset)
            return
        segment = kept[-1]
        place = segment.find_batch(offset)
        end_offset = offset if place is None else min(place.base_offset, offset)
        if end_offset < self.log_start_offset:
            # The log starts inside the batch that goes: nothing readable is left.
            self._start_over_at(min(self.log_start_offset, offset))
            return
        # What may lack a descriptor comes first: a shortage leaves the log as it is.
        cut = segment.prepare_cut(segment.size_bytes if place is None else place.position, end_offset)
        producers = self.snapshots.as_of(self.producers, kept, end_offset)
        self._checkpoint_cut(end_offset, self.log_start_offset, kept[0].base_offset)
        with _irrevocably():
            removed, self.segments = self.segments[len(kept) :], kept
            self._delete_files(removed[::-1])  # from the end: a crash in between leaves no gap
            segment.cut(cut)
            self._end_at(end_offset)
            self.snapshots.cut(end_offset)
            self._take_producers(producers)

    def _checkpoint_cut(self, end_offset: int, log_start_offset: int, base_offset: int) -> None:
        """Before the cut: what is appended later where flushed records were must not pass for flushed after a crash.

        If a crash comes before the cut, too much is read again, and that is all.
        """
        self.directory.checkpoint_truncation(
            self.topic_partition,
            recovery_point=min(self.recovery_point, end_offset),
            log_start_offset=log_start_offset if log_start_offset > base_offset else None,
        )

    def _end_at(self, offset: int) -> None:
        self.truncations += 1
        if self.cleaned_until is not None:
            self.cleaned_until = min(self.cleaned_until, offset)
        self._forget_tail()
        self.log_end_offset = offset
        self.leader_epochs.truncate_from_end(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.recovery_point = min(self.recovery_point, offset)

    def _take_producers(self, producers: ProducerStates) -> None:
        self.producers.become(producers)
        self.producers.on_high_watermark(self.high_watermark)
        self._first_unstable_offset = self.producers.first_unstable_offset()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; log start, high watermark and end become `offset` together (R4)."""
        self._check_online()
        logger.debug("dropping the whole log partition=%s new_start=%d", self.topic_partition, offset)
        try:
            self._start_over_at(offset)
        except OSError as error:
            raise self.failed(error) from error

    def _start_over_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """An empty log that starts at `offset`, or later in its first batch."""
        log_start_offset = offset if log_start_offset is None else log_start_offset
        context = self.directory.context
        # Under another name first: an old segment may have its name, and a shortage must leave the old ones.
        segment = Segment.create(
            context.disk, context.cache, self.path, offset, now_ms=context.clock.now_ms(), extra_suffix=CLEANED_SUFFIX
        )
        try:
            self._checkpoint_cut(offset, log_start_offset, offset)
        except OSError:
            context.disk.remove(segment.path(LOG_SUFFIX))
            raise
        with _irrevocably():
            self._delete_files(self.segments[::-1])
            segment.change_suffix("")
            self.segments = [segment]
            self.unsynced_directories.add(self.path)
            self.leader_epochs.clear()
            self.snapshots.remove_all()
            self.producers.clear(offset)
            self._first_unstable_offset = None
            self._end_at(offset)
            self.log_start_offset = self.high_watermark = log_start_offset

    # ---- retention

    def delete_old_segments(self, now_ms: int) -> list[Segment]:
        """Apply retention by time, size and log start (R4: never past the high watermark); what was deleted."""
        self._check_online()
        try:
            doomed = retention.expired_segments(self, now_ms)
            if not doomed:
                return []
            if len(doomed) == len(self.segments):
                self.roll()
            with _irrevocably():
                self._remove_segments(doomed)
        except OSError as error:
            raise self.failed(error) from error
        return doomed

    def _remove_segments(self, doomed: list[Segment]) -> None:
        self.segments = self.segments[len(doomed) :]
        self._delete_files(doomed)
        new_start = self.segments[0].base_offset
        self.snapshots.remove_before(new_start)
        if new_start > self.log_start_offset:
            self._start_at(new_start)

    def replace_segments(self, old: list[Segment], new: list[Segment]) -> None:
        """Put compacted segments in the place of the ones they were made from, in one step.

        The new ones carry the `.swap` suffix and are whole; a crash in between completes the swap at the next start.
        """
        self._check_online()
        try:
            first = self.segments.index(old[0])
            segments = [*self.segments[:first], *new, *self.segments[first + len(old) :]]
            with _irrevocably(), self._renaming():
                self._delete_files(old)
                for segment in new:
                    segment.change_suffix("")
                self.segments = segments
        except OSError as error:
            raise self.failed(error) from error

    def _delete_files(self, segments: list[Segment]) -> None:
        """Rename at once; the files go later, in a worker, since readers may still be sending from them."""
        due_ms = self._now_ms() + self._settings.file_delete_delay_ms
        with self._renaming():
            for segment in segments:
                self.pending_deletions.append(PendingDeletion(due_ms, segment.change_suffix(DELETED_SUFFIX)))

    @contextmanager
    def _renaming(self) -> Iterator[None]:
        """For readers in workers: `renames` is odd while files change their names."""
        is_outermost = self.renames % 2 == 0
        self.renames += is_outermost
        try:
            yield
        finally:
            self.renames += is_outermost

    # ---- flushing and closing

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    @property
    def is_flush_due(self) -> bool:
        """Whether flush.messages of the topic asks for a flush now."""
        return self.unflushed_messages >= self._settings.flush_messages

    async def flush(self) -> None:
        """Sync everything written so far; the recovery point then moves up to it."""
        self._check_online()
        await flush_log(self)

    async def close(self) -> None:
        """Bring everything to the disk for a clean stop. KafkaStorageError: it must not pass for cleanly closed."""
        self._check_online()
        try:
            self.segments[-1].seal()
            self.snapshots.take_at_close(self.producers, self.log_end_offset)
        except OSError as error:
            raise self.failed(error) from error
        await self.flush()
        if self.recovery_point != self.log_end_offset or self.leader_epochs.is_changed:
            raise KafkaStorageError(
                f"flushed up to {self.recovery_point} only, and the log ends at {self.log_end_offset}"
            )
        self.is_closed = True
        self.let_go()

    def let_go(self) -> None:
        """Free descriptors and cached indexes."""
        for segment in self.segments:
            segment.let_go()


@contextmanager
def _irrevocably() -> Iterator[None]:
    """A change of files that cannot be taken back: an error in its middle is never one that passes."""
    try:
        yield
    except OSError as error:
        raise half_done(error) from error
