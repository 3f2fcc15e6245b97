"""Follower checks of the batches that a leader sent (R28)."""

from itertools import islice
from typing import TypeAlias

from tidelog.errors import CorruptMessage, FencedLeaderEpoch, InvalidRecord, KafkaError
from tidelog.protocol.record_batch import CONTROL_BIT, MAGIC, BatchHeader, crc_matches, split_batches
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.segment import Segment
from tidelog.types import Buffer


class UnexpectedAppendOffset(KafkaError):
    """A leader's batch does not continue the log."""


MAX_RUN_BYTES = 256 * 1024
"""Larger batches are written alone, where a write costs more than the system call."""

CheckedBatches: TypeAlias = list[tuple[BatchHeader, memoryview]]


def checked_batches(
    batches: Buffer, log_start_offset: int, log_end_offset: int, leader_epoch: int | None = None
) -> tuple[CheckedBatches, bool]:
    """The complete batches, each intact and after the previous one, and whether offsets are missing between them.

    Compaction on the leader leaves such gaps. `log_start_offset` is the greater one of the leader's and this log's.

    Stops before the first batch of a later epoch than the one of the fetch: the follower must compare epochs with
    the leader before it appends that (KAFKA-18723).
    """
    checked: CheckedBatches = []
    expected, has_gaps = log_end_offset, False
    for header, batch in split_batches(batches):
        if header.magic != MAGIC or header.last_offset_delta < 0:
            raise InvalidRecord(f"the leader sent a batch of format {header.magic} at offset {header.base_offset}")
        if not crc_matches(batch, header):
            raise CorruptMessage(f"the batch at offset {header.base_offset} fails its CRC")
        if header.base_offset != expected:
            is_gap = header.base_offset > expected
            if not is_gap and (checked or not _holds_the_start(header, log_start_offset, log_end_offset)):
                raise UnexpectedAppendOffset(f"the leader sent offset {header.base_offset}, expected {expected}")
            has_gaps = has_gaps or is_gap
        if leader_epoch is not None and header.leader_epoch > leader_epoch:
            if checked:
                return checked, has_gaps
            raise FencedLeaderEpoch(f"the leader sent epoch {header.leader_epoch}, fetched in epoch {leader_epoch}")
        checked.append((header, batch))
        expected = header.base_offset + header.last_offset_delta + 1
    return checked, has_gaps


def _holds_the_start(header: BatchHeader, log_start_offset: int, log_end_offset: int) -> bool:
    """A log may start in the middle of its first batch (KAFKA-6975). Whatever a follower has before it is deleted."""
    return log_end_offset <= log_start_offset < header.end_offset


def run_length(
    checked: CheckedBatches,
    first: int,
    segment: Segment,
    leader_epochs: LeaderEpochs,
    roll_check_bytes: int,
    now_ms: int,
) -> tuple[int, int]:
    """Number and bytes of the batches from `first` on that one write can append to the segment; at least one.

    More than one only if none of them may need a new segment, begins an epoch or is a control batch: after the write
    nothing may fail before all of them are counted, else the file would be longer than the log knows.
    """
    size_bytes, count, run_bytes = segment.size_bytes, 0, 0
    if not leader_epochs.is_unwritten and now_ms <= segment.roll_after_clock_ms:
        for header, batch in islice(checked, first, None):
            if (
                header.attributes & CONTROL_BIT
                or run_bytes + len(batch) > MAX_RUN_BYTES
                or size_bytes + run_bytes + len(batch) > roll_check_bytes
                or header.max_timestamp > segment.roll_after_timestamp
                or header.last_offset > segment.last_possible_offset
                or header.leader_epoch != leader_epochs.latest_epoch
            ):
                break
            count += 1
            run_bytes += len(batch)
    return (count, run_bytes) if count else (1, len(checked[first][1]))
