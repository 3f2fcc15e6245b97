"""Segment recovery after a crash: checks batches after the recovery point, up to the first corrupt one (R6)."""

import logging
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from tidelog.config.topic import TopicSettings
from tidelog.errors import CorruptMessage
from tidelog.protocol.record_batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    crc_matches,
    read_header,
)
from tidelog.storage.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.storage.producer_snapshots import replay_batch
from tidelog.storage.producer_state import ProducerStateManager
from tidelog.storage.segment import LOG_SUFFIX, SCAN_BYTES, Segment
from tidelog.types import NO_LEADER_EPOCH

logger = logging.getLogger(__name__)

MAX_CHECKED_EPOCHS = 100
"""Checkpointed epochs that are compared with the log after a crash, the latest ones. More would take long to find."""

_BASE_OFFSET = attrgetter("base_offset")


class CorruptBatch(Exception):
    """The bytes at a position are not a complete, valid batch."""


class Recovered(NamedTuple):
    end_offset: int
    is_damaged: bool


class ExpectedEpochs(NamedTuple):
    """Leader epochs that unsynced batches may have, because no CRC covers the epoch of a batch."""

    epochs: LeaderEpochs
    """Of the journal or the checkpoint; none if both are lost."""
    synced_end: int
    """Recovery point: batches before this offset are on disk unchanged."""
    confirmed_end: float = math.inf
    """From here on nothing confirms the epochs of batches."""

    def check(self, header: BatchHeader) -> None:
        """Batches before the first epoch may have an earlier one: the log start of that epoch may be lost in the crash.

        Raises CorruptBatch.
        """
        if header.base_offset < self.synced_end:
            return
        if header.base_offset >= self.confirmed_end:
            raise CorruptBatch(f"leader epoch {header.leader_epoch}, which no checkpoint and no other batch has")
        starts, expected = self.epochs.starts, self.epochs.epoch_at(header.base_offset)
        if expected not in (NO_LEADER_EPOCH, header.leader_epoch):
            raise CorruptBatch(f"leader epoch {header.leader_epoch} where the checkpoint has {expected}")
        if starts and expected == NO_LEADER_EPOCH and header.leader_epoch > starts[0].epoch:
            raise CorruptBatch(
                f"leader epoch {header.leader_epoch} before the checkpoint begins with {starts[0].epoch}"
            )


def recover_segment(
    segment: Segment,
    start_offset: int,
    gaps_end: float,
    settings: TopicSettings,
    leader_epochs: LeaderEpochs,
    producers: ProducerStateManager,
    expected_epochs: ExpectedEpochs,
) -> Recovered:
    """Check every batch, rebuild indexes, epochs and producers, and truncate at the first corrupt batch.

    Before `gaps_end` compaction may have left gaps.
    """
    file_bytes = segment.size_bytes
    segment.offset_index.reset()
    segment.time_index.reset()
    segment.transaction_index.replace([])
    segment.size_bytes = 0
    segment.forget_tail()
    end_offset, reason = start_offset, ""
    try:
        for header, batch in checked_batches(segment, file_bytes):
            _check_place(header, end_offset, segment.last_possible_offset, may_skip=end_offset < gaps_end)
            expected_epochs.check(header)
            _apply_batch(segment, header, batch, settings, leader_epochs, producers)
            end_offset = header.end_offset
    except (CorruptBatch, CorruptMessage) as error:
        reason = str(error)
    if segment.size_bytes < file_bytes:
        _truncate(segment, file_bytes, end_offset, reason)
    segment.seal()
    return Recovered(end_offset, segment.size_bytes < file_bytes)


def _apply_batch(
    segment: Segment,
    header: BatchHeader,
    batch: memoryview,
    settings: TopicSettings,
    leader_epochs: LeaderEpochs,
    producers: ProducerStateManager,
) -> None:
    aborted = replay_batch(producers, header, batch) if header.base_offset >= producers.end_offset else None
    if aborted is not None:
        segment.transaction_index.append(aborted)
    leader_epochs.assign(header.leader_epoch, header.base_offset)
    segment.track_batch(len(batch), header.last_offset, header.max_timestamp, settings.index_interval_bytes)


def _truncate(segment: Segment, file_bytes: int, end_offset: int, reason: str) -> None:
    position = segment.size_bytes
    logger.warning(
        "truncated corrupt segment path=%s position=%d removed_bytes=%d end_offset=%d reason=%s",
        segment.path(LOG_SUFFIX),
        position,
        file_bytes - position,
        end_offset,
        reason or "too few bytes for a batch",
    )
    segment.file.truncate(position)
    segment.has_unsynced_truncation = True


def cut_unsynced_end(segment: Segment, synced_end: int) -> None:
    """Cut what a segment has behind the recovery point, where the next segment begins.

    The log was truncated there, and a power cut has undone that. Records that were replaced would be read again.
    """
    position = segment.start_of_search(synced_end - 1)
    end_offset, is_beyond = segment.base_offset, False
    for place in segment.batch_places(position):
        if place.last_offset >= synced_end:
            is_beyond, position = place.base_offset >= synced_end, place.position
            break
        end_offset, position = place.last_offset + 1, place.position + place.size_bytes
    if position < segment.size_bytes and (is_beyond or end_offset == synced_end):
        logger.warning(
            "cut what was truncated before path=%s position=%d removed_bytes=%d end_offset=%d",
            segment.path(LOG_SUFFIX),
            position,
            segment.size_bytes - position,
            synced_end,
        )
        segment.truncate(segment.prepare_truncation(position, synced_end))


def checked_batches(segment: Segment, file_bytes: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Batches of the file in order, with their CRC checked. Raises CorruptBatch at the first that fails."""
    position, window, window_start = 0, memoryview(b""), 0
    while position < file_bytes:
        start = position - window_start
        header = read_header(window, start) if len(window) - start >= HEADER_BYTES else None
        needed_bytes = HEADER_BYTES if header is None else header.length + LENGTH_OVERHEAD_BYTES
        _check_extent(header, needed_bytes, file_bytes - position)
        if header is None or start + needed_bytes > len(window):
            window = memoryview(segment.file.read(position, max(needed_bytes, SCAN_BYTES)))
            window_start = position
            if len(window) < needed_bytes:
                raise CorruptBatch("the file is shorter than it said")
            continue
        batch = window[start : start + needed_bytes]
        if not crc_matches(batch, header):
            raise CorruptBatch("the CRC does not match")
        yield header, batch
        position += needed_bytes


def _check_extent(header: BatchHeader | None, needed_bytes: int, available_bytes: int) -> None:
    if header is not None:
        if header.magic != MAGIC:
            raise CorruptBatch(f"format {header.magic} is unknown")
        if needed_bytes < HEADER_BYTES:
            raise CorruptBatch(f"a length of {header.length} bytes is less than a header")
    if needed_bytes > available_bytes:
        raise CorruptBatch(f"{available_bytes} bytes are left of a batch of {needed_bytes} or more")


def _check_place(header: BatchHeader, expected_offset: int, last_possible_offset: int, *, may_skip: bool) -> None:
    """Check the base offset, which no CRC covers: it must follow the previous batch. Only compaction leaves gaps."""
    if header.last_offset_delta < 0:
        raise CorruptBatch(f"a last offset delta of {header.last_offset_delta}")
    if header.base_offset < expected_offset or (header.base_offset > expected_offset and not may_skip):
        raise CorruptBatch(f"base offset {header.base_offset} where {expected_offset} should follow")
    if header.last_offset > last_possible_offset:
        raise CorruptBatch(f"offset {header.last_offset} is beyond the last one that the segment can hold")


def has_epochs_of(segments: Sequence[Segment], leader_epochs: LeaderEpochs) -> bool:
    """Whether the batches around the start of each checkpointed epoch belong to the epochs that the checkpoint names.

    The checkpoint has no CRC, and earlier versions replaced it without a sync when an epoch began.
    """
    for _, start_offset in leader_epochs.starts[-MAX_CHECKED_EPOCHS:]:
        for offset in (start_offset - 1, start_offset):
            number = bisect_right(segments, offset, key=_BASE_OFFSET) - 1
            place = segments[number].find_batch(offset) if number >= 0 else None
            if place is None:
                continue  # not in these segments, or compacted away
            expected = leader_epochs.epoch_at(max(offset, place.base_offset))
            if expected not in (NO_LEADER_EPOCH, segments[number].header_at(place.position).leader_epoch):
                return False
    return True


def confirmed_epochs_end(segments: Sequence[Segment], latest_epoch: int) -> float:
    """Base offset of the first batch whose leader epoch no batch beside it has; infinity if there is none.

    For unsynced batches without a checkpoint: nothing else distinguishes a flipped bit from a new epoch. A log with a
    false last epoch would win an election (R42), or keep its broker from starting (R44). `latest_epoch` is that of the
    batch before.
    """
    beginning: EpochEntry | None = None
    for segment in segments:
        for place in segment.batch_places():
            epoch = segment.header_at(place.position).leader_epoch
            if beginning is not None and epoch != beginning.epoch:
                return beginning.start_offset
            beginning = None
            if epoch < latest_epoch:
                return place.base_offset
            if epoch > latest_epoch:
                beginning = EpochEntry(epoch, place.base_offset)
            latest_epoch = epoch
    return math.inf if beginning is None else beginning.start_offset


def rebuild_leader_epochs(segments: Sequence[Segment], leader_epochs: LeaderEpochs) -> None:
    """Rebuild a lost leader epoch checkpoint from the headers of all batches."""
    for segment in segments:
        for place in segment.batch_places():
            leader_epochs.assign(segment.header_at(place.position).leader_epoch, place.base_offset)
