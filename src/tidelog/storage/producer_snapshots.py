"""Producer snapshots: the files, and the restore of producer states from them and the log."""

import logging
from bisect import bisect_right
from collections import deque
from operator import attrgetter

from tidelog.protocol.record_batch import BatchHeader
from tidelog.protocol.records import read_end_marker
from tidelog.runtime.disk import Disk
from tidelog.storage.producer_state import CorruptSnapshot, ProducerStateManager
from tidelog.storage.segment import Segment, segment_path
from tidelog.storage.transaction_index import AbortedTransaction
from tidelog.types import Buffer

logger = logging.getLogger(__name__)

SNAPSHOT_SUFFIX = ".snapshot"
REMEMBERED_COPIES = 4
MAX_COPIED_PRODUCERS = 10_000
PRODUCERS_PER_CALL = 8
"""The more producers, the fewer copies `remember` makes, so that its average cost stays the same."""


class ProducerSnapshots:
    """The name of a snapshot is the offset up to which it covers the log."""

    __slots__ = ("_calls", "_copies", "_disk", "_offsets", "directory")

    def __init__(self, disk: Disk, directory: str, offsets: list[int] | None = None) -> None:
        self._disk = disk
        self.directory = directory
        self._offsets = sorted(offsets or [])
        self._copies: deque[ProducerStateManager] = deque(maxlen=REMEMBERED_COPIES)
        self._calls = 0

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(self._offsets)

    def path(self, offset: int) -> str:
        return segment_path(self.directory, offset, SNAPSHOT_SUFFIX)

    def take_snapshot(self, producers: ProducerStateManager, offset: int) -> None:
        """Not synced before a clean shutdown (`sync_latest`): the CRC detects a snapshot that a crash has torn."""
        if self._offsets and self._offsets[-1] == offset:
            return
        file = self._disk.open(self.path(offset), "create")
        file.append(producers.snapshot())
        file.close()
        self._offsets.append(offset)

    def take_snapshot_at_close(self, producers: ProducerStateManager, offset: int) -> None:
        """Writes no file for a partition without producer ids: a clean start without a snapshot has none either."""
        if producers.by_id or self._offsets:
            self.take_snapshot(producers, offset)

    def sync_latest(self) -> None:
        """Before a clean shutdown: a log that lost its only snapshot would start without its producers."""
        if self._offsets:
            file = self._disk.open(self.path(self._offsets[-1]), "append")
            try:
                file.sync()
            finally:
                file.close()
            self._disk.sync_directory(self.directory)

    def remember(self, producers: ProducerStateManager, offset: int) -> None:
        """Keep a copy in memory now and then, so that a small truncation does not need to read the whole log."""
        self._calls += 1
        if not producers.by_id or len(producers.by_id) > min(MAX_COPIED_PRODUCERS, self._calls * PRODUCERS_PER_CALL):
            return
        self._calls = 0
        self._copies.append(producers.copy(offset))

    def remove_before(self, offset: int) -> None:
        self._copies.clear()
        self._remove([known for known in self._offsets if known < offset])

    def remove_after(self, offset: int) -> None:
        self._remove([known for known in self._offsets if known > offset])

    def remove_all(self) -> None:
        self._copies.clear()
        self._remove(list(self._offsets))

    def remove_strays(self, segments: list[Segment]) -> None:
        """Remove snapshots that belong to no segment, except the latest."""
        bases = {segment.base_offset for segment in segments}
        self._remove([offset for offset in self._offsets[:-1] if offset not in bases])

    def _remove(self, offsets: list[int]) -> None:
        for offset in offsets:
            self._disk.remove(self.path(offset))
            self._offsets.remove(offset)

    def restore(self, producers: ProducerStateManager, start_offset: int, end_offset: int | None = None) -> None:
        """Load the latest readable snapshot up to `end_offset`; without one start empty at `start_offset`. Corrupt
        snapshots are removed."""
        producers.clear(start_offset)
        for offset in reversed(self.offsets):
            if end_offset is not None and offset > end_offset:
                continue
            try:
                producers.restore(self._disk.read_file(self.path(offset)), offset)
            except CorruptSnapshot as error:
                logger.warning("removed corrupt producer snapshot path=%s error=%s", self.path(offset), error)
                self._remove([offset])
            else:
                return

    def as_of(self, producers: ProducerStateManager, segments: list[Segment], end_offset: int) -> ProducerStateManager:
        """The state at `end_offset`: the latest copy or snapshot before it, and the batches since.

        `producers` is the current state and is not modified.
        """
        if not producers.by_id:
            return ProducerStateManager(end_offset)
        copies = [copy for copy in self._copies if copy.end_offset <= end_offset]
        latest_snapshot = max((offset for offset in self._offsets if offset <= end_offset), default=0)
        if copies and copies[-1].end_offset >= latest_snapshot:
            found = copies[-1].copy(copies[-1].end_offset)
        else:
            found = ProducerStateManager()
            self.restore(found, segments[0].base_offset, end_offset)
        replay_segments(found, segments, end_offset)
        return found

    def truncate(self, end_offset: int) -> None:
        """Remove snapshots and copies after the new log end."""
        self.remove_after(end_offset)
        while self._copies and self._copies[-1].end_offset > end_offset:
            self._copies.pop()


def replay_segments(producers: ProducerStateManager, segments: list[Segment], end_offset: int) -> None:
    """Advance the state to `end_offset` by the headers of the batches in between."""
    start_offset = producers.end_offset
    first = max(bisect_right(segments, start_offset, key=attrgetter("base_offset")) - 1, 0)
    for segment in segments[first:]:
        for place in segment.batch_places(segment.start_of_search(start_offset)):
            if place.base_offset >= end_offset:
                break
            if place.base_offset >= start_offset:
                header = segment.header_at(place.position)
                batch = segment.file.read(place.position, place.size_bytes) if header.is_control else b""
                replay_batch(producers, header, batch)
    producers.end_offset = end_offset


def replay_batch(producers: ProducerStateManager, header: BatchHeader, batch: Buffer) -> AbortedTransaction | None:
    """Apply an appended batch to the state. `batch` is needed only for control batches."""
    if header.producer_id < 0:
        return None
    if not header.is_control:
        producers.update(header, header.base_offset)
        return None
    marker = read_end_marker(batch)
    if marker is None:
        producers.update_epoch(header)
        return None
    return producers.end_transaction(header, marker, header.base_offset)
