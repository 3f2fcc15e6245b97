"""Log loader: opens the log of one partition, with recovery after an unclean shutdown (R6)."""

import logging
import math
from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from tidelog.config.topic import TopicSettings
from tidelog.storage.checkpoints import (
    EPOCH_JOURNAL,
    LEADER_EPOCHS,
    CorruptCheckpoint,
    read_epoch_journal,
    read_epochs,
)
from tidelog.storage.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.storage.log import Log
from tidelog.storage.log_directory import LogDirectory
from tidelog.storage.log_state import LogContents
from tidelog.storage.partition_files import PartitionFiles, tidy_and_list
from tidelog.storage.partition_metadata import read_topic_id, write_topic_id
from tidelog.storage.producer_snapshots import ProducerSnapshots, replay_segments
from tidelog.storage.producer_state import ProducerStateManager
from tidelog.storage.recovery import (
    ExpectedEpochs,
    confirmed_epochs_end,
    cut_unsynced_end,
    has_epochs_of,
    rebuild_leader_epochs,
    recover_segment,
)
from tidelog.storage.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, Segment
from tidelog.types import TopicPartition, Uuid

logger = logging.getLogger(__name__)

LONG_RECOVERY_BYTES = 64 * 1024 * 1024
"""Recovery of so many bytes takes long enough for a log line before it begins."""

LONGEST_LOST_END = 2**30
"""No segment loses so many offsets at its end. A gap this wide is one that the index of one segment could not hold."""

_BASE_OFFSET = attrgetter("base_offset")


class Checkpointed(NamedTuple):
    """Checkpointed offsets of one partition; None if a checkpoint lacks the partition."""

    is_clean: bool
    recovery_point: int | None = None
    high_watermark: int | None = None
    log_start_offset: int | None = None
    active_size_bytes: int | None = None
    cleaned_until: int = 0
    active_base_offset: int | None = None


def create_log(
    directory: LogDirectory,
    path: str,
    topic_partition: TopicPartition,
    topic_id: Uuid | None,
    settings: TopicSettings,
) -> Log:
    """A new, empty log. The caller handles OSErrors."""
    context = directory.context
    context.disk.make_directory(path)
    if topic_id is not None:
        write_topic_id(context.disk, path, topic_id)
    segment = Segment.create(context.disk, context.cache, path, 0, now_ms=context.clock.now_ms())
    log = Log(
        topic_partition,
        topic_id,
        settings,
        directory,
        path,
        LogContents([segment], LeaderEpochs(), ProducerStateManager(), ProducerSnapshots(context.disk, path)),
    )
    log.flusher.on_name_changed(directory.path)
    return log


def load_log(
    directory: LogDirectory,
    path: str,
    topic_partition: TopicPartition,
    settings: TopicSettings,
    checkpointed: Checkpointed,
) -> Log:
    """Load the log in `path`; after an unclean shutdown it is truncated at the first corrupt batch. Blocking."""
    loading = _Loading(directory, path, settings, checkpointed)
    return loading.load(topic_partition)


class _Loading:
    def __init__(self, directory: LogDirectory, path: str, settings: TopicSettings, checkpointed: Checkpointed) -> None:
        self.directory = directory
        self.disk = directory.context.disk
        self.path = path
        self.settings = settings
        self.checkpointed = checkpointed
        self.files: PartitionFiles = tidy_and_list(directory, path)
        self.segments = self.files.segments
        self.snapshots = ProducerSnapshots(self.disk, path, self.files.snapshot_offsets)
        self.producers = ProducerStateManager()
        self.leader_epochs = LeaderEpochs()
        self.synced_epochs: tuple[EpochEntry, ...] = ()
        self.has_epochs = False
        """The leader epoch checkpoint or its journal is intact and names epochs."""
        self.has_corrupt_epochs = False

    def load(self, topic_partition: TopicPartition) -> Log:
        if not self.segments:
            self.segments.append(self._new_segment(self.checkpointed.log_start_offset or 0))
        self._load_leader_epochs()
        known_epochs = self.leader_epochs.starts
        is_intact = self.checkpointed.is_clean and self._has_all_indexes() and self._is_unchanged_since_close()
        end_offset = self._open_cleanly() if is_intact else self._recover()
        self.leader_epochs.truncate_from_end(end_offset)
        log = self._log(topic_partition, end_offset)
        if self._log_start_offset() > end_offset:
            # The records before the log start were never synced. Readers already know this log start.
            log.truncate_fully_and_start_at(self._log_start_offset())
        _keep_epoch_if_empty(log, known_epochs)
        return log

    def _log(self, topic_partition: TopicPartition, end_offset: int) -> Log:
        log_start_offset = min(self._log_start_offset(), end_offset)
        self.leader_epochs.truncate_from_start(log_start_offset)
        high_watermark = self.checkpointed.high_watermark
        return Log(
            topic_partition,
            read_topic_id(self.disk, self.path) if self.files.has_topic_id else None,
            self.settings,
            self.directory,
            self.path,
            LogContents(
                self.segments,
                self.leader_epochs,
                self.producers,
                self.snapshots,
                log_start_offset=log_start_offset,
                log_end_offset=end_offset,
                high_watermark=log_start_offset if high_watermark is None else high_watermark,
                recovery_point=min(self.checkpointed.recovery_point or 0, end_offset),
                synced_epochs=self.synced_epochs,
                has_gaps=self.files.has_gaps,
                has_missing_segments=self.files.has_missing_segments,
            ),
        )

    def _log_start_offset(self) -> int:
        return max(self.checkpointed.log_start_offset or 0, self.segments[0].base_offset)

    def _new_segment(self, base_offset: int) -> Segment:
        context = self.directory.context
        return Segment.create(self.disk, context.cache, self.path, base_offset, now_ms=context.clock.now_ms())

    def _load_leader_epochs(self) -> None:
        if self.files.has_leader_epochs:
            try:
                self.synced_epochs = tuple(read_epochs(self.disk, f"{self.path}/{LEADER_EPOCHS}"))
            except CorruptCheckpoint as error:
                logger.warning("rebuilding corrupt checkpoint from the log error=%s", error)
                self.has_corrupt_epochs = True
        starts = self._journaled_epochs() if self.files.has_epoch_journal else None
        self.leader_epochs = LeaderEpochs(list(self.synced_epochs if starts is None else starts))
        self.leader_epochs.is_unsynced = starts is not None
        self.has_epochs = bool(self.leader_epochs.starts)

    def _journaled_epochs(self) -> list[EpochEntry] | None:
        """None if a power cut has damaged the journal, or undone its removal: then the checkpoint counts."""
        path = f"{self.path}/{EPOCH_JOURNAL}"
        found = read_epoch_journal(self.disk, path, self.synced_epochs)
        if found is None:
            logger.warning("removed a leader epoch journal that does not continue the checkpoint path=%s", path)
            self.disk.remove(path)
        return found

    def _has_all_indexes(self) -> bool:
        return all(
            segment.size_bytes == 0 or (segment.offset_index.has_file and segment.time_index.has_file)
            for segment in self.segments
        )

    def _is_unchanged_since_close(self) -> bool:
        """Whether the last file is that of the shutdown, has the same size, and covers its index.

        The clean-shutdown marker alone is not enough: without a recorded name and size (Apache Kafka records none) the
        file must end at the recovery point. Otherwise offsets could be assigned twice. The size alone is not enough
        either: without its last file the log ends with the one before, which often has the same size.
        """
        active, expected_bytes = self.segments[-1], self.checkpointed.active_size_bytes
        if expected_bytes is not None and active.size_bytes != expected_bytes:
            return False
        last = active.offset_index.last()
        if last is not None and last[1] >= active.size_bytes:
            return False
        if expected_bytes is not None and self.checkpointed.active_base_offset == active.base_offset:
            return True
        recovery_point, (end_offset, end_position) = self.checkpointed.recovery_point, active.find_end()
        return end_position == active.size_bytes and recovery_point in (None, end_offset)

    # ---- after a clean shutdown

    def _open_cleanly(self) -> int:
        """Reads no log data, unless a checkpoint is lost: the last recovery point is the log end offset."""
        end_offset = self._clean_end_offset()
        if not self.has_epochs:
            rebuild_leader_epochs(self.segments, self.leader_epochs)
        if self.snapshots.offsets:
            self.snapshots.remove_after(end_offset)
            self.snapshots.restore(self.producers, self.segments[0].base_offset)
            if self.producers.end_offset < end_offset:
                replay_segments(self.producers, self.segments, end_offset)
        self.producers.end_offset = end_offset
        return end_offset

    def _clean_end_offset(self) -> int:
        active, recovery_point = self.segments[-1], self.checkpointed.recovery_point
        if recovery_point is not None:
            if active.size_bytes == 0 and recovery_point == active.base_offset:
                return recovery_point
            if active.size_bytes > 0 and recovery_point > active.base_offset:
                return recovery_point
        return active.find_end_offset()

    # ---- after a crash

    def _recover(self) -> int:
        recovery_point = self.checkpointed.recovery_point or 0
        first = max(bisect_right(self.segments, recovery_point, key=_BASE_OFFSET) - 1, 0)
        if first > 0 and self.segments[first].base_offset == recovery_point:
            cut_unsynced_end(self.segments[first - 1], recovery_point)
        first = min(first, self._first_without_indexes())
        self._log_if_long(self.segments[first:])
        self._restore_producers(self.segments[first].base_offset)
        if first > 0:
            self.segments[first - 1].repair_indexes()
        end_offset = self.segments[first].base_offset
        expected_epochs = self._expected_epochs(first, recovery_point)
        # The checkpoint may lack a truncation. The recovered batches provide their epochs again.
        self.leader_epochs.truncate_from_end(end_offset)
        gaps_end = self._gaps_end()
        for number in range(first, len(self.segments)):
            segment = self.segments[number]
            if self._has_lost_end(end_offset, segment.base_offset):
                self._remove_segments_after(number - 1)
                break
            end_offset = max(end_offset, segment.base_offset)
            recovered = recover_segment(
                segment,
                end_offset,
                gaps_end,
                self.settings,
                self.leader_epochs,
                self.producers,
                expected_epochs,
            )
            end_offset = recovered.end_offset
            if recovered.is_damaged:
                self._remove_segments_after(number)
                break
            if number + 1 < len(self.segments):
                self.snapshots.take_snapshot(self.producers, self.segments[number + 1].base_offset)
        self.producers.end_offset = end_offset
        return end_offset

    def _expected_epochs(self, first: int, recovery_point: int) -> ExpectedEpochs:
        """Of the segments from `first` on. Compares the checkpoint with those before, which are not recovered."""
        before = self.segments[:first]
        if self.has_epochs and has_epochs_of(before, self.leader_epochs):
            return ExpectedEpochs(LeaderEpochs(list(self.leader_epochs.starts)), recovery_point)
        if self.has_epochs:
            logger.warning("rebuilding leader epochs that differ from the log path=%s", self.path)
        self.leader_epochs.clear()
        rebuild_leader_epochs(before, self.leader_epochs)
        return ExpectedEpochs(LeaderEpochs(), recovery_point, self._confirmed_end(first, recovery_point))

    def _confirmed_end(self, first: int, recovery_point: int) -> float:
        """Without epochs in its checkpoint the log was never flushed: a flush writes them.

        A corrupt one says nothing about flushes, and costs no record.
        """
        if self.has_corrupt_epochs or recovery_point > self.segments[0].base_offset:
            return math.inf
        return confirmed_epochs_end(self.segments[first:], self.leader_epochs.latest_epoch)

    def _has_lost_end(self, end_offset: int, next_base_offset: int) -> bool:
        """Whether a segment has lost whole batches at its end: the next one does not begin where it ends.

        Segments join in compacted logs too, except those that Apache Kafka has written, which then were synced.
        """
        gap = next_base_offset - end_offset
        synced_end = self.checkpointed.cleaned_until
        if self._may_have_gaps:
            synced_end = max(synced_end, self.checkpointed.recovery_point or 0)
        return gap != 0 and next_base_offset > synced_end and gap <= LONGEST_LOST_END

    @property
    def _may_have_gaps(self) -> bool:
        """The topic may no longer be compacted, or its settings may not be known: then the marker says so."""
        return self.settings.is_compacted or self.files.has_gaps

    def _gaps_end(self) -> float:
        """Before this offset compaction may have left gaps; after it a gap is corruption.

        Logs that Apache Kafka has compacted have no marker, but a line in the cleaner checkpoint. What is synced is not
        doubted.
        """
        if self._may_have_gaps:
            return math.inf
        return max(self.checkpointed.cleaned_until, self.checkpointed.recovery_point or 0)

    def _log_if_long(self, segments: list[Segment]) -> None:
        size_bytes = sum(segment.size_bytes for segment in segments)
        if size_bytes >= LONG_RECOVERY_BYTES:
            logger.info("recovering log path=%s segments=%d bytes=%d", self.path, len(segments), size_bytes)

    def _first_without_indexes(self) -> int:
        for number, segment in enumerate(self.segments):
            if segment.size_bytes and not (segment.offset_index.has_file and segment.time_index.has_file):
                return number
        return len(self.segments) - 1

    def _restore_producers(self, offset: int) -> None:
        self.snapshots.remove_after(offset)
        self.snapshots.remove_strays(self.segments)
        self.snapshots.restore(self.producers, self.segments[0].base_offset)
        if self.producers.end_offset < offset:
            replay_segments(self.producers, self.segments, offset)

    def _remove_segments_after(self, number: int) -> None:
        """As in Kafka: segments after a corrupt batch cannot be trusted."""
        for segment in self.segments[number + 1 :]:
            logger.warning(
                "removed segment after a corrupt one path=%s removed_bytes=%d",
                segment.path(LOG_SUFFIX),
                segment.size_bytes,
            )
            segment.release_resources()
            for suffix in SEGMENT_SUFFIXES:
                self.disk.remove(segment.path(suffix))
        del self.segments[number + 1 :]


def _keep_epoch_if_empty(log: Log, known_epochs: Sequence[EpochEntry]) -> None:
    """Keep the epoch of the log end if retention has emptied the log.

    After unclean shutdowns elections compare the epochs and ends of logs (R42). Without its epoch this log would lose
    to a shorter one that lacks committed records.
    """
    if log.leader_epochs.starts or log.log_start_offset < log.log_end_offset:
        return
    before_end = [start for start in known_epochs if start.start_offset <= log.log_end_offset]
    if before_end and log.log_end_offset > 0:
        log.leader_epochs.assign(before_end[-1].epoch, log.log_end_offset)
