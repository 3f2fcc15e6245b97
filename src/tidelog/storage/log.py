"""Log of one replica (Kafka: UnifiedLog): appends, rolls, reads, truncation, retention and flushes (R1 to R5).

All changes happen on the event loop, and none waits for a disk sync: appends and index entries go to the page cache,
`flush` syncs in a worker. `read`, `find_by_timestamp` and `find_max_timestamp` may run in a worker too.
"""

import logging
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from tidelog.config.topic import TopicSettings
from tidelog.errors import KafkaError, KafkaStorageError, OffsetOutOfRange, RecordListTooLarge
from tidelog.protocol.record_batch import CONTROL_BIT, LENGTH_OVERHEAD_BYTES, TRANSACTIONAL_BIT, BatchHeader
from tidelog.protocol.records import EndMarker, read_end_marker
from tidelog.runtime.disk import FileSlice
from tidelog.storage import retention, timestamps, truncation
from tidelog.storage.disk_errors import irreversible_change
from tidelog.storage.follower_checks import CheckedBatches, checked_batches, run_length
from tidelog.storage.log_directory import LogDirectory
from tidelog.storage.log_state import LogContents, LogState
from tidelog.storage.partition_metadata import write_topic_id
from tidelog.storage.producer_state import BatchMetadata
from tidelog.storage.reading import ReadRequest, find_aborted, find_end_of_slice, find_slice
from tidelog.storage.retention import RetainedLog
from tidelog.storage.rolling import is_full, set_roll_limits
from tidelog.storage.segment import MAX_RELATIVE_OFFSET, NOT_LOADED, Segment
from tidelog.storage.timestamps import TimestampAndOffset
from tidelog.storage.transaction_index import AbortedTransaction
from tidelog.storage.validation import AppendOrigin, PreparedBatch, prepare, stamped
from tidelog.types import NO_TIMESTAMP, Buffer, TopicPartition, Uuid

logger = logging.getLogger(__name__)

_PLACE: Final = struct.Struct(">qii")
"""Base offset, length and leader epoch: the start of a batch, which its CRC does not cover."""

_new_result: Final = tuple.__new__  # half the time of the named tuple's own constructor


class AppendResult(NamedTuple):
    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic uses LogAppendTime."""
    log_start_offset: int
    is_duplicate: bool = False


class LogRead(NamedTuple):
    slice: FileSlice | None
    """Bytes of one segment file, from the start of a batch; None if there is nothing to read before the end offset."""
    log_start_offset: int


class Log(LogState):
    """The operations of a log. Its offsets and other state are in `LogState`."""

    __slots__ = ("on_roll", "replacement")

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        settings: TopicSettings,
        directory: LogDirectory,
        path: str,
        contents: LogContents,
    ) -> None:
        super().__init__(topic_partition, topic_id, settings, directory, path, contents)
        self.on_roll: Callable[[Log], None] | None = None
        self.replacement: Log | None = None
        """The log in another log dir that has replaced this one (R30)."""

    # ---- directory and topic id

    def rename_directory(self, path: str) -> None:
        """Rename the directory within its log dir. Reads and flushes in workers go on. Raises OSError."""
        old = self.path
        with self.flusher.epochs_lock:
            self.local.rename_directory(path)
            self.path = self.snapshots.directory = path
        self.flusher.on_directory_renamed(old, path)

    def snapshot_producers_of(self, current: "Log") -> None:
        """The files of a future log lack producers whose records are deleted. Raises OSError."""
        if current.producers.by_id:
            self.snapshots.take_snapshot(current.producers, current.log_end_offset)

    def take_over_state(self, current: "Log") -> None:
        """Continue for the current log, which has the same records: the last step of a future log (R30).

        Its own states may know less: producers whose records are deleted, epochs without records (R3).
        """
        self.settings = current.settings
        self.topic_id = current.topic_id
        self.producers = current.producers
        self._first_unstable_offset = current._first_unstable_offset
        self.leader_epochs = current.leader_epochs
        self.leader_epochs.is_unsynced = self.leader_epochs.is_unwritten = True
        self.cleaned_until = current.cleaned_until
        self.high_watermark = current.high_watermark

    def on_replaced(self, replacement: "Log") -> None:
        """Its files stay readable for requests in workers. A flush under way goes on with the replacement."""
        self.replacement = replacement
        self.is_deleted = True
        self.on_truncated = self.on_start_moved = None

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Record the topic id; for logs from before topics had ids."""
        self._check_online()
        with self.guard:
            write_topic_id(self.directory.context.disk, self.path, topic_id)
        self.topic_id = topic_id

    def _check_readable(self) -> None:
        if self.replacement is None or not self.directory.is_online:
            self._check_online()

    def mark_deleted(self) -> None:
        """The log was deleted or set aside: this broker no longer uses it."""
        self.is_deleted = True
        self.release_resources()

    # ---- append as leader

    def append_as_leader(
        self,
        batch: memoryview,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        prepared: PreparedBatch | None = None,
    ) -> AppendResult:
        """Append one batch and assign its offsets in place. On any KafkaError nothing has changed.

        The high watermark is for the partition to advance. NeedsSlices: prepare it in slices, pass it as `prepared`.
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
        size_bytes, first_offset = length + LENGTH_OVERHEAD_BYTES, self.log_end_offset
        last_offset = first_offset + header.last_offset_delta
        segment = self.local.segments[-1]
        try:  # not `self.guard`, which would cost every append a tenth of a microsecond
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
            if self.local.remember_batch(last_offset + 1, position):
                self.snapshots.remember(self.producers, first_offset)
            self.log_end_offset = last_offset + 1
            if producer_id >= 0:
                self._update_producer(header, marker, first_offset)
        except OSError as error:
            raise self.failed(error) from error
        return _new_result(AppendResult, (first_offset, last_offset, log_append_time_ms, self.log_start_offset, False))

    def _begin_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Record the epoch before its first record: recovery treats records of unknown epochs as corrupt."""
        self.leader_epochs.assign(leader_epoch, start_offset)
        self.flusher.write_epoch_journal()

    def require_short(self, batch: memoryview) -> None:
        """Raises NeedsSlices for a client's batch that is too long to check in one step."""
        with suppress(KafkaError):
            prepare(batch, self._settings, self._now_ms(), AppendOrigin.CLIENT)

    def _checked_marker(self, header: BatchHeader, batch: Buffer) -> EndMarker | None:
        marker = read_end_marker(batch)
        if marker is not None:
            self.producers.check_end_marker(header, marker)
        return marker

    def _duplicate(self, earlier: BatchMetadata) -> AppendResult:
        # As in Kafka, which returns the timestamp of the first one even if the topic does not use LogAppendTime.
        return AppendResult(
            earlier.first_offset, earlier.last_offset, earlier.timestamp, self.log_start_offset, is_duplicate=True
        )

    def _update_producer(self, header: BatchHeader, marker: EndMarker | None, first_offset: int) -> None:
        attributes = header.attributes
        if not attributes & CONTROL_BIT:
            self.producers.update(header, first_offset)
        elif marker is None:
            self.producers.update_epoch(header)
        else:
            aborted = self.producers.end_transaction(header, marker, first_offset)
            if aborted is not None:
                self.local.segments[-1].transaction_index.append(aborted)
        if attributes & TRANSACTIONAL_BIT:
            self._first_unstable_offset = self.producers.first_unstable_offset()

    # ---- append as follower

    def append_as_follower(
        self, batches: Buffer, leader_epoch: int | None = None, leader_log_start_offset: int = 0
    ) -> AppendResult | None:
        """Append the leader's batches with their offsets and epochs (R28); None if there is no complete batch.

        Starts over if the leader's log starts at the end of this one, in the middle of the first batch.

        Appends no batch of an epoch after `leader_epoch`, the epoch of the fetch. Batches that go to the same segment
        are written together. On a KafkaError the log ends before those that could not be written, nearly always the
        first.
        """
        self._check_online()
        log_start_offset = self.log_start_offset
        if log_start_offset < leader_log_start_offset:
            log_start_offset = leader_log_start_offset
        checked, has_gaps = checked_batches(batches, log_start_offset, self.log_end_offset, leader_epoch)
        if not checked:
            return None
        first_offset = checked[0][0].base_offset
        try:  # not `self.guard`, as in `append_as_leader`
            if has_gaps:
                self.mark_gaps()
            if first_offset < self.log_end_offset:
                truncation.start_over_at(self, first_offset, log_start_offset)
            if len(checked) == 1:
                self._append_given(checked, checked[0][1], self._now_ms())
            else:
                self._append_in_runs(checked, memoryview(batches))
        except OSError as error:
            raise self.failed(error) from error
        last_offset = self.log_end_offset - 1
        return _new_result(AppendResult, (first_offset, last_offset, NO_TIMESTAMP, self.log_start_offset, False))

    def _append_in_runs(self, checked: CheckedBatches, data: memoryview) -> None:
        """`data` begins with these batches, one after the other."""
        now_ms, first, start = self._now_ms(), 0, 0
        while first < len(checked):
            count, size_bytes = run_length(
                checked, first, self.local.segments[-1], self.leader_epochs, self._roll_check_bytes, now_ms
            )
            run = checked[first : first + count]
            self._append_given(run, data[start : start + size_bytes], now_ms)
            first, start = first + count, start + size_bytes

    def _append_given(self, run: CheckedBatches, data: memoryview, now_ms: int) -> None:
        """Append batches of the leader with one write. Only the first may need a new segment or begin an epoch."""
        segment = self.local.segments[-1]
        header, batch = run[0]
        last_offset = header.last_offset
        if (
            segment.size_bytes + len(batch) > self._roll_check_bytes
            or header.max_timestamp > segment.roll_after_timestamp
            or now_ms > segment.roll_after_clock_ms
            or last_offset > segment.last_possible_offset
        ):
            # At the log end, though a gap of the leader's compacted log may follow: recovery takes a gap between
            # unsynced segments for a lost end of the first (R6).
            fits = last_offset - self.log_end_offset <= MAX_RELATIVE_OFFSET
            base_offset = self.log_end_offset if fits else header.base_offset
            segment = self._segment_for(
                len(batch), last_offset, header.max_timestamp, now_ms, new_base_offset=base_offset
            )
        position, index_interval_bytes = segment.size_bytes, self._settings.index_interval_bytes
        if header.leader_epoch != self.leader_epochs.latest_epoch or self.leader_epochs.is_unwritten:
            self._begin_epoch(header.leader_epoch, header.base_offset)
        if len(run) > 1:
            segment.time_index.remember_last()  # loaded before the write: after it nothing may need a file
        segment.append(data, len(batch), last_offset, header.max_timestamp, index_interval_bytes)
        self._on_given(header, batch, last_offset + 1, position)
        for header, batch in run[1:]:
            position, last_offset = segment.size_bytes, header.last_offset
            segment.track_batch(len(batch), last_offset, header.max_timestamp, index_interval_bytes)
            self._on_given(header, batch, last_offset + 1, position)

    def _on_given(self, header: BatchHeader, batch: memoryview, end_offset: int, position: int) -> None:
        """A batch of the leader is in the file."""
        assert header.base_offset >= self.log_end_offset, "batches of the leader do not overlap (R28)"
        if self.local.remember_batch(end_offset, position):
            self.snapshots.remember(self.producers, self.log_end_offset)
        self.log_end_offset = end_offset
        if header.producer_id >= 0:
            marker = read_end_marker(batch) if header.is_control else None
            self._update_producer(header, marker, header.base_offset)

    # ---- roll

    def _segment_for(
        self, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int, new_base_offset: int | None = None
    ) -> Segment:
        """The segment for a batch of this size and last offset; a new one if the active one is full or too old."""
        if size_bytes > self._segment_bytes and new_base_offset is None:
            raise RecordListTooLarge(
                f"a batch of {size_bytes} bytes is larger than a segment of {self._segment_bytes} (segment.bytes)"
            )
        segment = self.local.segments[-1]
        if segment.roll_after_timestamp == NOT_LOADED:
            set_roll_limits(segment, self._settings, max_timestamp, self.directory.context.randomness)
        if is_full(segment, self._settings, size_bytes, last_offset, max_timestamp, now_ms):
            segment = self.roll(new_base_offset)
            set_roll_limits(segment, self._settings, max_timestamp, self.directory.context.randomness)
        return segment

    def roll(self, new_base_offset: int | None = None) -> Segment:
        """Seal the active segment and create a new one at the log end."""
        self._check_online()
        base_offset = self.log_end_offset if new_base_offset is None else new_base_offset
        local = self.local
        old = local.segments[-1]
        with self.guard:
            if old.size_bytes == 0:
                return local.replace_empty_segment(base_offset, self.log_end_offset, self.deletion_due_ms())
            old.modified_ms = self._now_ms()
            old.seal()
            self.snapshots.take_snapshot(self.producers, self.log_end_offset)
            segment = local.create_segment(base_offset)
        local.add(segment, self.log_end_offset)
        self.flusher.on_name_changed(self.path)
        if self.on_roll is not None:
            self.on_roll(self)
        return segment

    # ---- reads

    def read(
        self,
        offset: int,
        max_bytes: int,
        end_offset: int,
        *,
        at_least_one_batch: bool = True,
        may_block: bool = True,
    ) -> LogRead:
        """The batches from the one with `offset` up to `end_offset`, as undecoded bytes of one segment.

        `end_offset` is the high watermark, the last stable offset or the log end offset. Returns at most `max_bytes`,
        but the whole first batch if `at_least_one_batch`. With `may_block=False` raises NotCached instead of waiting
        for the disk: the caller repeats the read in a worker. The slice itself may still be uncached.
        """
        if not self.directory.is_online:
            raise self.directory.offline_error()
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: offset {offset} is outside of"
                f" [{self.log_start_offset}, {self.log_end_offset}]"
            )
        if offset >= end_offset:
            return _new_result(LogRead, (None, self.log_start_offset))
        request = _new_result(ReadRequest, (offset, max_bytes, end_offset, at_least_one_batch, may_block))
        local = self.local
        try:
            found = find_slice(local.segments, local.tail, self.log_end_offset, request)
        except OSError:
            with self.guard:
                found = local.retry_after_rename(
                    lambda: find_slice(local.segments, local.tail, self.log_end_offset, request)
                )
        return _new_result(LogRead, (found, self.log_start_offset))

    def aborted_transactions(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [first_offset, end_offset)."""
        self._check_readable()
        with self.guard:
            return self.local.retry_after_rename(lambda: find_aborted(self.local.segments, first_offset, end_offset))

    def end_of_slice(self, found: FileSlice, offset: int, end_offset: int, *, may_block: bool = True) -> int:
        """End offset of a slice of `read`, or a little more. Other parameters as in `read`."""
        request = ReadRequest(offset, len(found), end_offset, at_least_one_batch=True, may_block=may_block)
        with self.guard:
            return self.local.retry_after_rename(lambda: find_end_of_slice(self.local.segments, found, request))

    def find_by_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record with a timestamp >= `timestamp`. Blocking: for a worker."""
        self._check_readable()
        with self.guard:
            return self.local.retry_after_rename(
                lambda: timestamps.find_by_timestamp(self.local.segments, timestamp, self.log_start_offset)
            )

    def find_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record with the largest timestamp. Blocking: for a worker."""
        self._check_readable()
        with self.guard:
            return self.local.retry_after_rename(lambda: timestamps.find_max_timestamp(self.local.segments))

    # ---- truncation

    def truncate_to(self, offset: int) -> None:
        """Remove all records from `offset` on, and the whole batch that contains it."""
        self._check_online()
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(offset)
            return
        logger.debug("truncating log partition=%s from=%d to=%d", self.topic_partition, self.log_end_offset, offset)
        with self.guard:
            truncation.truncate_to(self, offset)
        assert self.high_watermark <= self.log_end_offset <= offset, "nothing after a truncation is readable (R4)"

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records. Log start, high watermark and log end become `offset` (R4)."""
        self._check_online()
        logger.debug("truncating log fully partition=%s new_start=%d", self.topic_partition, offset)
        with self.guard:
            truncation.start_over_at(self, offset)

    # ---- retention

    def delete_old_segments(self, now_ms: int) -> list[Segment]:
        """Apply retention by time, size and log start, never past the high watermark (R4). Returns deleted segments."""
        self._check_online()
        with self.guard:
            deletable = retention.deletable_segments(self._retained(), now_ms)
            if not deletable:
                return []
            if len(deletable) == len(self.local.segments):
                self.roll()
            with irreversible_change():
                self._remove_segments(deletable)
        return deletable

    def _retained(self) -> RetainedLog:
        return RetainedLog(
            self._settings, self.local.segments, self.log_start_offset, self.log_end_offset, self.high_watermark
        )

    def _remove_segments(self, deletable: list[Segment]) -> None:
        self.local.remove_oldest(len(deletable), self.deletion_due_ms())
        new_start = self.local.segments[0].base_offset
        self.snapshots.remove_before(new_start)
        if new_start > self.log_start_offset:
            self._start_at(new_start)

    def replace_segments(self, old: list[Segment], new: list[Segment]) -> None:
        """Replace segments by their compacted ones in one step.

        The new ones are complete and have the `.swap` suffix: after a crash the next start completes the swap.
        """
        self._check_online()
        with self.guard:
            self.local.replace(old, new, self.deletion_due_ms())
        assert self.local.segments[-1] not in new, "the active segment is never compacted"

    # ---- flush and close

    @property
    def is_flush_due(self) -> bool:
        """Whether flush.messages of the topic is reached."""
        return self.log_end_offset - self.flusher.recovery_point >= self._settings.flush_messages

    async def flush(self) -> None:
        """Sync all appended records, then advance the recovery point."""
        if self.replacement is None:
            self._check_online()
            try:
                await self.flusher.flush()
            except KafkaStorageError:
                if self.replacement is None:
                    raise
        if self.replacement is not None:
            # The log was replaced meanwhile: what the caller appended is in the new one, maybe not synced yet.
            await self.replacement.flush()

    async def close(self) -> None:
        """Sync everything for a clean shutdown. After a KafkaStorageError the log must not count as cleanly closed."""
        self._check_online()
        with self.guard:
            self.local.segments[-1].seal()
            self.snapshots.take_snapshot_at_close(self.producers, self.log_end_offset)
            await self.directory.context.workers.run(self.snapshots.sync_latest)
        await self.flush()
        if self.recovery_point != self.log_end_offset or self.leader_epochs.is_unsynced:
            raise KafkaStorageError(
                f"flushed up to {self.recovery_point} only, and the log ends at {self.log_end_offset}"
            )
        self.is_closed = True
        self.release_resources()

    def release_resources(self) -> None:
        """Free descriptors and cached indexes."""
        self.local.release_resources()
