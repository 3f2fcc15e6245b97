"""Follower checks of the batches that a leader sent (R28)."""

from tidelog.errors import CorruptMessage, FencedLeaderEpoch, InvalidRecord, KafkaError
from tidelog.protocol.record_batch import MAGIC, BatchHeader, crc_matches, split_batches
from tidelog.types import Buffer


class UnexpectedAppendOffset(KafkaError):
    """A leader's batch does not continue the log."""


def checked_batches(
    batches: Buffer, log_start_offset: int, log_end_offset: int, leader_epoch: int | None = None
) -> list[tuple[BatchHeader, memoryview]]:
    """The complete batches, each intact and after the previous one. Compaction on the leader may leave gaps.

    Stops before the first batch of a later epoch than the one of the fetch: the follower must compare epochs with
    the leader before it appends that (KAFKA-18723).
    """
    checked: list[tuple[BatchHeader, memoryview]] = []
    expected = log_end_offset
    for header, batch in split_batches(batches):
        if header.magic != MAGIC or header.last_offset_delta < 0:
            raise InvalidRecord(f"the leader sent a batch of format {header.magic} at offset {header.base_offset}")
        if not crc_matches(batch, header):
            raise CorruptMessage(f"the batch at offset {header.base_offset} fails its CRC")
        if header.base_offset < expected and (
            checked or not _holds_the_start(header, log_start_offset, log_end_offset)
        ):
            raise UnexpectedAppendOffset(f"the leader sent offset {header.base_offset}, expected {expected}")
        if leader_epoch is not None and header.leader_epoch > leader_epoch:
            if checked:
                return checked
            raise FencedLeaderEpoch(f"the leader sent epoch {header.leader_epoch}, fetched in epoch {leader_epoch}")
        checked.append((header, batch))
        expected = header.end_offset
    return checked


def _holds_the_start(header: BatchHeader, log_start_offset: int, log_end_offset: int) -> bool:
    """An empty log may start in the middle of its first batch (KAFKA-6975)."""
    return log_end_offset == log_start_offset and header.end_offset > log_end_offset
