"""A log under random operations, clean stops and crashes, against a simple model of what it must hold."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from tests.storage.logs import EPOCH, NOW_MS, ORDERS, batch_of, manager_on
from tidelog.config.topic import TopicSettings
from tidelog.errors import OffsetOutOfRange
from tidelog.protocol.record_batch import split_batches
from tidelog.protocol.records import records_of
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.storage.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager

SETTINGS = TopicSettings(
    segment_bytes=1500,
    index_interval_bytes=200,
    retention_ms=400,
    retention_bytes=12_000,
    file_delete_delay_ms=100,
    segment_ms=300,
)


class Batch(NamedTuple):
    first: int
    values: list[bytes]
    timestamp: int
    epoch: int
    producer_id: int
    sequence: int

    @property
    def end(self) -> int:
        return self.first + len(self.values)


@dataclass
class Model:
    """Batches that were written and not truncated, deleted ones too."""

    batches: list[Batch] = field(default_factory=list)
    start: int = 0
    end: int = 0
    flushed: int = 0

    def cut(self, end: int) -> None:
        self.batches = [batch for batch in self.batches if batch.end <= end]
        self.end = end
        self.start = min(self.start, end)
        self.flushed = min(self.flushed, end)

    def end_of_whole_batches(self, offset: int) -> int:
        for batch in reversed(self.batches):
            if batch.first <= offset < batch.end:
                return batch.first
        return offset

    def first_at(self, timestamp: int) -> int | None:
        for batch in self.batches:
            if batch.timestamp >= timestamp and batch.end > self.start:
                return max(batch.first, self.start)
        return None

    def last_of(self, producer_id: int) -> Batch | None:
        """The producer's last batch, if it is still in the log."""
        for batch in reversed(self.batches):
            if batch.producer_id == producer_id:
                return batch if batch.first >= self.start else None
        return None

    def values_from(self, offset: int, end: int) -> list[tuple[int, bytes]]:
        """From the start of the batch that holds `offset`."""
        return [
            (batch.first + delta, value)
            for batch in self.batches
            if offset < batch.end <= end
            for delta, value in enumerate(batch.values)
        ]


class Run:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock(NOW_MS)
        self.disk = MemoryDisk(self.clock)
        self.model = Model()
        self.epoch = EPOCH
        self.counts: dict[str, int] = {}
        self.manager: LogManager
        self.log: Log

    async def open(self) -> None:
        self.manager = await manager_on(self.disk, clock=self.clock, topic_settings=lambda topic: SETTINGS)
        self.log = self.manager.create(ORDERS, None, SETTINGS)

    async def go(self, operations: int) -> None:
        await self.open()
        steps = {
            self.append: 50,
            self.read: 25,
            self.raise_high_watermark: 6,
            self.flush: 3,
            self.roll: 2,
            self.truncate: 2,
            self.truncate_fully: 0.3,
            self.delete_records: 2,
            self.retain: 3,
            self.checkpoint: 3,
            self.find_timestamp: 2,
            self.restart: 1.5,
            self.crash: 2,
        }
        for step in self.random.choices(list(steps), weights=list(steps.values()), k=operations):
            self.clock.advance(self.random.randrange(10))
            await step()
            self.counts[step.__name__] = self.counts.get(step.__name__, 0) + 1
            self.check()
            if step in (self.truncate, self.restart, self.crash):
                self.check_history()

    def check(self) -> None:
        log, model = self.log, self.model
        assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert model.flushed <= log.recovery_point <= log.log_end_offset
        assert log.segments[0].base_offset <= log.log_start_offset
        assert log.directory.is_online

    def check_history(self) -> None:
        """What is derived from the batches is that of exactly those that are left."""
        for batch in self.model.batches[-50:]:
            if batch.first >= self.model.start:
                # An epoch may be known from a later offset on only: the log start fell back with the crash.
                assert self.log.leader_epochs.epoch_at(batch.first) in (batch.epoch, -1)
        for producer_id in (7, 8):
            last = self.model.last_of(producer_id)
            if last is not None:
                remembered = self.log.producers.by_id[producer_id].batches[-1]
                assert (remembered.first_sequence, remembered.first_offset) == (last.sequence, last.first)

    async def append(self) -> None:
        values = [self.random.randbytes(self.random.randrange(120)) for _ in range(self.random.randint(1, 4))]
        self.epoch += self.random.random() < 0.05
        producer_id = self.random.choice([-1, -1, 7, 8])
        state = self.log.producers.by_id.get(producer_id)
        batch = Batch(
            self.model.end,
            values,
            self.clock.now_ms(),
            self.epoch,
            producer_id,
            -1 if producer_id < 0 else 0 if state is None else state.next_sequence,
        )
        wire_batch = batch_of(
            *values,
            timestamp=batch.timestamp,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=batch.sequence,
        )
        result = self.log.append_as_leader(wire_batch, self.epoch)
        assert (result.first_offset, result.is_duplicate) == (self.model.end, False)
        self.model.batches.append(batch)
        self.model.end += len(values)

    async def read(self) -> None:
        model, log = self.model, self.log
        offset = self.random.randint(model.start - 3, model.end + 3)
        end = self.random.choice([log.log_end_offset, log.high_watermark])
        max_bytes = self.random.choice([1, 300, 1_000_000])
        if not model.start <= offset <= model.end:
            with pytest.raises(OffsetOutOfRange):
                log.read(offset, max_bytes, end)
            return
        found = log.read(offset, max_bytes, end)
        expected = model.values_from(offset, end) if offset < end else []
        if found.slice is None:
            assert expected == []
            return
        whole = [record for _, batch in split_batches(found.slice.read()) for record in records_of(batch)]
        assert [(record.offset, record.value) for record in whole] == expected[: len(whole)]
        assert expected
        assert whole
        assert whole[-1].offset >= offset

    async def raise_high_watermark(self) -> None:
        # As a leader does: to the end of some batch.
        ends = [batch.end for batch in self.model.batches[-5:]]
        if ends:
            self.log.raise_high_watermark(self.random.choice(ends))

    async def flush(self) -> None:
        await self.log.flush()
        self.model.flushed = self.model.end

    async def roll(self) -> None:
        self.log.roll()

    async def truncate(self) -> None:
        offset = self.random.randint(max(self.model.start, self.model.end - 30), self.model.end)
        expected = max(self.model.end_of_whole_batches(offset), min(self.model.start, offset))
        self.log.truncate_to(offset)
        self.model.cut(expected)

    async def truncate_fully(self) -> None:
        offset = self.model.end + self.random.randrange(50)
        self.log.truncate_fully_and_start_at(offset)
        self.model.batches.clear()
        self.model.start = self.model.end = offset
        self.model.flushed = 0

    async def delete_records(self) -> None:
        offset = self.random.randint(self.model.start, self.log.high_watermark)
        self.log.advance_log_start_offset(offset)
        self.model.start = max(self.model.start, offset)

    async def retain(self) -> None:
        deleted = self.log.delete_old_segments(self.clock.now_ms())
        assert all(segment.base_offset < self.log.high_watermark for segment in deleted)
        assert self.log.segments[0].base_offset <= self.log.high_watermark
        self.model.start = max(self.model.start, self.log.segments[0].base_offset)
        await self.manager.jobs.delete_due_files()

    async def checkpoint(self) -> None:
        await self.manager.checkpoints.write(RECOVERY_POINTS)
        await self.manager.checkpoints.write(HIGH_WATERMARKS)
        await self.manager.checkpoints.write(LOG_START_OFFSETS)

    async def find_timestamp(self) -> None:
        timestamp = self.clock.now_ms() - self.random.randrange(500)
        found = self.log.find_by_timestamp(timestamp)
        expected = self.model.first_at(timestamp)
        assert (found and found.offset) == expected

    async def restart(self) -> None:
        high_watermark = self.log.high_watermark
        await self.manager.close()
        await self.open()
        assert self.log.high_watermark == high_watermark
        self.model.flushed = self.model.end

    async def crash(self) -> None:
        self.disk.crash(lambda path, unsynced_bytes: self.random.randint(0, unsynced_bytes))
        await self.open()
        model, log = self.model, self.log
        assert model.flushed <= log.log_end_offset <= model.end
        if log.log_start_offset < log.log_end_offset:
            # Otherwise all is lost from the log start on, and the log goes on there, be it inside a batch.
            assert model.end_of_whole_batches(log.log_end_offset) == log.log_end_offset
            assert log.log_start_offset <= model.start
        model.cut(log.log_end_offset)
        model.start = log.log_start_offset
        model.flushed = min(model.flushed, log.recovery_point)
        assert log.leader_epochs.latest_epoch <= self.epoch


@pytest.mark.parametrize("seed", range(8))
def test_the_log_holds_what_the_model_holds(seed: int) -> None:
    run = Run(seed)
    asyncio.run(run.go(operations=2_600))
    assert min(run.counts.get(name, 0) for name in ("append", "read", "restart", "crash", "retain", "truncate")) > 10
