"""State of a log: its offsets, leader epochs, producers and settings, and the invariants between them (R2 to R5).

Changed on the event loop only.
"""

from collections.abc import Callable
from typing import NamedTuple

from tidelog.config.topic import TopicSettings
from tidelog.errors import KafkaStorageError, OffsetOutOfRange
from tidelog.storage.checkpoints import MISSING_SEGMENTS, OFFSET_GAPS
from tidelog.storage.disk_errors import DiskGuard
from tidelog.storage.flushing import LogFlusher
from tidelog.storage.leader_epochs import EpochEnd, EpochEntry, LeaderEpochs
from tidelog.storage.local_log import LocalLog
from tidelog.storage.log_directory import LogDirectory
from tidelog.storage.partition_names import FUTURE_SUFFIX
from tidelog.storage.producer_snapshots import ProducerSnapshots
from tidelog.storage.producer_state import ProducerStateManager
from tidelog.storage.rolling import roll_check_bytes
from tidelog.storage.segment import NOT_LOADED, Segment
from tidelog.types import NO_LEADER_EPOCH, TopicPartition, Uuid


class LogContents(NamedTuple):
    """Contents of a new or loaded log."""

    segments: list[Segment]
    leader_epochs: LeaderEpochs
    producers: ProducerStateManager
    snapshots: ProducerSnapshots
    log_start_offset: int = 0
    log_end_offset: int = 0
    high_watermark: int = 0
    recovery_point: int = 0
    synced_epochs: tuple[EpochEntry, ...] = ()
    """Of the leader epoch checkpoint."""
    has_gaps: bool = False
    has_missing_segments: bool = False


class LogState:
    """Base of `Log`, which appends, reads, truncates and deletes."""

    __slots__ = (
        "_first_unstable_offset",
        "_now_ms",
        "_roll_check_bytes",
        "_segment_bytes",
        "_settings",
        "cleaned_until",
        "directory",
        "flusher",
        "guard",
        "has_gaps",
        "has_missing_segments",
        "high_watermark",
        "is_closed",
        "is_deleted",
        "leader_epochs",
        "local",
        "log_end_offset",
        "log_start_offset",
        "on_start_moved",
        "on_truncated",
        "path",
        "producers",
        "snapshots",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        settings: TopicSettings,
        directory: LogDirectory,
        path: str,
        contents: LogContents,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory = directory
        self.path = path
        self.log_start_offset = contents.log_start_offset
        self.log_end_offset = contents.log_end_offset
        self.high_watermark: int = min(max(contents.high_watermark, self.log_start_offset), self.log_end_offset)
        self.leader_epochs = contents.leader_epochs
        self.producers = contents.producers
        self.snapshots = contents.snapshots
        self.local = LocalLog(directory.context, path, contents.segments, contents.log_end_offset)
        self.guard = DiskGuard(self.failed)
        self.flusher = LogFlusher(self, contents.recovery_point, contents.synced_epochs)
        self.on_start_moved: Callable[[], None] | None = None
        """Called when retention or DeleteRecords has advanced the log start."""
        self.on_truncated: Callable[[int], None] | None = None
        """Called with the new log end after a truncation: a future log is truncated in the same step (R30)."""
        self.cleaned_until: int | None = None
        """End offset of the clean section, from the cleaner or its checkpoint. Truncation lowers it."""
        self.has_gaps = contents.has_gaps
        """Offsets may be missing, by compaction here or on a leader from which records were copied."""
        self.has_missing_segments = contents.has_missing_segments
        """Somebody has removed segments while the broker was down. Other replicas are asked before it leads (R42)."""
        self._first_unstable_offset: int | None = None
        self.on_producers_replaced()
        self._now_ms = directory.context.clock.now_ms
        self.is_deleted = False
        """Or set aside: this broker no longer uses it."""
        self.is_closed = False
        """All records are on disk, and no more are appended."""
        self.settings = settings

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, [{self.log_start_offset}, {self.log_end_offset}))"

    # ---- gaps

    def mark_gaps(self) -> None:
        """Create the marker file. Must precede the first gap.

        Without it, recovery takes a gap for corruption if the topic is no longer compacted.
        """
        if not self.has_gaps:
            with self.guard:
                self.directory.context.disk.open(f"{self.path}/{OFFSET_GAPS}", "create").close()
            self.flusher.on_name_changed(self.path)
            self.has_gaps = True

    def accept_missing_segments(self) -> None:
        """The log starts over, or leads because no other replica has more. On disk at once: it is whole from now on."""
        if self.has_missing_segments:
            with self.guard:
                self.directory.context.disk.remove(f"{self.path}/{MISSING_SEGMENTS}")
                self.directory.context.disk.sync_directory(self.path)
            self.has_missing_segments = False

    @property
    def last_record_epoch(self) -> int:
        """By which elections compare logs (R42, R44). Any other log with records is better than one that lacks some."""
        if self.has_missing_segments:
            return NO_LEADER_EPOCH
        return self.leader_epochs.last_record_epoch(self.log_start_offset, self.log_end_offset)

    # ---- settings and sizes

    @property
    def settings(self) -> TopicSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: TopicSettings) -> None:
        self._settings = settings
        self._segment_bytes = settings.segment_bytes
        self._roll_check_bytes = roll_check_bytes(settings)
        self.local.segments[-1].roll_after_timestamp = NOT_LOADED

    @property
    def segments(self) -> list[Segment]:
        """Oldest first. The list is never modified, only replaced."""
        return self.local.segments

    @property
    def active_segment(self) -> Segment:
        return self.local.segments[-1]

    @property
    def first_base_offset(self) -> int:
        return self.local.segments[0].base_offset

    @property
    def base_offsets(self) -> list[int]:
        return [segment.base_offset for segment in self.local.segments]

    @property
    def active_size_bytes(self) -> int:
        return self.local.segments[-1].size_bytes

    @property
    def size_bytes(self) -> int:
        return self.local.size_bytes

    @property
    def recovery_point(self) -> int:
        return self.flusher.recovery_point

    @property
    def last_stable_offset(self) -> int:
        unstable = self._first_unstable_offset
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        return max(self.log_start_offset, unstable)

    @property
    def is_future(self) -> bool:
        """Whether it is a copy in another log dir that is to replace the current log (R30)."""
        return self.path.endswith(FUTURE_SUFFIX)

    # ---- epochs and availability

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """The largest epoch <= `epoch`, and its end offset (R3)."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def _check_online(self) -> None:
        """Must precede every file access: if the log was deleted or set aside, a new log may have its file names."""
        if not self.directory.is_online:
            raise self.directory.offline_error()
        if self.is_deleted:
            raise self._deleted_error()

    def _deleted_error(self) -> KafkaStorageError:
        return KafkaStorageError(f"the log of {self.topic_partition} was deleted")

    def failed(self, error: OSError) -> KafkaStorageError:
        """The error to raise after an I/O error. The directory goes offline (R5), unless the log was deleted meanwhile
        or the error is transient: then nothing has changed, and a retry may succeed."""
        return self._deleted_error() if self.is_deleted else self.directory.fail(error)

    def deletion_due_ms(self) -> int:
        return self.directory.context.monotonic_ms() + self._settings.file_delete_delay_ms

    # ---- watermarks

    def raise_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to `offset`, at most to the log end (R4). Whether it moved."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self._first_unstable_offset is not None:
            self.producers.on_high_watermark(offset)
            self._first_unstable_offset = self.producers.first_unstable_offset()
        return True

    def advance_log_start_offset(self, offset: int) -> bool:
        """Hide records below `offset` from readers. The offset may be inside a batch. Whether the log start moved."""
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
        assert self.log_start_offset < offset <= self.log_end_offset, "the log start only advances, within the log (R4)"
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        if self.on_start_moved is not None:
            self.on_start_moved()

    def on_producers_replaced(self) -> None:
        """Truncation has replaced the producer states."""
        self.producers.on_high_watermark(self.high_watermark)
        self._first_unstable_offset = self.producers.first_unstable_offset()
