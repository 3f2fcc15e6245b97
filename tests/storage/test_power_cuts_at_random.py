"""Power cuts with all kinds of damage after random operations on a log: what is left was once written like that."""

import asyncio

import pytest

from tests.storage.logs import all_records, batch_of, current_epoch, loaded, new_log
from tidelog.config.topic import TopicSettings
from tidelog.protocol.record_batch import BatchHeader
from tidelog.runtime.memory_disk import CrashDamage, MemoryDisk
from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.swarm import is_without_checksum
from tidelog.storage.log import Log
from tidelog.types import NO_SEQUENCE

DAMAGE = CrashDamage(tears_writes=True, loses_names=True, flips_bits=True, spares_byte=is_without_checksum)
"""To all files: segments with the leader epochs of their batches, indexes, snapshots, and the journal of epochs."""
SEGMENT_BYTES = (300, 1000, 100_000)
OPERATIONS = 14
PRODUCERS = 3


class Operations:
    """Appends of several leader epochs, flushes, truncations and deletions of records."""

    def __init__(self, seed: int) -> None:
        self.randomness = SeededRandomness(seed)
        self.disk = MemoryDisk()
        self.disk.make_directory("/data")
        self.disk.sync_directory("/")
        settings = TopicSettings(segment_bytes=SEGMENT_BYTES[self.randomness.below(len(SEGMENT_BYTES))])
        self.log = new_log(self.disk, settings=settings)
        self.disk.sync_directory("/data")
        self.epoch = self.randomness.below(8)
        self.ever: set[BatchHeader] = set()
        self.noted_recovery_point = 0
        """Of the checkpoint, which is written now and then. More may have been synced since."""
        self.noted_log_start: int | None = None

    def run(self) -> None:
        for number in range(1 + self.randomness.below(OPERATIONS)):
            match self.randomness.below(10):
                case 0:
                    asyncio.run(self.log.flush())
                case 1 if self.log.log_end_offset > self.log.log_start_offset:
                    self.log.truncate_to(self._some_offset())
                    # As `checkpoint_truncation` does, which syncs both.
                    self.noted_recovery_point = min(self.noted_recovery_point, self.log.recovery_point)
                    self.noted_log_start = self.log.log_start_offset
                    self.epoch += 1
                case 2 if self.log.log_end_offset > self.log.log_start_offset:
                    self.log.raise_high_watermark(self.log.log_end_offset)
                    self.log.advance_log_start_offset(self._some_offset())
                case 3:
                    self.noted_recovery_point = self.log.recovery_point
                    self.noted_log_start = self.log.log_start_offset
                case draw:
                    self.epoch += 1 + draw % 3 if draw < 6 else 0
                    self._append(b"%d" % number + b"." * self.randomness.below(120))
                    self.ever.update(headers_of(self.log))

    def _append(self, value: bytes) -> None:
        producer_id = self.randomness.below(PRODUCERS) - 1
        sequence = NO_SEQUENCE
        if producer_id >= 0:
            known = self.log.producers.by_id.get(producer_id)
            sequence = 0 if known is None else known.next_sequence
        batch = batch_of(value, producer_id=producer_id, producer_epoch=min(producer_id, 0), base_sequence=sequence)
        self.log.append_as_leader(batch, current_epoch(self.log, self.epoch))

    def _some_offset(self) -> int:
        return self.log.log_start_offset + self.randomness.below(self.log.log_end_offset - self.log.log_start_offset)


def headers_of(log: Log) -> list[BatchHeader]:
    return [segment.header_at(place.position) for segment in log.segments for place in segment.batch_places()]


@pytest.mark.parametrize("first", range(0, 2000, 500))
def test_a_log_after_a_power_cut_is_one_that_was_written(first: int) -> None:
    for seed in range(first, first + 500):
        operations = Operations(seed)
        operations.run()
        log = operations.log
        operations.disk.crash_badly(operations.randomness, DAMAGE)
        again = loaded(log, recovery_point=operations.noted_recovery_point, log_start_offset=operations.noted_log_start)
        found = headers_of(again)
        assert operations.ever.issuperset(found), f"seed {seed}: a batch is there that nobody wrote"
        assert again.log_end_offset >= log.recovery_point, f"seed {seed}: what was synced is gone"
        check_segments(again, seed)
        check_producers(again, seed)
        for header in found:
            if header.base_offset >= log.log_start_offset:
                known = again.leader_epochs.epoch_at(header.base_offset)
                assert known == header.leader_epoch, f"seed {seed}: the epochs are not those of the batches"


def check_segments(log: Log, seed: int) -> None:
    """They join, and their indexes lead to every batch."""
    ends = [segment.base_offset for segment in log.segments[1:]] + [log.log_end_offset]
    for segment, end_offset in zip(log.segments, ends, strict=True):
        assert segment.find_end() == (end_offset, segment.size_bytes), f"seed {seed}: segments do not join"
        for place in segment.batch_places():
            assert segment.find_batch(place.base_offset) == place, f"seed {seed}: an index leads astray"
    all_records(log)


def check_producers(log: Log, seed: int) -> None:
    """They are those of the batches, whatever snapshots are left."""
    expected = {header.producer_id: header.last_sequence for header in headers_of(log) if header.producer_id >= 0}
    known = {producer_id: state.last_sequence for producer_id, state in log.producers.by_id.items()}
    assert known == expected, f"seed {seed}: the producers are not those of the batches"
