"""The snapshot files of a partition's producer state, and rebuilding the state from them and the log."""

import logging
from bisect import bisect_right
from collections import deque
from operator import attrgetter

from tidelog.protocol.record_batch import BatchHeader
from tidelog.protocol.records import read_end_marker
from tidelog.runtime.disk import Disk
from tidelog.storage.producer_state import DamagedSnapshot, ProducerStates
from tidelog.storage.segment import Segment, segment_path
from tidelog.storage.transaction_index import AbortedTransaction
from tidelog.types import Buffer

logger = logging.getLogger(__name__)

SNAPSHOT_SUFFIX = ".snapshot"
REMEMBERED_COPIES = 4
MOST_COPIED_PRODUCERS = 10_000
PRODUCERS_PER_CALL = 8
"""A copy of more producers waits for more calls of `remember`, so that each of them costs about the same."""


class ProducerSnapshots:
    """A snapshot is named after the offset up to which it tells the story."""

    __slots__ = ("_calls", "_copies", "_directory", "_disk", "_offsets")

    def __init__(self, disk: Disk, directory: str, offsets: list[int] | None = None) -> None:
        self._disk = disk
        self._directory = directory
        self._offsets = sorted(offsets or [])
        self._copies: deque[ProducerStates] = deque(maxlen=REMEMBERED_COPIES)
        self._calls = 0

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(self._offsets)

    def path(self, offset: int) -> str:
        return segment_path(self._directory, offset, SNAPSHOT_SUFFIX)

    def take(self, producers: ProducerStates, offset: int) -> None:
        """Not synced: a snapshot that a crash tore is found out by its CRC."""
        if self._offsets and self._offsets[-1] == offset:
            return
        file = self._disk.open(self.path(offset), "create")
        file.append(producers.snapshot())
        file.close()
        self._offsets.append(offset)

    def take_at_close(self, producers: ProducerStates, offset: int) -> None:
        """A partition that never saw a producer id needs no file; a clean start reads none into nothing."""
        if producers.by_id or self._offsets:
            self.take(producers, offset)

    def remember(self, producers: ProducerStates, offset: int) -> None:
        """Now and then: a copy in memory, so that cutting a little off the log does not mean to read all of it."""
        self._calls += 1
        if not producers.by_id or len(producers.by_id) > min(MOST_COPIED_PRODUCERS, self._calls * PRODUCERS_PER_CALL):
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
        """Keep those that belong to a segment, and the latest."""
        bases = {segment.base_offset for segment in segments}
        self._remove([offset for offset in self._offsets[:-1] if offset not in bases])

    def _remove(self, offsets: list[int]) -> None:
        for offset in offsets:
            self._disk.remove(self.path(offset))
            self._offsets.remove(offset)

    def restore(self, producers: ProducerStates, start_offset: int, end_offset: int | None = None) -> None:
        """Take the latest readable snapshot, of those up to `end_offset`; without one the story begins at
        `start_offset`. Damaged ones go."""
        producers.clear(start_offset)
        for offset in reversed(self.offsets):
            if end_offset is not None and offset > end_offset:
                continue
            try:
                producers.restore(self._disk.read_file(self.path(offset)), offset)
            except DamagedSnapshot as error:
                logger.warning("damaged producer snapshot is removed path=%s error=%s", self.path(offset), error)
                self._remove([offset])
            else:
                return

    def as_of(self, producers: ProducerStates, segments: list[Segment], end_offset: int) -> ProducerStates:
        """The state as of `end_offset`: the latest copy or snapshot not after it, and the batches since.

        `producers` is the state of now, and stays as it is.
        """
        if not producers.by_id:
            return ProducerStates(end_offset)
        copies = [copy for copy in self._copies if copy.end_offset <= end_offset]
        latest_snapshot = max((offset for offset in self._offsets if offset <= end_offset), default=0)
        if copies and copies[-1].end_offset >= latest_snapshot:
            found = copies[-1].copy(copies[-1].end_offset)
        else:
            found = ProducerStates()
            self.restore(found, segments[0].base_offset, end_offset)
        replay_segments(found, segments, end_offset)
        return found

    def cut(self, end_offset: int) -> None:
        """The log ends here now."""
        self.remove_after(end_offset)
        while self._copies and self._copies[-1].end_offset > end_offset:
            self._copies.pop()


def replay_segments(producers: ProducerStates, segments: list[Segment], end_offset: int) -> None:
    """Bring the state from where it stands up to `end_offset`, by the headers of the batches in between."""
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


def replay_batch(producers: ProducerStates, header: BatchHeader, batch: Buffer) -> AbortedTransaction | None:
    """What an append of the batch did to the state; only of control batches are the bytes needed."""
    if header.producer_id < 0:
        return None
    if not header.is_control:
        producers.update(header, header.base_offset)
        return None
    marker = read_end_marker(batch)
    if marker is None:
        producers.note_epoch(header)
        return None
    return producers.end_transaction(header, marker, header.base_offset)
