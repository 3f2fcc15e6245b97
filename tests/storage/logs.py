"""Short ways to make batches, logs and log managers on a disk in memory."""

from collections.abc import Callable, Sequence

from tidelog.config.broker import BrokerSettings
from tidelog.config.topic import TopicSettings
from tidelog.protocol.record_batch import split_batches
from tidelog.protocol.records import ControlType, Record, build_batch, build_end_marker, records_of
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.disk import Disk
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.workers import InlineWorkers
from tidelog.storage.loader import Checkpointed, create_log, load_log
from tidelog.storage.log import AppendResult, Log
from tidelog.storage.log_directory import Identity, LogDirectory, StorageContext
from tidelog.storage.log_manager import LogManager
from tidelog.storage.validation import AppendOrigin
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition

ORDERS = TopicPartition("orders", 0)
NOW_MS = 1_700_000_000_000
EPOCH = 5


def context_on(disk: Disk, clock: ManualClock | None = None) -> StorageContext:
    return StorageContext(disk, clock or ManualClock(NOW_MS), InlineWorkers(), SeededRandomness(1))


def directory_on(disk: Disk, path: str = "/data", clock: ManualClock | None = None) -> LogDirectory:
    disk.make_directory(path)
    return LogDirectory(path, context_on(disk, clock))


def new_log(
    disk: Disk | None = None,
    *,
    clock: ManualClock | None = None,
    directory: LogDirectory | None = None,
    settings: TopicSettings | None = None,
) -> Log:
    directory = directory or directory_on(disk or MemoryDisk(), clock=clock)
    return create_log(directory, directory.file(str(ORDERS)), ORDERS, None, settings or TopicSettings())


def loaded(
    log: Log,
    *,
    is_clean: bool = False,
    recovery_point: int | None = None,
    high_watermark: int | None = None,
    log_start_offset: int | None = None,
) -> Log:
    """The log as the next start finds it."""
    directory = LogDirectory(log.directory.path, log.directory.context)
    checkpointed = Checkpointed(is_clean, recovery_point, high_watermark, log_start_offset)
    return load_log(directory, log.path, log.topic_partition, log.settings, checkpointed)


async def manager_on(
    disk: Disk,
    *paths: str,
    clock: ManualClock | None = None,
    topic_settings: Callable[[str], TopicSettings] = lambda topic: TopicSettings(),
    cluster_id: str | None = "cluster",
    broker_id: int = 1,
) -> LogManager:
    return await LogManager.open(
        BrokerSettings(log_dirs=paths or ("/data",)),
        topic_settings,
        disk,
        clock or ManualClock(NOW_MS),
        InlineWorkers(),
        Identity(cluster_id, broker_id),
        randomness=SeededRandomness(1),
    )


def batch_of(
    *values: bytes,
    timestamp: int = NOW_MS,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> memoryview:
    records = [Record(base_offset + delta, timestamp, b"key", value) for delta, value in enumerate(values)]
    return memoryview(
        build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
            leader_epoch=leader_epoch,
        )
    )


def append(log: Log, *values: bytes, leader_epoch: int | None = None, timestamp: int = NOW_MS) -> AppendResult:
    """In the leader epoch of the moment, if none is named: epochs do not go back (R3)."""
    return log.append_as_leader(batch_of(*values, timestamp=timestamp), current_epoch(log, leader_epoch))


def current_epoch(log: Log, leader_epoch: int | None = None) -> int:
    return max(EPOCH, log.leader_epochs.latest_epoch) if leader_epoch is None else leader_epoch


def append_many(log: Log, count: int, *, value_bytes: int = 50, step_ms: int = 1) -> None:
    """`count` batches of one record, numbered by their value."""
    for _ in range(count):
        number = log.log_end_offset
        append(log, b"%d" % number + b"." * value_bytes, timestamp=NOW_MS + number * step_ms)


def end_transaction(
    log: Log, producer_id: int, control_type: ControlType, *, producer_epoch: int = 0, coordinator_epoch: int = 0
) -> AppendResult:
    marker = build_end_marker(
        control_type,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=NOW_MS,
    )
    return log.append_as_leader(memoryview(marker), current_epoch(log), AppendOrigin.COORDINATOR)


def records_between(log: Log, start: int, end: int) -> list[Record]:
    """All records in [start, end), read as a consumer reads: from batch to batch."""
    records: list[Record] = []
    while start < end:
        read = log.read(start, 1_000_000, end)
        if read.slice is None:
            break
        found = [record for _, batch in split_batches(read.slice.read()) for record in records_of(batch)]
        records += [record for record in found if start <= record.offset]
        start = found[-1].offset + 1
    return records


def all_records(log: Log) -> list[Record]:
    return records_between(log, log.log_start_offset, log.log_end_offset)


def offsets_of(records: Sequence[Record]) -> list[int]:
    return [record.offset for record in records]
