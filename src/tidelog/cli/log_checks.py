"""Checks of the files of one partition: batches, indexes, leader epochs, snapshots, checkpoints, and how they fit."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tidelog.cli.log_reading import (
    CHECKPOINT_SUFFIX,
    Rest,
    StoredBatch,
    base_offset_of,
    batches_in,
    checkpoint_rows,
    is_segment,
    offset_index,
    partial_bytes,
    producers_in,
    time_index,
    transaction_index,
)
from tidelog.errors import CorruptMessage
from tidelog.protocol.record_batch import MAGIC, BatchHeader, crc_matches
from tidelog.protocol.records import ControlType, read_end_marker, slices_of
from tidelog.runtime.disk import SystemDisk
from tidelog.storage.checkpoints import LEADER_EPOCHS, CorruptCheckpoint, read_current_epochs
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.producer_snapshots import SNAPSHOT_SUFFIX
from tidelog.storage.producer_state import CorruptSnapshot
from tidelog.storage.segment import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from tidelog.types import NO_LEADER_EPOCH


class Damage(NamedTuple):
    file: str
    position: int | None
    """In bytes, or None."""
    sentence: str


class PartitionCheck(NamedTuple):
    directory: str
    segments: int
    batches: int
    records: int
    size_bytes: int
    first_offset: int | None
    end_offset: int | None
    damages: list[Damage]


class _SegmentContents(NamedTuple):
    """What the indexes of a segment are compared with."""

    starts: dict[int, BatchHeader]
    """By position."""
    aborts: set[tuple[int, int]]
    """Producer id and offset of each abort marker."""
    end_offset: int
    is_growing: bool
    """A broker has appended since the segment was read: its indexes may be ahead."""


def check_partition(directory: Path) -> PartitionCheck:
    damages: list[Damage] = []
    epochs = _leader_epochs(directory, damages)
    segments = sorted(filter(is_segment, directory.glob(f"*{LOG_SUFFIX}")))
    if not segments:
        damages.append(Damage(str(directory), None, "the segments are missing: no .log file"))
    batches = records = size_bytes = 0
    first_offset: int | None = None
    end_offset: int | None = None
    for path in segments:
        scan = _SegmentScan(path, epochs, end_offset)
        contents = scan.run()
        damages += [*scan.damages, *_index_damages(path, contents)]
        batches, records = batches + len(contents.starts), records + scan.records
        size_bytes += path.stat().st_size
        end_offset = scan.end_offset
        if first_offset is None:
            first_offset = base_offset_of(path)
    damages += _small_file_damages(directory)
    return PartitionCheck(
        str(directory), len(segments), batches, records, size_bytes, first_offset, end_offset, damages
    )


def _leader_epochs(directory: Path, damages: list[Damage]) -> LeaderEpochs:
    path = directory / LEADER_EPOCHS
    try:
        return LeaderEpochs(read_current_epochs(SystemDisk(), str(directory)))
    except CorruptCheckpoint as error:
        damages.append(Damage(str(path), None, f"the checkpoint is damaged: {error}"))
        return LeaderEpochs()


class _SegmentScan:
    """Reads one segment from its start to its end."""

    def __init__(self, path: Path, epochs: LeaderEpochs, previous_end: int | None) -> None:
        self._path = path
        self._epochs = epochs
        base = base_offset_of(path)
        assert base is not None
        self.end_offset = base
        self._last_epoch = NO_LEADER_EPOCH
        self.records = 0
        self.damages: list[Damage] = []
        if previous_end is not None and base < previous_end:
            self._found(0, f"the segment begins at offset {base}, but the one before it ends at {previous_end}")

    def _found(self, position: int | None, sentence: str) -> None:
        self.damages.append(Damage(str(self._path), position, sentence))

    def run(self) -> _SegmentContents:
        contents = _SegmentContents({}, set(), self.end_offset, is_growing=False)
        size_bytes = self._path.stat().st_size
        for each in batches_in(self._path):
            if isinstance(each, Rest):
                self._found(each.position, f"the last {each.size_bytes:,} bytes are not a whole batch")
                break
            self._check(each)
            contents.starts[each.position] = each.header
            if each.header.is_control and each.header.producer_id >= 0:
                self._note_marker(each, contents)
            self.end_offset = max(self.end_offset, each.header.end_offset)
        is_growing = self._path.stat().st_size > size_bytes
        return contents._replace(end_offset=self.end_offset, is_growing=is_growing)

    def _check(self, batch: StoredBatch) -> None:
        header = batch.header
        if header.magic != MAGIC:
            self._found(batch.position, f"the batch has format version {header.magic}, not {MAGIC}")
            return
        if header.base_offset < self.end_offset or header.last_offset_delta < 0:
            self._found(
                batch.position,
                f"the batch has offsets {header.base_offset} to {header.last_offset}; expected at least"
                f" {self.end_offset}",
            )
        if header.leader_epoch < self._last_epoch:
            self._found(
                batch.position, f"leader epoch {header.leader_epoch} follows {self._last_epoch}: epochs never decrease"
            )
        self._last_epoch = max(self._last_epoch, header.leader_epoch)
        expected = self._epochs.epoch_at(header.base_offset)
        if expected not in (NO_LEADER_EPOCH, header.leader_epoch):
            self._found(batch.position, f"leader epoch {header.leader_epoch}, where {LEADER_EPOCHS} has {expected}")
        self._check_contents(batch)

    def _check_contents(self, batch: StoredBatch) -> None:
        if not crc_matches(batch.data, batch.header):
            self._found(batch.position, f"the CRC does not match: offsets {_offsets(batch.header)} are damaged")
            return
        try:
            self.records += sum(map(len, slices_of(batch.data)))
        except CorruptMessage as error:
            self._found(batch.position, f"the records cannot be decoded: {error.message}")

    def _note_marker(self, batch: StoredBatch, contents: _SegmentContents) -> None:
        try:
            marker = read_end_marker(batch.data)
        except CorruptMessage:
            return  # already found
        if marker is not None and marker.control_type is ControlType.ABORT:
            contents.aborts.add((batch.header.producer_id, batch.header.base_offset))


def _offsets(header: BatchHeader) -> str:
    return f"{header.base_offset} to {header.last_offset}"


def _index_damages(segment: Path, contents: _SegmentContents) -> Iterator[Damage]:
    checks: dict[str, Callable[[Path, _SegmentContents], Iterator[str]]] = {
        OFFSET_INDEX_SUFFIX: _offset_index_mistakes,
        TIME_INDEX_SUFFIX: _time_index_mistakes,
        TRANSACTION_INDEX_SUFFIX: _transaction_index_mistakes,
    }
    for suffix, check in checks.items():
        path = segment.with_suffix(suffix)
        if not path.exists():
            continue
        left = partial_bytes(path)
        sentences = [f"the last {left} bytes are not a whole entry"] if left else []
        for sentence in (*sentences, *check(path, contents)):
            yield Damage(str(path), None, sentence)


def _offset_index_mistakes(path: Path, contents: _SegmentContents) -> Iterator[str]:
    last = -1
    for entry in offset_index(path):
        if contents.is_growing and entry.offset >= contents.end_offset:
            return
        header = contents.starts.get(entry.value)
        if entry.offset <= last:
            yield f"offset {entry.offset} follows {last}: entries must increase"
        if header is None:
            yield f"offset {entry.offset} points to byte {entry.value}, where no batch begins"
        elif not header.base_offset <= entry.offset <= header.last_offset:
            yield f"offset {entry.offset} points to a batch with offsets {_offsets(header)}"
        last = max(last, entry.offset)


def _time_index_mistakes(path: Path, contents: _SegmentContents) -> Iterator[str]:
    last_timestamp, last_offset = -(2**63), -1
    for entry in time_index(path):
        if entry.value < last_timestamp or entry.offset < last_offset:
            yield f"offset {entry.offset}, time {entry.value} follows offset {last_offset}, time {last_timestamp}"
        if entry.offset > contents.end_offset and not contents.is_growing:
            yield f"offset {entry.offset} is beyond the end of the segment, {contents.end_offset}"
        last_timestamp, last_offset = entry.value, entry.offset


def _transaction_index_mistakes(path: Path, contents: _SegmentContents) -> Iterator[str]:
    for entry in transaction_index(path):
        if contents.is_growing and entry.last_offset >= contents.end_offset:
            return
        if (entry.producer_id, entry.last_offset) not in contents.aborts:
            yield f"there is no abort marker of producer {entry.producer_id} at offset {entry.last_offset}"


def _small_file_damages(directory: Path) -> Iterator[Damage]:
    for path in sorted(directory.iterdir()):
        try:
            if path.suffix == SNAPSHOT_SUFFIX:
                producers_in(path)
            elif path.name.endswith(CHECKPOINT_SUFFIX) and path.name != LEADER_EPOCHS:
                checkpoint_rows(path)
        except CorruptSnapshot as error:
            yield Damage(str(path), None, f"the producer snapshot is damaged: {error}")
        except CorruptCheckpoint as error:
            yield Damage(str(path), None, f"the checkpoint is damaged: {error}")
