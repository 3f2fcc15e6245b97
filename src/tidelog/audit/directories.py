"""Discovery of log directories: replicas, segment files, checkpoints, and whether a broker is running."""

import fcntl
import os
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from tidelog.audit.finding import Finding, Kind, finding_of
from tidelog.audit.replica_facts import LogDir, Replica, SegmentFile
from tidelog.config.nearest import did_you_mean
from tidelog.runtime.disk import DirectoryEntry, SystemDisk
from tidelog.storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    read_current_epochs,
    read_offsets,
)
from tidelog.storage.log_directory import CLEAN_SHUTDOWN_MARKER, LOCK_FILE, META_PROPERTIES
from tidelog.storage.partition_metadata import PARTITION_METADATA, read_topic_id
from tidelog.storage.partition_names import CLUSTER_METADATA_NAME, parse_partition_name
from tidelog.storage.segment import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from tidelog.types import BrokerId, TopicPartition

_SEGMENT_NAME = re.compile(r"(\d{20})(\.log|\.index|\.timeindex)(\.\w+)?")
_BROKER_NAME = re.compile(r"broker-(\d+)")
_LOCK_REQUEST = struct.Struct("hhqqi")
"""`struct flock`: type, whence, start, length, process id."""


class CannotAudit(Exception):
    """The audit cannot run as asked; the message says why."""


@dataclass
class Survey:
    """Log directories before any segment is read."""

    log_dirs: list[LogDir] = field(default_factory=list)
    replicas: list[Replica] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def topics(self) -> set[str]:
        """Topics that have a replica, or should have one."""
        partitions = [replica.topic_partition for replica in self.replicas]
        partitions += [finding.topic_partition for finding in self.findings if finding.topic_partition is not None]
        return {partition.topic for partition in partitions}


def find_log_dirs(paths: Sequence[str]) -> list[str]:
    """Log directories at the given paths: each path is one itself, or holds those of several brokers."""
    found: dict[str, None] = {}
    for path in paths:
        for log_dir in _log_dirs_at(os.path.abspath(os.path.expanduser(path)), path):
            found[os.path.realpath(log_dir)] = None
    return list(found)


def _log_dirs_at(path: str, given: str) -> list[str]:
    try:
        children = sorted(entry.path for entry in os.scandir(path) if entry.is_dir())
    except FileNotFoundError:
        raise CannotAudit(f"{given} does not exist; name the directory of `tidelog up`, or log directories") from None
    except NotADirectoryError:
        raise CannotAudit(f"{given} is a file; name a directory") from None
    except OSError as error:
        raise CannotAudit(f"cannot read {given}: {error.strerror}") from error
    if _is_log_dir(path):
        return [path]
    inside = [child for child in children if _is_log_dir(child)]
    if not inside:
        raise CannotAudit(f"{given} holds no log directory: none has {META_PROPERTIES}, checkpoints or partitions")
    return inside


def _is_log_dir(path: str) -> bool:
    if any(os.path.exists(f"{path}/{name}") for name in (META_PROPERTIES, HIGH_WATERMARKS)):
        return True
    try:
        children = [entry for entry in os.scandir(path) if entry.is_dir() and parse_partition_name(entry.name)]
        return any(name.endswith(LOG_SUFFIX) for child in children for name in os.listdir(child.path))
    except OSError:
        return False


def survey(paths: Iterable[str], wanted: Callable[[TopicPartition], bool]) -> Survey:
    found = Survey()
    for path in paths:
        try:
            _survey_log_dir(found, path, wanted)
        except OSError as error:
            raise CannotAudit(f"cannot read {path}: {error.strerror}") from error
    _find_missing_replicas(found, wanted)
    return found


def reject_unknown_topics(patterns: Sequence[str], found: Survey, log_dirs: Sequence[str]) -> None:
    """Raises CannotAudit if a requested topic does not exist: an audit that read nothing must not report success."""
    for pattern in patterns:
        if not any(fnmatchcase(topic, pattern) for topic in found.topics()):
            hint = did_you_mean(pattern, survey(log_dirs, topic_filter(())).topics(), quote="'")
            raise CannotAudit(f"--topic {pattern}: there is no such topic{hint}")


def topic_filter(patterns: Sequence[str]) -> Callable[[TopicPartition], bool]:
    """Filter by shell patterns; without patterns, every topic passes."""
    if not patterns:
        return lambda _: True
    return lambda topic_partition: any(fnmatchcase(topic_partition.topic, pattern) for pattern in patterns)


def _survey_log_dir(found: Survey, path: str, wanted: Callable[[TopicPartition], bool]) -> None:
    log_dir = LogDir(path, _broker_of(path), _is_running(path), os.path.exists(f"{path}/{CLEAN_SHUTDOWN_MARKER}"))
    found.log_dirs.append(log_dir)
    # Read before the files are listed: all records below these high watermarks must then be in the files.
    high_watermarks = _offsets(found, log_dir, HIGH_WATERMARKS)
    recovery_points = _offsets(found, log_dir, RECOVERY_POINTS) or {}
    log_starts = _offsets(found, log_dir, LOG_START_OFFSETS) or {}
    for entry in SystemDisk().list_directory(path):
        topic_partition = parse_partition_name(entry.name) if entry.is_directory else None
        if topic_partition is None or entry.name == CLUSTER_METADATA_NAME or not wanted(topic_partition):
            continue
        high_watermark = None if high_watermarks is None else high_watermarks.get(topic_partition, 0)
        replica = Replica(
            log_dir,
            topic_partition,
            f"{path}/{entry.name}",
            high_watermark=high_watermark,
            recovery_point=recovery_points.get(topic_partition, 0),
            checkpointed_start=log_starts.get(topic_partition, 0),
        )
        listed = _list_replica(replica, found)
        if listed is not None:
            found.replicas.append(listed)
    cleaned = _offsets(found, log_dir, CLEANER_OFFSETS) or {}
    found.replicas = [_with_cleaned_end(replica, log_dir, cleaned) for replica in found.replicas]


def _with_cleaned_end(replica: Replica, log_dir: LogDir, cleaned: dict[TopicPartition, int]) -> Replica:
    if replica.log_dir is not log_dir or replica.topic_partition not in cleaned:
        return replica
    return replace(replica, cleaned_end=cleaned[replica.topic_partition])


def reread_checkpoints(replicas: Sequence[Replica], found: Survey) -> list[Replica]:
    """Read leader epochs and compaction points again, after the segments: they now cover all records that were read."""
    cleaned = {path: _offsets(Survey(), LogDir(path, None), CLEANER_OFFSETS) or {} for path in _paths(replicas)}
    reread = []
    for replica in replicas:
        epochs = replica.epochs
        try:
            epochs = tuple(read_current_epochs(SystemDisk(), replica.path))
        except (CorruptCheckpoint, OSError) as error:
            found.findings.append(_damaged(replica.log_dir, f"{replica.path}/{LEADER_EPOCHS}", error, replica))
        end = max(replica.cleaned_end, cleaned[replica.log_dir.path].get(replica.topic_partition, 0))
        reread.append(replace(replica, epochs=epochs, cleaned_end=end))
    return reread


def _paths(replicas: Sequence[Replica]) -> set[str]:
    return {replica.log_dir.path for replica in replicas}


def _list_replica(replica: Replica, found: Survey) -> Replica | None:
    """The replica with its files and topic id; None if it was deleted meanwhile."""
    disk = SystemDisk()
    try:
        entries = disk.list_directory(replica.path)
        has_id = any(entry.name == PARTITION_METADATA for entry in entries)
        topic_id = read_topic_id(disk, replica.path) if has_id else None
    except FileNotFoundError:
        return None
    if has_id and topic_id is None:
        found.findings.append(_damaged_id(replica))
    files = sorted(_segment_files(entries), key=lambda file: file.base_offset)
    with_log = {
        int(match[1]) for entry in entries if (match := _SEGMENT_NAME.fullmatch(entry.name)) and match[2] == LOG_SUFFIX
    }
    with_index = {
        int(match[1])
        for entry in entries
        if (match := _SEGMENT_NAME.fullmatch(entry.name))
        and match[2] in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        and match[3] is None
    }
    orphaned = tuple(sorted(with_index - with_log))
    return replace(replica, files=tuple(files), orphaned_offsets=orphaned, topic_id=topic_id)


def _segment_files(entries: Iterable[DirectoryEntry]) -> Iterable[SegmentFile]:
    for entry in entries:
        match = _SEGMENT_NAME.fullmatch(entry.name)
        if match and match[2] == LOG_SUFFIX and match[3] is None:
            yield SegmentFile(int(match[1]), entry.size)


def _offsets(found: Survey, log_dir: LogDir, name: str) -> dict[TopicPartition, int] | None:
    """Offsets of a checkpoint file; None if it is missing or damaged. Kafka creates empty ones and fills them later."""
    path = f"{log_dir.path}/{name}"
    try:
        if not os.path.exists(path):
            return None
        if not os.path.getsize(path):
            return {}
        return read_offsets(SystemDisk(), path)
    except (CorruptCheckpoint, OSError) as error:
        found.findings.append(_damaged(log_dir, path, error, None))
        return None


def _damaged(log_dir: LogDir, file: str, error: Exception, replica: Replica | None) -> Finding:
    topic_partition = replica.topic_partition if replica else None
    return Finding(Kind.CHECKPOINT, str(error), log_dir.path, log_dir.broker, topic_partition, file)


def _damaged_id(replica: Replica) -> Finding:
    """A partition.metadata without a topic id. No fault after a crash: the broker may just have created the file."""
    is_fault = replica.log_dir.is_clean or replica.log_dir.is_running
    sentence = "the file has no topic id, so this may be a replica of another topic with that name"
    kind = Kind.CHECKPOINT if is_fault else Kind.NOTE
    return finding_of(replica, kind, sentence, file=f"{replica.path}/{PARTITION_METADATA}")


def _find_missing_replicas(found: Survey, wanted: Callable[[TopicPartition], bool]) -> None:
    """Report partitions of the high watermark checkpoint that are in no log directory of the broker."""
    for log_dir in found.log_dirs:
        here = {replica.topic_partition for replica in found.replicas if _is_same_broker(replica.log_dir, log_dir)}
        listed = _offsets(Survey(), log_dir, HIGH_WATERMARKS) or {}
        for topic_partition, high_watermark in listed.items():
            if wanted(topic_partition) and topic_partition not in here and not log_dir.is_running:
                # A broker that crashed may have deleted the topic just before.
                kind = Kind.MISSING_REPLICA if log_dir.is_clean else Kind.NOTE
                sentence = f"its directory is missing; the checkpoint has its high watermark {high_watermark}"
                path = f"{log_dir.path}/{topic_partition}"
                found.findings.append(Finding(kind, sentence, log_dir.path, log_dir.broker, topic_partition, path))


def _is_same_broker(one: LogDir, two: LogDir) -> bool:
    return one.path == two.path or (one.broker is not None and one.broker == two.broker)


def _broker_of(path: str) -> BrokerId | None:
    """Broker id from meta.properties, or from the directory name that `tidelog up` uses."""
    try:
        lines = SystemDisk().read_file(f"{path}/{META_PROPERTIES}").decode("latin-1").splitlines()
    except OSError:
        lines = []
    properties = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    named = _BROKER_NAME.fullmatch(os.path.basename(path))
    text = properties.get("broker.id") or properties.get("node.id") or (named[1] if named else "")
    return int(text) if text.strip().isdecimal() else None


def _is_running(path: str) -> bool:
    """True if a process holds the lock of the directory; does not take it, so as not to disturb a starting broker."""
    try:
        with open(f"{path}/{LOCK_FILE}", "rb") as file:
            request = _LOCK_REQUEST.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            response = _LOCK_REQUEST.unpack(fcntl.fcntl(file, fcntl.F_GETLK, request))
    except OSError:
        return False
    return bool(response[0] != fcntl.F_UNLCK)
