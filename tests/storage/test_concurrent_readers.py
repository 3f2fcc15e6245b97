"""Readers in worker threads, while the event loop appends, rolls, truncates and deletes."""

import random
import threading
from pathlib import Path

from tests.storage.logs import EPOCH, NOW_MS, append_many, batch_of, directory_on, new_log
from tidelog.config.topic import TopicSettings
from tidelog.errors import OffsetOutOfRange
from tidelog.protocol.record_batch import split_batches
from tidelog.runtime.disk import SystemDisk
from tidelog.storage.log import Log
from tidelog.storage.segment_cache import SegmentCache

SETTINGS = TopicSettings(segment_bytes=4_000, index_interval_bytes=300, retention_bytes=20_000)
READERS = 3
ROUNDS = 1_500


class Reader(threading.Thread):
    def __init__(self, log: Log, seed: int) -> None:
        super().__init__()
        self.log = log
        self.random = random.Random(seed)
        self.is_stopped = False
        self.reads = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.is_stopped:
                self.read_once()
                self.reads += 1
        except BaseException as error:  # noqa: BLE001 - passed on to the test, which fails
            self.error = error

    def read_once(self) -> None:
        offset = self.random.randint(self.log.log_start_offset, self.log.log_end_offset)
        try:
            read = self.log.read(offset, self.random.choice([1, 1000, 100_000]), self.log.log_end_offset)
        except OffsetOutOfRange:
            return
        if read.slice is not None:
            for header, batch in split_batches(read.slice.read()):
                assert header.size_bytes == len(batch)
                assert header.last_offset >= offset
                break
        if self.reads % 10 == 0:
            found = self.log.find_by_timestamp(NOW_MS + offset)
            assert found is None or found.timestamp >= NOW_MS + offset


def work(log: Log) -> None:
    """What the event loop does, at full speed; deleted files are gone at once."""
    chance = random.Random(1)
    for number in range(ROUNDS):
        append_many(log, chance.randint(1, 5))
        log.raise_high_watermark(log.log_end_offset)
        if number % 20 == 0:
            log.delete_old_segments(NOW_MS)
            for pending in log.local._pending_deletions:
                for path in pending.paths:
                    log.directory.context.disk.remove(path)
            log.local._pending_deletions.clear()
        if number % 100 == 0:
            log.active_segment.write_indexes()
        if number % 300 == 0:
            log.roll()


def test_readers_in_workers_see_whole_batches_while_the_log_changes(tmp_path: Path) -> None:
    directory = directory_on(SystemDisk(), str(tmp_path))
    object.__setattr__(directory.context, "cache", SegmentCache(open_files=2, index_bytes=200))
    log = new_log(directory=directory, settings=SETTINGS)
    log.append_as_leader(batch_of(b"first"), EPOCH)
    readers = [Reader(log, seed) for seed in range(READERS)]
    for reader in readers:
        reader.start()
    try:
        work(log)
    finally:
        for reader in readers:
            reader.is_stopped = True
        for reader in readers:
            reader.join()
    assert [reader.error for reader in readers] == [None] * READERS
    assert directory.is_online
    assert all(reader.reads > 20 for reader in readers)
