"""Checkpoint files: offsets of all partitions of a log dir, and the leader epochs of one partition (R2)."""

import zlib
from collections.abc import Iterable, Mapping, Sequence

from tidelog.numerals import whole_number
from tidelog.runtime.disk import Disk
from tidelog.storage.leader_epochs import EpochEntry
from tidelog.types import TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
EPOCH_JOURNAL = "leader-epoch-journal"
"""Not in Kafka: leader epochs that began since LEADER_EPOCHS was synced. That file is never replaced without a sync."""
OFFSET_GAPS = "offset-gaps"
"""Not in Kafka: an empty file in the directory of a log in which offsets may be missing."""
MISSING_SEGMENTS = "missing-segments"
"""Not in Kafka: an empty file in the directory of a log that has lost segments."""
SEGMENT_LISTS = "segment-list-checkpoint"
"""Not in Kafka: base offsets of all segments of each partition at a clean shutdown."""
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


def write_segment_lists(
    disk: Disk, directory: str, broker_epoch: int, lists: Mapping[TopicPartition, Sequence[int]]
) -> None:
    lines = (
        " ".join(map(str, (topic, partition, broker_epoch, *base_offsets)))
        for (topic, partition), base_offsets in lists.items()
    )
    disk.write_file_atomically(f"{directory}/{SEGMENT_LISTS}", _text(len(lists), lines))


def read_segment_lists(disk: Disk, directory: str, broker_epoch: int) -> dict[TopicPartition, list[int]]:
    """Only those that were written in that broker epoch. Raises CorruptCheckpoint if the file is malformed."""
    path = f"{directory}/{SEGMENT_LISTS}"
    found = {}
    for row in _read_lines(disk, path, fields=None):
        if len(row) < 4:
            raise CorruptCheckpoint(f"{path}: a line has only {len(row)} fields")
        partition, epoch, *base_offsets = (_number(path, text) for text in row[1:])
        if epoch == broker_epoch:
            found[TopicPartition(row[0], partition)] = base_offsets
    return found


def read_epochs(disk: Disk, path: str) -> list[EpochEntry]:
    return _parsed_epochs(path, _read_lines(disk, path, fields=2))


def _parsed_epochs(path: str, rows: Iterable[Sequence[str]]) -> list[EpochEntry]:
    return [EpochEntry(_number(path, epoch), _number(path, start_offset)) for epoch, start_offset in rows]


def write_epochs(disk: Disk, path: str, starts: Iterable[EpochEntry]) -> None:
    disk.write_file_atomically(path, _epochs_text(starts))


def read_current_epochs(disk: Disk, directory: str) -> list[EpochEntry]:
    """Epochs of a log that may be in use: those of its journal, if there is one, else those of its checkpoint.

    The journal is read first: if a flush replaces both meanwhile, the checkpoint has the epochs of the journal, too.
    """
    path = f"{directory}/{EPOCH_JOURNAL}"
    journal = _read_journal(disk, path)
    synced = read_epochs(disk, f"{directory}/{LEADER_EPOCHS}")
    found = _journaled_epochs(path, journal, synced)
    return synced if found is None else found


def read_epoch_journal(disk: Disk, path: str, synced: Sequence[EpochEntry]) -> list[EpochEntry] | None:
    """All epochs of the log. None if the file is missing or damaged, or follows another checkpoint than `synced`."""
    return _journaled_epochs(path, _read_journal(disk, path), synced)


def _read_journal(disk: Disk, path: str) -> bytes:
    try:
        return disk.read_file(path)
    except FileNotFoundError:
        return b""


def _journaled_epochs(path: str, journal: bytes, synced: Sequence[EpochEntry]) -> list[EpochEntry] | None:
    checksum, _, text = journal.partition(b"\n")
    if checksum != _journal_checksum(synced, text):
        return None
    return _parsed_epochs(path, _parse_lines(path, text, fields=2))


def write_epoch_journal(disk: Disk, path: str, synced: Iterable[EpochEntry], starts: Iterable[EpochEntry]) -> None:
    """Without a sync: it survives a crash of the process, but not of the machine."""
    text = _epochs_text(starts)
    file = disk.open(f"{path}.tmp", "create")
    try:
        file.append(_journal_checksum(synced, text) + b"\n" + text)
    finally:
        file.close()
    disk.rename(f"{path}.tmp", path)


def _journal_checksum(synced: Iterable[EpochEntry], text: bytes) -> bytes:
    """Covers the checkpoint, too: a journal whose removal was undone does not follow a later checkpoint."""
    return b"%08x" % zlib.crc32(text, zlib.crc32(_epochs_text(synced)))


def _epochs_text(starts: Iterable[EpochEntry]) -> bytes:
    lines = [f"{epoch} {start_offset}" for epoch, start_offset in starts]
    return _text(len(lines), lines)


def _text(count: int, lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in (_VERSION, str(count), *lines)).encode()


def _read_lines(disk: Disk, path: str, fields: int | None) -> list[list[str]]:
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return []
    return _parse_lines(path, data, fields)


def _parse_lines(path: str, data: bytes, fields: int | None) -> list[list[str]]:
    try:
        text = data.decode()
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
    if fields is not None and any(len(row) != fields for row in rows):
        raise CorruptCheckpoint(f"{path}: a line has not {fields} fields")
    return rows


def _number(path: str, text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise CorruptCheckpoint(f"{path}: {text!r} is not a number")
    return number
