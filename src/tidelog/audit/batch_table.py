"""Table of valid batches of a segment: offsets, epochs, digests, sizes and timestamps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing

from tidelog.audit.batch_kernels import (
    ATTRIBUTES,
    BASE_OFFSET,
    CRC,
    EPOCH,
    LAST_DELTA,
    MAX_TIMESTAMP,
    POSITION,
    RECORDS,
    SIZE,
)
from tidelog.audit.replica_facts import (
    NO_TIME_MS,
    Blocks,
    CodecUse,
    Defect,
    DefectKind,
    EpochRun,
    Int64Array,
    OffsetRange,
    Timeline,
    UInt64Array,
    no_blocks,
)
from tidelog.protocol.record_batch import COMPRESSION_MASK, CONTROL_BIT
from tidelog.types import NO_LEADER_EPOCH

BoolArray = np.typing.NDArray[np.bool_]

BLOCK_OFFSETS = 65_536
MAX_EPOCHS = 10_000
MAX_DEFECTS = 100
"""Maximum number of defects reported for one segment."""

TIMELINE_BUCKETS = 32
BUCKET_MS = 1000
EARLIEST_MS, LATEST_MS = 946_684_800_000, 4_102_444_800_000
"""The years 2000 to 2100. Timestamps are what producers write: one absurd value must not stretch the timeline."""

_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def _mix(values: UInt64Array) -> UInt64Array:
    """SplitMix64: every bit of the input changes half of the output's bits."""
    values = values + _MIX[0]
    values = (values ^ (values >> np.uint64(30))) * _MIX[1]
    values = (values ^ (values >> np.uint64(27))) * _MIX[2]
    return values ^ (values >> np.uint64(31))


def digests_of(table: Int64Array) -> UInt64Array:
    """Digest of each batch. The digest of a block is the sum, so that it does not depend on segment boundaries."""
    digests = np.zeros(len(table), np.uint64)
    for column in (BASE_OFFSET, SIZE, EPOCH, CRC):
        digests = _mix(digests ^ table[:, column].astype(np.uint64))
    return digests


def block_starts(base_offsets: Int64Array, cuts: Int64Array) -> Int64Array:
    """The block of each batch. Blocks begin at multiples of BLOCK_OFFSETS and at the cuts."""
    aligned = base_offsets // BLOCK_OFFSETS * BLOCK_OFFSETS
    if not len(cuts):
        return aligned
    at = np.searchsorted(cuts, base_offsets, side="right") - 1
    return np.where(at >= 0, np.maximum(aligned, cuts[np.maximum(at, 0)]), aligned)


@dataclass
class RunningFacts:
    """Facts of one segment, collected while it is read."""

    base_offset: int
    cuts: Int64Array
    expected_offset: int | None = None
    """Expected start of the next batch; None before the first one and after damaged bytes."""
    first_offset: int | None = None
    end_offset: int = 0
    last_epoch: int = -1
    batch_count: int = 0
    record_count: int = 0
    epoch_runs: list[EpochRun] = field(default_factory=list)
    codecs: dict[int, CodecUse] = field(default_factory=dict)
    defects: list[Defect] = field(default_factory=list)
    blocks: list[Blocks] = field(default_factory=list)
    bytes_by_second: dict[int, int] = field(default_factory=dict)
    first_timestamp_ms: int = NO_TIME_MS
    last_timestamp_ms: int = NO_TIME_MS

    def __post_init__(self) -> None:
        self.end_offset = self.base_offset

    def take(self, table: Int64Array) -> Int64Array:
        """Add consecutive batches of the file. Returns those whose headers agree with their neighbours."""
        if not len(table):
            return table
        misplaced = self._misplaced(table)
        corrected = self._corrected(table, misplaced) if misplaced.any() else table
        ends = corrected[:, BASE_OFFSET] + corrected[:, LAST_DELTA] + 1
        self._check_offsets(corrected, ends)
        self._check_epochs(corrected)
        sound = table[~misplaced]
        if len(sound):
            self._count(sound)
            self._add_blocks(sound)
        self.end_offset = max(self.end_offset, int(ends[-1]))
        self.expected_offset = int(ends[-1])
        return sound

    def skip_defect(self) -> None:
        """Skip damaged bytes: the batch after them may have any base offset."""
        self.expected_offset = None

    def _expected(self, table: Int64Array) -> Int64Array:
        """Expected start of each batch, from the one before it."""
        ends = table[:, BASE_OFFSET] + table[:, LAST_DELTA] + 1
        first = int(table[0, BASE_OFFSET]) if self.expected_offset is None else self.expected_offset
        return _shifted(ends, first)

    def _misplaced(self, table: Int64Array) -> BoolArray:
        """Base offset and epoch are not covered by the CRC: one that both neighbours contradict is damaged."""
        is_misplaced = np.zeros(len(table), np.bool_)
        if len(table) < 2:
            return is_misplaced
        expected = self._expected(table)
        bases, epochs = table[:, BASE_OFFSET], table[:, EPOCH]
        is_first = not self.batch_count and not self.defects
        if is_first:
            # Without a batch before it, the file's name is what contradicts the first one.
            expected[0] = self.base_offset
        is_misplaced[:-1] = (bases[:-1] != expected[:-1]) & (bases[1:] == expected[:-1] + table[:-1, LAST_DELTA] + 1)
        before = _shifted(epochs, self.last_epoch)
        contradicted = (epochs[:-1] != before[:-1]) & (epochs[1:] == before[:-1])
        is_misplaced[:-1] |= contradicted & (before[:-1] != NO_LEADER_EPOCH)
        is_misplaced[:-1] |= epochs[:-1] < NO_LEADER_EPOCH
        is_misplaced[0] |= is_first and epochs[0] > epochs[1]
        return is_misplaced

    def _corrected(self, table: Int64Array, misplaced: BoolArray) -> Int64Array:
        """The table with offsets and epochs of misplaced batches corrected from their neighbours."""
        corrected = table.copy()
        for row in np.flatnonzero(misplaced):
            following = table[row + 1]
            start = int(following[BASE_OFFSET] - table[row, LAST_DELTA] - 1)
            corrected[row, BASE_OFFSET], corrected[row, EPOCH] = start, following[EPOCH]
            says = f"offset {table[row, BASE_OFFSET]} and leader epoch {table[row, EPOCH]}"
            due = f"offset {start} and leader epoch {following[EPOCH]}"
            detail = f"its header says {says}, but the batches around it leave room for {due} only"
            self.note(DefectKind.CORRUPT, table[row], OffsetRange(start, int(following[BASE_OFFSET])), detail)
        return corrected

    def _check_offsets(self, table: Int64Array, ends: Int64Array) -> None:
        bases, expected = table[:, BASE_OFFSET], self._expected(table)
        for row in np.flatnonzero(bases != expected):
            base, due = int(bases[row]), int(expected[row])
            if base > due:
                self.note(DefectKind.GAP, table[row], OffsetRange(due, base), "")
            else:
                detail = f"a batch begins with offset {base}, but the one before it ends with {due - 1}"
                self.note(DefectKind.OVERLAP, table[row], OffsetRange(base, int(ends[row])), detail)

    def _check_epochs(self, table: Int64Array) -> None:
        epochs = table[:, EPOCH]
        before = _shifted(epochs, self.last_epoch)
        for row in np.flatnonzero(epochs != before):
            base, epoch = int(table[row, BASE_OFFSET]), int(epochs[row])
            if epoch < before[row]:
                detail = f"leader epoch {epoch} comes after leader epoch {before[row]}"
                end = base + int(table[row, LAST_DELTA]) + 1
                self.note(DefectKind.EPOCH, table[row], OffsetRange(base, end), detail)
            if len(self.epoch_runs) < MAX_EPOCHS:
                self.epoch_runs.append(EpochRun(epoch, base, int(table[row, POSITION])))
        self.last_epoch = int(epochs[-1])

    def note(self, kind: DefectKind, row: Int64Array, offsets: OffsetRange, detail: str) -> None:
        if len(self.defects) < MAX_DEFECTS:
            self.defects.append(Defect(kind, int(row[POSITION]), int(row[SIZE]), *offsets, detail))

    def _count(self, sound: Int64Array) -> None:
        if self.first_offset is None:
            self.first_offset = int(sound[0, BASE_OFFSET])
        self.batch_count += len(sound)
        is_control = (sound[:, ATTRIBUTES] & CONTROL_BIT) != 0
        self.record_count += int(np.maximum(sound[~is_control, RECORDS], 0).sum())
        codecs = sound[:, ATTRIBUTES] & COMPRESSION_MASK
        for codec in np.unique(codecs):
            used = self.codecs.get(int(codec), CodecUse(0, 0))
            here = codecs == codec
            self.codecs[int(codec)] = CodecUse(
                used.batches + int(here.sum()), used.size_bytes + int(sound[here, SIZE].sum())
            )
        self._add_times(sound)

    def _add_blocks(self, sound: Int64Array) -> None:
        starts = block_starts(sound[:, BASE_OFFSET], self.cuts)
        self.blocks.append(merge_blocks([Blocks(starts, digests_of(sound), sound[:, POSITION])]))

    def _add_times(self, sound: Int64Array) -> None:
        times = sound[:, MAX_TIMESTAMP]
        plausible = (times >= EARLIEST_MS) & (times < LATEST_MS)
        if not plausible.any():
            return
        times = times[plausible]
        earliest, latest = int(times.min()), int(times.max())
        self.first_timestamp_ms = earliest if self.first_timestamp_ms < 0 else min(self.first_timestamp_ms, earliest)
        self.last_timestamp_ms = max(self.last_timestamp_ms, latest)
        buckets, inverse = np.unique(times // BUCKET_MS, return_inverse=True)
        sizes = np.zeros(len(buckets), np.int64)
        np.add.at(sizes, inverse, sound[plausible, SIZE])
        for bucket, size in zip(buckets.tolist(), sizes.tolist(), strict=True):
            self.bytes_by_second[bucket] = self.bytes_by_second.get(bucket, 0) + size

    def merged_blocks(self) -> Blocks:
        return merge_blocks(self.blocks)

    def timeline(self) -> Timeline | None:
        """Bytes by time, in at most TIMELINE_BUCKETS buckets."""
        if self.first_timestamp_ms < 0:
            return None
        start_ms = self.first_timestamp_ms // BUCKET_MS * BUCKET_MS
        return timeline_of(
            start_ms,
            self.last_timestamp_ms + 1,
            ((second * BUCKET_MS, size) for second, size in self.bytes_by_second.items()),
            TIMELINE_BUCKETS,
        )


def timeline_of(start_ms: int, end_ms: int, sizes: Iterable[tuple[int, int]], most_buckets: int) -> Timeline:
    """Bytes by time, in at most `most_buckets` buckets of at least BUCKET_MS."""
    bucket_ms = max(BUCKET_MS, -(-(end_ms - start_ms) // most_buckets))
    buckets = [0] * -(-(end_ms - start_ms) // bucket_ms)
    for at_ms, size in sizes:
        buckets[(at_ms - start_ms) // bucket_ms] += size
    return Timeline(start_ms, bucket_ms, tuple(buckets))


def merge_blocks(parts: Sequence[Blocks]) -> Blocks:
    """Merged blocks of several runs of batches, or of several segments, where positions have no meaning."""
    if not parts:
        return no_blocks()
    starts, inverse = np.unique(np.concatenate([part.starts for part in parts]), return_inverse=True)
    digests = np.zeros(len(starts), np.uint64)
    np.add.at(digests, inverse, np.concatenate([part.digests for part in parts]))
    positions = np.full(len(starts), np.iinfo(np.int64).max)
    np.minimum.at(positions, inverse, np.concatenate([part.positions for part in parts]))
    return Blocks(starts, digests, positions)


def _shifted(values: Int64Array, first: int) -> Int64Array:
    """The values shifted by one place, with `first` in front."""
    return np.concatenate((np.array([first], np.int64), values[:-1]))
