"""Log directory, one of log.dirs: lock, meta.properties, clean-shutdown marker, checkpoints and failure (R5, R6)."""

import errno
import json
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, ParamSpec, Protocol

from tidelog.config.properties import parse_properties
from tidelog.errors import KafkaStorageError
from tidelog.runtime.clock import Clock
from tidelog.runtime.disk import DirectoryInUse, Disk, Lock
from tidelog.runtime.randomness import Randomness
from tidelog.runtime.workers import Workers
from tidelog.storage.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    SEGMENT_SIZES,
    write_offsets,
)
from tidelog.storage.disk_errors import ResourceShortage, is_transient
from tidelog.storage.segment_cache import SegmentCache
from tidelog.types import TopicPartition, uuid_text

logger = logging.getLogger(__name__)

P = ParamSpec("P")

LOCK_FILE = ".lock"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"

NO_BROKER_EPOCH = -1

SHORTAGE_LOG_INTERVAL_S = 10.0


class StorageSetupError(Exception):
    """A log dir cannot be used as it is. The message is for the operator who starts the broker."""


class LogDirectoryInUse(StorageSetupError):
    """Another process uses the log dir."""


class ForeignLogDirectory(StorageSetupError):
    """The log dir belongs to another cluster or another broker."""


class DuplicateLog(StorageSetupError):
    """Two log dirs hold the same partition."""


class CheckpointedLog(Protocol):
    """The part of a log that the checkpoints record."""

    log_start_offset: int
    high_watermark: int
    is_closed: bool
    cleaned_until: int | None
    topic_partition: TopicPartition

    @property
    def is_future(self) -> bool: ...

    @property
    def recovery_point(self) -> int: ...

    @property
    def first_base_offset(self) -> int: ...

    @property
    def base_offsets(self) -> list[int]: ...

    @property
    def active_size_bytes(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class StorageContext:
    """Seams and limits that all parts of the storage share."""

    disk: Disk
    clock: Clock
    workers: Workers
    randomness: Randomness
    cache: SegmentCache = field(default_factory=SegmentCache)

    def monotonic_ms(self) -> int:
        """For durations: the wall clock may be set, by hours and in both directions."""
        return int(self.clock.monotonic() * 1000)


class Checkpoint(NamedTuple):
    name: str
    number: int
    """Orders checkpoints by the time of their collection."""
    offsets: dict[TopicPartition, int]


class LogDirectory:
    """A directory of logs. The first I/O error takes it offline until the broker restarts."""

    __slots__ = (
        "_checkpoint_lock",
        "_collected",
        "_lock",
        "_made_after",
        "_shortage_logged_s",
        "_written",
        "cluster_id",
        "context",
        "directories_before",
        "directory_id",
        "error",
        "has_unsynced_renames",
        "is_online",
        "logs",
        "on_failure",
        "path",
        "previous_broker_epoch",
        "shortages",
        "was_clean",
    )

    def __init__(
        self, path: str, context: StorageContext, on_failure: Callable[["LogDirectory"], None] | None = None
    ) -> None:
        self.path = path
        self.context = context
        self.is_online = True
        self.error: OSError | None = None
        self.on_failure = on_failure
        self.cluster_id: str | None = None
        self.directory_id: str | None = None
        """directory.id of KIP-858, assigned once: an empty replacement disk gets another id (R42)."""
        self.logs: dict[TopicPartition, CheckpointedLog] = {}
        self.was_clean = False
        """Whether the last shutdown was clean."""
        self.previous_broker_epoch = NO_BROKER_EPOCH
        """Broker epoch of that shutdown, if the marker has it."""
        self.directories_before: frozenset[str] = frozenset()
        """Ids of all log dirs of the broker at that shutdown, if the marker has them."""
        self.has_unsynced_renames = False
        """The names of deleted logs may come back after a power cut."""
        self.shortages = 0
        """Number of shortages of descriptors or memory."""
        self._shortage_logged_s = -inf
        self._lock: Lock | None = None
        self._checkpoint_lock = threading.Lock()
        self._collected = 0
        self._written: dict[str, Checkpoint] = {}
        self._made_after: dict[TopicPartition, int] = {}
        """For each log that this process created: the last checkpoint collected before its creation."""

    def __repr__(self) -> str:
        return f"LogDirectory({self.path!r}, {'online' if self.is_online else 'offline'})"

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def fail(self, error: OSError) -> KafkaStorageError:
        """Take the directory offline, log it once, and return the error to raise. After a shortage it stays online."""
        if is_transient(error):
            return self._on_shortage(error)
        if self.is_online:
            self.is_online = False
            self.error = error
            logger.error("log dir is offline path=%s error=%s", self.path, error)
            if self.on_failure is not None:
                self.on_failure(self)
        return self.offline_error()

    def fail_while_opening(self, error: OSError) -> None:
        """Like `fail`, but raises StorageSetupError on a shortage: a broker must not start with a part of its logs."""
        if is_transient(error):
            raise StorageSetupError(shortage_at_start(self.path, error))
        self.fail(error)

    def _on_shortage(self, error: OSError) -> ResourceShortage:
        self.shortages += 1
        now_s = self.context.clock.monotonic()
        if now_s >= self._shortage_logged_s + SHORTAGE_LOG_INTERVAL_S:
            self._shortage_logged_s = now_s
            logger.warning(
                "short of descriptors or memory, retrying path=%s shortages=%d error=%s",
                self.path,
                self.shortages,
                error,
            )
        return ResourceShortage(f"the broker is short of descriptors or memory, and the disk is well: {error}")

    def guarded(self, step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run a step of the startup. A directory that fails goes offline; the others are used (R5)."""
        if self.is_online:
            try:
                step(*args, **kwargs)
            except OSError as error:
                self.fail_while_opening(error)

    def check_present(self) -> None:
        """Raises FileNotFoundError. A new log would otherwise replace a disk that is gone by a directory, unnoticed."""
        if not self.context.disk.exists(self.path):
            raise FileNotFoundError(errno.ENOENT, "the log dir is gone", self.path)

    def rename_log(self, path: str, name: str) -> str | None:
        """Rename the directory of a log. Returns its new path; None if this log dir is offline."""
        if not self.is_online:
            return None
        new_path = self.file(name)
        try:
            self.context.disk.rename(path, new_path)
        except OSError as error:
            raise self.fail(error) from error
        return new_path

    async def run(self, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Run blocking work in a worker. An I/O error takes the directory offline, unless it is transient. Whether the
        work succeeded."""
        if not self.is_online:
            return False
        try:
            await self.context.workers.run(work, *args, **kwargs)
        except OSError as error:
            self.fail(error)
            return False
        return True

    def offline_error(self) -> KafkaStorageError:
        return KafkaStorageError(f"log dir {self.path} is offline: {self.error}")

    def acquire(self) -> None:
        """Create the directory if it is missing, and lock it."""
        self.context.disk.make_directory(self.path)
        self._lock = _lock(self.context.disk, self.path)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # ---- meta.properties

    def check_identity(self, cluster_id: str | None, broker_id: int | None) -> None:
        """Raise ForeignLogDirectory for a directory of another cluster or broker. Changes nothing."""
        properties = self._read_properties()
        _check_properties(self.path, properties, Identity(cluster_id, broker_id))
        self.cluster_id = properties.get("cluster.id", cluster_id)
        self.directory_id = properties.get("directory.id")

    def write_identity(self, cluster_id: str | None, broker_id: int | None) -> None:
        """Complete meta.properties. Existing lines stay, including those of Apache Kafka."""
        known = self._read_properties()
        properties = dict(known) or {"version": "0"}
        if cluster_id is not None:
            properties.setdefault("cluster.id", cluster_id)
        if broker_id is not None:
            properties.setdefault("node.id" if properties.get("version") == "1" else "broker.id", str(broker_id))
        if "directory.id" not in properties:
            properties["directory.id"] = uuid_text(self.context.randomness.bytes(16))
        self.cluster_id = properties.get("cluster.id")
        self.directory_id = properties["directory.id"]
        if properties != known:
            text = "".join(f"{key}={value}\n" for key, value in properties.items())
            self.context.disk.write_file_atomically(self.file(META_PROPERTIES), text.encode())

    def _read_properties(self) -> dict[str, str]:
        return _read_properties(self.context.disk, self.path)

    # ---- clean shutdown

    def consume_clean_shutdown_marker(self) -> bool:
        """Whether the last shutdown was clean. Removes the marker, so that a crash from now on is unclean (R6)."""
        disk, path = self.context.disk, self.file(CLEAN_SHUTDOWN_MARKER)
        if not disk.exists(path):
            return False
        self.previous_broker_epoch, self.directories_before = read_marker(disk.read_file(path))
        disk.remove(path)
        disk.sync_directory(self.path)
        self.was_clean = True
        return True

    def write_clean_shutdown_marker(
        self, broker_epoch: int = NO_BROKER_EPOCH, directory_ids: Iterable[str] = ()
    ) -> None:
        """`directory_ids` of all log dirs of the broker: the shutdown is clean only if all of them return."""
        marker: dict[str, object] = {"version": 0, "brokerEpoch": broker_epoch}
        if found := sorted(directory_ids):
            marker["directoryIds"] = found  # Apache Kafka then treats the epoch as unknown and the shutdown as clean
        data = json.dumps(marker, separators=(",", ":")).encode()
        self.context.disk.write_file_atomically(self.file(CLEAN_SHUTDOWN_MARKER), data)

    # ---- checkpoints

    def collect_checkpoint(self, name: str) -> Checkpoint:
        """Current contents of the checkpoint of that name. On the event loop."""
        self._collected += 1
        offset_of, offsets = CHECKPOINTED_OFFSETS[name], {}
        for topic_partition, log in self.logs.items():
            offset = offset_of(log)
            if offset is not None:
                offsets[topic_partition] = offset
        return Checkpoint(name, self._collected, offsets)

    def is_written(self, checkpoint: Checkpoint) -> bool:
        written = self._written.get(checkpoint.name)
        return written is not None and written.offsets == checkpoint.offsets

    def write_checkpoint(self, name: str, number: int, offsets: dict[TopicPartition, int]) -> None:
        """Blocking. Does nothing if a newer checkpoint was written meanwhile by another worker."""
        with self._checkpoint_lock:
            written = self._written.get(name)
            if written is None or written.number < number:
                # Entries collected before a log was created belong to an earlier log with the same name.
                offsets = {each: offset for each, offset in offsets.items() if number > self._made_after.get(each, -1)}
                write_offsets(self.context.disk, self.file(name), offsets)
                self._written[name] = Checkpoint(name, number, offsets)

    def record_found_checkpoint(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        """Record a checkpoint that an earlier run left on disk."""
        self._written[name] = Checkpoint(name, self._collected, offsets)

    def forget_checkpoints(self, topic_partition: TopicPartition) -> None:
        """Before a log is created: remove the entries of earlier logs with the same name from the checkpoints.

        Waits for the disk on the event loop, but once for all deleted logs, because the write omits all of them.
        """
        self._made_after[topic_partition] = self._collected
        for name in [name for name, written in self._written.items() if topic_partition in written.offsets]:
            self.write_checkpoint(*self.collect_checkpoint(name))

    def checkpoint_truncation(
        self, topic_partition: TopicPartition, end_offset: int, *, recovery_point: int, log_start_offset: int | None
    ) -> None:
        """Write checkpoints for a log that is about to be truncated. Without a log start offset, its line is removed.

        Waits for the disk on the event loop: truncation is rare, and nothing may be appended before it is done.
        """
        log = self.logs.get(topic_partition)
        if log is None:
            return
        offsets = {RECOVERY_POINTS: recovery_point, LOG_START_OFFSETS: log_start_offset}
        if self._latest_high_watermark(log) > end_offset:
            # Else a crash before the next regular write would declare what is appended from now on committed (R4).
            offsets[HIGH_WATERMARKS] = end_offset
        for name, offset in offsets.items():
            checkpoint = self.collect_checkpoint(name)
            checkpoint.offsets.pop(topic_partition, None)
            if offset is not None:
                checkpoint.offsets[topic_partition] = offset
            self.write_checkpoint(*checkpoint)

    def _latest_high_watermark(self, log: CheckpointedLog) -> int:
        """The larger one of the log's and its checkpoint's. A checkpoint that is being written may have the log's."""
        written = self._written.get(HIGH_WATERMARKS)
        return max(log.high_watermark, written.offsets.get(log.topic_partition, 0) if written else 0)

    def lower_high_watermarks(
        self, logs: Iterable[CheckpointedLog], high_watermarks: dict[TopicPartition, int]
    ) -> None:
        """Write the high watermarks of loaded logs if one was lowered, because its log ends before its checkpoint (R4).

        Before anything is appended: after another crash the checkpoint would count for records that nobody committed.
        """
        if any(log.high_watermark < high_watermarks.get(log.topic_partition, 0) for log in logs):
            lowered = {log.topic_partition: log.high_watermark for log in logs}
            self._collected += 1
            self.write_checkpoint(HIGH_WATERMARKS, self._collected, {**high_watermarks, **lowered})

    @property
    def size_bytes(self) -> int:
        return sum(log.size_bytes for log in self.logs.values())

    def space(self) -> tuple[int, int]:
        """Total and usable bytes of the volume."""
        return self.context.disk.space(self.path)


class Identity(NamedTuple):
    """Cluster id and broker id of a log dir, as far as they are known."""

    cluster_id: str | None
    broker_id: int | None
    unread: tuple[str, ...] = ()
    """Log dirs that could not be read: they may have the ids that are unknown."""


def find_identity(disk: Disk, paths: Iterable[str], known: Identity) -> Identity:
    """The given identity, completed from the log dirs. Raises if one is in use or foreign. Changes nothing."""
    unread: list[str] = []
    for path in paths:
        try:
            _check_unused(disk, path)
            properties = _read_properties(disk, path)
        except OSError as error:
            if is_transient(error):
                raise StorageSetupError(shortage_at_start(path, error)) from error
            unread.append(path)
            continue
        _check_properties(path, properties, known)
        broker_id = properties.get("broker.id", properties.get("node.id", ""))
        known = Identity(
            properties.get("cluster.id", known.cluster_id),
            int(broker_id) if broker_id.isdecimal() else known.broker_id,
        )
    return known._replace(unread=tuple(unread))


def shortage_at_start(path: str, error: OSError) -> str:
    return f"cannot open log dir {path}: {error.strerror}; free some, or raise the limit (ulimit -n), and start again"


def _check_unused(disk: Disk, directory: str) -> None:
    if disk.exists(f"{directory}/{LOCK_FILE}"):
        _lock(disk, directory).release()


def _lock(disk: Disk, directory: str) -> Lock:
    try:
        return disk.lock(f"{directory}/{LOCK_FILE}")
    except DirectoryInUse:
        raise LogDirectoryInUse(f"log dir {directory} is in use by another process") from None


def _check_properties(path: str, properties: dict[str, str], known: Identity) -> None:
    for name, expected in (
        ("cluster.id", known.cluster_id),
        ("broker.id", known.broker_id),
        ("node.id", known.broker_id),
    ):
        found = properties.get(name)
        if expected is not None and found is not None and found != str(expected):
            raise ForeignLogDirectory(
                f"log dir {path} belongs to {name}={found} and this broker has {name}={expected} ({META_PROPERTIES})"
            )


def _read_properties(disk: Disk, directory: str) -> dict[str, str]:
    try:
        text = disk.read_file(f"{directory}/{META_PROPERTIES}").decode("latin-1")
    except FileNotFoundError:
        return {}
    return {entry.key: entry.value for entry in parse_properties(text)}


def read_marker(marker: bytes) -> tuple[int, frozenset[str]]:
    """Broker epoch and directory ids. Kafka before 3.7 wrote an empty marker; later versions write no directory ids."""
    try:
        content = json.loads(marker)
        epoch, directory_ids = content["brokerEpoch"], frozenset(content.get("directoryIds", ()))
    except (ValueError, LookupError, TypeError, AttributeError):
        return NO_BROKER_EPOCH, frozenset()
    return (epoch if isinstance(epoch, int) else NO_BROKER_EPOCH), directory_ids


def _log_start_offset(log: CheckpointedLog) -> int | None:
    """Only if it differs from the base offset of the first segment."""
    return log.log_start_offset if log.log_start_offset > log.first_base_offset else None


def _recovery_point(log: CheckpointedLog) -> int:
    return log.recovery_point


def _high_watermark(log: CheckpointedLog) -> int:
    return log.high_watermark


def _active_size_bytes(log: CheckpointedLog) -> int | None:
    """Only of a closed log: the next start reads the other logs."""
    return log.active_size_bytes if log.is_closed else None


CHECKPOINTED_OFFSETS: dict[str, Callable[[CheckpointedLog], int | None]] = {
    RECOVERY_POINTS: _recovery_point,
    HIGH_WATERMARKS: _high_watermark,
    LOG_START_OFFSETS: _log_start_offset,
    SEGMENT_SIZES: _active_size_bytes,
}
