"""Power cuts with all kinds of damage after random operations on a log: what is left was once written like that."""

import asyncio

import pytest

from tests.storage.logs import all_records, append, loaded, new_log
from tidelog.config.topic import TopicSettings
from tidelog.protocol.record_batch import BatchHeader
from tidelog.runtime.memory_disk import CrashDamage, MemoryDisk
from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.swarm import is_without_checksum
from tidelog.storage.log import Log

DAMAGE = CrashDamage(tears_writes=True, loses_names=True, flips_bits=True, spares_byte=is_without_checksum)
SEGMENT_BYTES = (300, 1000, 100_000)
OPERATIONS = 14


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

    def run(self) -> None:
        for number in range(1 + self.randomness.below(OPERATIONS)):
            match self.randomness.below(10):
                case 0:
                    asyncio.run(self.log.flush())
                case 1 if self.log.log_end_offset > self.log.log_start_offset:
                    self.log.truncate_to(self._some_offset())
                    self.noted_recovery_point = min(self.noted_recovery_point, self.log.recovery_point)
                    self.epoch += 1
                case 2 if self.log.log_end_offset > self.log.log_start_offset:
                    self.log.raise_high_watermark(self.log.log_end_offset)
                    self.log.advance_log_start_offset(self._some_offset())
                case 3:
                    self.noted_recovery_point = self.log.recovery_point
                case draw:
                    self.epoch += 1 + draw % 3 if draw < 6 else 0
                    value = b"%d" % number + b"." * self.randomness.below(120)
                    append(self.log, value, leader_epoch=self.epoch)
                    self.ever.update(headers_of(self.log))

    def _some_offset(self) -> int:
        return self.log.log_start_offset + self.randomness.below(self.log.log_end_offset - self.log.log_start_offset)


def headers_of(log: Log) -> list[BatchHeader]:
    return [segment.header_at(place.position) for segment in log.segments for place in segment.batch_places()]


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_a_log_after_a_power_cut_is_one_that_was_written(first: int) -> None:
    for seed in range(first, first + 100):
        operations = Operations(seed)
        operations.run()
        log = operations.log
        operations.disk.crash_badly(operations.randomness, DAMAGE)
        again = loaded(log, recovery_point=operations.noted_recovery_point)
        found = headers_of(again)
        assert operations.ever.issuperset(found), f"seed {seed}: a batch is there that nobody wrote"
        assert again.log_end_offset >= log.recovery_point, f"seed {seed}: what was synced is gone"
        ends = [segment.base_offset for segment in again.segments[1:]] + [again.log_end_offset]
        for segment, end_offset in zip(again.segments, ends, strict=True):
            assert segment.find_end() == (end_offset, segment.size_bytes), f"seed {seed}: segments do not join"
        all_records(again)
        for header in found:
            if header.base_offset >= log.log_start_offset:
                known = again.leader_epochs.epoch_at(header.base_offset)
                assert known == header.leader_epoch, f"seed {seed}: the epochs are not those of the batches"
