"""Readers of the files of a log directory, by the formats of `tidelog.storage`: entries as they are, sound or not."""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tidelog.protocol.record_batch import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, BatchHeader, read_header
from tidelog.runtime.disk import SystemDisk
from tidelog.storage.checkpoints import LEADER_EPOCHS, read_epochs, read_offsets
from tidelog.storage.indexes import OFFSET_ENTRY, TIME_ENTRY
from tidelog.storage.producer_snapshots import SNAPSHOT_SUFFIX
from tidelog.storage.producer_state import ProducerStateManager
from tidelog.storage.segment import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from tidelog.storage.transaction_index import ENTRY as TRANSACTION_ENTRY
from tidelog.storage.transaction_index import AbortedTransaction

SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
CHECKPOINT_SUFFIX = "-checkpoint"
PROPERTY_FILES = ("meta.properties", "partition.metadata")
MAX_BATCH_BYTES = 2**31 - 1


class StoredBatch(NamedTuple):
    position: int
    header: BatchHeader
    data: bytes
    """The whole batch, or what is left of it at the end of the file."""

    @property
    def is_whole(self) -> bool:
        return len(self.data) == self.header.size_bytes


class Rest(NamedTuple):
    """Bytes at the end of a segment, or after a header that makes no sense, that are no batch."""

    position: int
    size_bytes: int


class IndexEntry(NamedTuple):
    offset: int
    value: int
    """Position of the batch, or its timestamp."""


def base_offset_of(path: Path) -> int | None:
    """None if the name is not that of a segment."""
    return int(path.stem) if path.stem.isascii() and path.stem.isdecimal() else None


def is_segment(path: Path) -> bool:
    return path.suffix == LOG_SUFFIX and base_offset_of(path) is not None


def batches_in(path: Path) -> Iterator[StoredBatch | Rest]:
    """Ends with Rest if the file does not end with a whole batch. What is written meanwhile is left out."""
    size_bytes = path.stat().st_size
    position = 0
    with path.open("rb") as file:
        while size_bytes - position >= HEADER_BYTES:
            file.seek(position)
            header = read_header(file.read(HEADER_BYTES))
            if header.length < HEADER_BYTES - LENGTH_OVERHEAD_BYTES:
                break
            file.seek(position)
            data = file.read(min(header.size_bytes, size_bytes - position))
            if len(data) < header.size_bytes:
                break
            yield StoredBatch(position, header, data)
            position += header.size_bytes
    if position < size_bytes:
        yield Rest(position, size_bytes - position)


def offset_index(path: Path) -> list[IndexEntry]:
    """Offset and position."""
    base = base_offset_of(path) or 0
    return [IndexEntry(base + offset, place) for offset, place in _entries(path, OFFSET_ENTRY)]


def time_index(path: Path) -> list[IndexEntry]:
    """Offset and timestamp."""
    base = base_offset_of(path) or 0
    return [IndexEntry(base + offset, timestamp) for timestamp, offset in _entries(path, TIME_ENTRY)]


def _entries(path: Path, entry: struct.Struct) -> list[tuple[int, int]]:
    """Without the zeros with which Apache Kafka fills the indexes of an active segment."""
    data = path.read_bytes()
    found = [*entry.iter_unpack(data[: len(data) - len(data) % entry.size])]
    while found and found[-1] == (0, 0):
        found.pop()
    return found


def partial_bytes(path: Path) -> int:
    """Bytes after the last whole entry of an index."""
    sizes = {
        OFFSET_INDEX_SUFFIX: OFFSET_ENTRY.size,
        TIME_INDEX_SUFFIX: TIME_ENTRY.size,
        TRANSACTION_INDEX_SUFFIX: TRANSACTION_ENTRY.size,
    }
    return path.stat().st_size % sizes[path.suffix]


def transaction_index(path: Path) -> list[AbortedTransaction]:
    data = path.read_bytes()
    whole = len(data) - len(data) % TRANSACTION_ENTRY.size
    return [AbortedTransaction(*entry[1:]) for entry in TRANSACTION_ENTRY.iter_unpack(data[:whole])]


def producers_in(path: Path) -> ProducerStateManager:
    """Raises CorruptSnapshot."""
    producers = ProducerStateManager()
    producers.restore(path.read_bytes(), base_offset_of(path) or 0)
    return producers


def checkpoint_rows(path: Path) -> list[Mapping[str, object]]:
    """Raises CorruptCheckpoint."""
    if path.name == LEADER_EPOCHS:
        return [entry._asdict() for entry in read_epochs(SystemDisk(), str(path))]
    offsets = read_offsets(SystemDisk(), str(path))
    return [{"topic": key.topic, "partition": key.partition, "offset": at} for key, at in sorted(offsets.items())]
