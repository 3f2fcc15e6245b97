"""Checkpoint files: offsets of all partitions of a log dir, and the leader epochs of one partition (R2)."""

from collections.abc import Iterable, Mapping

from tidelog.runtime.disk import Disk
from tidelog.storage.leader_epochs import EpochEntry
from tidelog.types import TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
SEGMENT_SIZES = "segment-size-checkpoint"
"""Not in Kafka: size of the last segment of each partition at a clean shutdown, so that a truncated file is noticed."""

_VERSION = "0"


class CorruptCheckpoint(Exception):
    """A checkpoint file is malformed."""


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Empty if there is no file. Raises CorruptCheckpoint if it is malformed."""
    offsets = {}
    for topic, partition, offset in _read_lines(disk, path, fields=3):
        offsets[TopicPartition(topic, _number(path, partition))] = _number(path, offset)
    return offsets


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    disk.write_file_atomically(path, _text(len(offsets), lines))


def read_epochs(disk: Disk, path: str) -> list[EpochEntry]:
    lines = _read_lines(disk, path, fields=2)
    return [EpochEntry(_number(path, epoch), _number(path, start_offset)) for epoch, start_offset in lines]


def write_epochs(disk: Disk, path: str, starts: Iterable[EpochEntry], *, is_synced: bool = True) -> None:
    """Without a sync the file survives a crash of the process, but not of the machine."""
    lines = [f"{epoch} {start_offset}" for epoch, start_offset in starts]
    text = _text(len(lines), lines)
    if is_synced:
        disk.write_file_atomically(path, text)
        return
    file = disk.open(f"{path}.tmp", "create")
    try:
        file.append(text)
    finally:
        file.close()
    disk.rename(f"{path}.tmp", path)


def _text(count: int, lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in (_VERSION, str(count), *lines)).encode()


def _read_lines(disk: Disk, path: str, fields: int) -> list[list[str]]:
    try:
        text = disk.read_file(path).decode()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(f"{path}: not text: {error}") from error
    lines = text.splitlines()
    if not text.endswith("\n"):
        raise CorruptCheckpoint(f"{path}: its last line is cut off")
    if len(lines) < 2 or lines[0] != _VERSION:
        raise CorruptCheckpoint(f"{path}: does not start with version {_VERSION} and a count")
    rows = [line.split() for line in lines[2:]]
    if len(rows) != _number(path, lines[1]):
        raise CorruptCheckpoint(f"{path}: {len(rows)} lines, and its count says {lines[1]}")
    if any(len(row) != fields for row in rows):
        raise CorruptCheckpoint(f"{path}: a line has not {fields} fields")
    return rows


def _number(path: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CorruptCheckpoint(f"{path}: {text!r} is not a number") from None
