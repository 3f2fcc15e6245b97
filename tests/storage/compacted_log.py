"""A log dir with one compacted log and a cleaner, on a disk in memory."""

import asyncio

from tidelog.config.topic import TopicSettings
from tidelog.protocol.compression import Codec
from tidelog.protocol.record_batch import crc_matches, split_batches
from tidelog.protocol.records import Record, build_batch, records_of
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.workers import InlineWorkers, Workers
from tidelog.storage.cleaner import Cleaner
from tidelog.storage.loader import Checkpointed, create_log, load_log
from tidelog.storage.log import Log
from tidelog.storage.log_directory import LogDirectory, StorageContext
from tidelog.storage.validation import AppendOrigin
from tidelog.types import TopicPartition

PARTITION = TopicPartition("compacted", 0)
COMPACT = TopicSettings(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)


class Stage:
    """A log dir with one compacted log and a cleaner."""

    def __init__(
        self,
        topic_settings: TopicSettings = COMPACT,
        disk: MemoryDisk | None = None,
        dedupe_buffer_bytes: int = 10**6,
    ) -> None:
        self.clock = ManualClock()
        self.disk = disk or MemoryDisk(self.clock)
        self.context = StorageContext(self.disk, self.clock, InlineWorkers(), SeededRandomness(1))
        self.directory = LogDirectory("/logs", self.context)
        self.topic_settings = topic_settings
        self.dedupe_buffer_bytes = dedupe_buffer_bytes
        self.logs_by_partition: dict[TopicPartition, Log] = {}
        self.cleaner = self.new_cleaner()

    @property
    def logs(self) -> list[Log]:
        return list(self.logs_by_partition.values())

    def new_cleaner(self, workers: Workers | None = None) -> Cleaner:
        context = StorageContext(self.disk, self.clock, workers or InlineWorkers(), SeededRandomness(1))
        cleaner = Cleaner(context, [self.directory], self.logs_by_partition, self.dedupe_buffer_bytes)
        asyncio.run(cleaner.checkpoints.load())
        return cleaner

    def create(self, partition: TopicPartition = PARTITION) -> Log:
        log = create_log(self.directory, self.path_of(partition), partition, bytes(16), self.topic_settings)
        self.directory.logs[partition] = self.logs_by_partition[partition] = log
        return log

    def path_of(self, partition: TopicPartition) -> str:
        return f"{self.directory.path}/{partition}"

    def reopen(self) -> Log:
        """As after a crash."""
        for log in self.logs:
            log.release_resources()
        marks = Checkpointed(is_clean=False, recovery_point=0, high_watermark=2**40)
        log = load_log(self.directory, self.path_of(PARTITION), PARTITION, self.topic_settings, marks)
        self.directory.logs = {PARTITION: log}
        self.logs_by_partition = {PARTITION: log}
        self.cleaner = self.new_cleaner()
        return log

    def clean(self) -> bool:
        return asyncio.run(self.cleaner.clean_once())


def append(log: Log, *pairs: tuple[str, str | None], codec: Codec = Codec.NONE, timestamp: int = 5) -> None:
    records = [
        Record(i, timestamp, key.encode(), None if value is None else value.encode())
        for i, (key, value) in enumerate(pairs)
    ]
    append_batch(log, build_batch(records, compression=codec))


def append_batch(log: Log, batch: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    log.append_as_leader(memoryview(batch), 0, origin)
    log.raise_high_watermark(log.log_end_offset)


def batches_of(log: Log) -> list[bytes]:
    """Everything in the log, read as a consumer reads it."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1000, log.log_end_offset)
        if read.slice is None:
            break
        for header, batch in split_batches(read.slice.read()):
            assert crc_matches(batch, header)
            found.append(bytes(batch))
            offset = header.end_offset
    return found


def records_in(log: Log) -> list[Record]:
    return [record for batch in batches_of(log) for record in records_of(batch)]


def values_in(log: Log) -> dict[bytes | None, bytes | None]:
    """What a reader of the whole log knows in the end."""
    latest = {record.key: record.value for record in records_in(log)}
    return {key: value for key, value in latest.items() if value is not None}


def leftovers(stage: Stage) -> list[str]:
    names = [entry.name for entry in stage.disk.list_directory(stage.path_of(PARTITION))]
    return [name for name in names if name.endswith((".cleaned", ".swap"))]
