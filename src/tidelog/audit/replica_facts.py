"""Facts about replicas and segments: plain data, collected by tasks and checked by `replica_checks`."""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidelog.audit.hot_keys import KeyCounts
from tidelog.storage.leader_epochs import EpochEntry
from tidelog.types import BrokerId, TopicPartition, Uuid

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]

NO_TIME_MS = -1
MAX_OFFSET = 2**63 - 1


class DefectKind(Enum):
    """Kind of defect in one segment, found without other replicas."""

    CORRUPT = "corrupt"
    CUT = "cut"
    GAP = "gap"
    OVERLAP = "overlap"
    EPOCH = "epoch"
    MALFORMED = "malformed"
    OLD_FORMAT = "old format"


class Defect(NamedTuple):
    kind: DefectKind
    position: int
    size_bytes: int
    start_offset: int
    end_offset: int
    """Offsets that are affected, as far as neighbouring batches show them."""
    detail: str


class EpochRun(NamedTuple):
    """Start of a leader epoch in a segment."""

    epoch: int
    start_offset: int
    position: int


class Blocks(NamedTuple):
    """Digest of all batches with a base offset in an aligned range. Digests of its parts add up."""

    starts: Int64Array
    digests: UInt64Array
    positions: Int64Array
    """Position of the first batch of the block in the segment."""


class Timeline(NamedTuple):
    """Bytes by the batches' largest timestamps, in buckets of equal width."""

    start_ms: int
    bucket_ms: int
    bucket_bytes: tuple[int, ...]


class CodecUse(NamedTuple):
    batches: int
    size_bytes: int


def no_blocks() -> Blocks:
    return Blocks(np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.int64))


@dataclass(frozen=True)
class SegmentFacts:
    base_offset: int
    """Base offset in the file name."""
    size_bytes: int
    end_offset: int
    """Offset after the last batch; the base offset if there is none."""
    first_offset: int | None = None
    batch_count: int = 0
    record_count: int = 0
    epoch_runs: tuple[EpochRun, ...] = ()
    """One entry for each batch whose epoch differs from that of the batch before."""
    last_epoch: int = -1
    first_timestamp_ms: int = NO_TIME_MS
    last_timestamp_ms: int = NO_TIME_MS
    timeline: Timeline | None = None
    codecs: dict[int, CodecUse] = field(default_factory=dict)
    defects: tuple[Defect, ...] = ()
    blocks: Blocks = field(default_factory=no_blocks)
    keys: KeyCounts | None = None
    """None if keys were not counted."""
    error: str | None = None
    """Why the file could not be read to its end."""
    is_gone: bool = False


@dataclass(frozen=True)
class SegmentFile:
    base_offset: int
    size_bytes: int


@dataclass(frozen=True)
class LogDir:
    """A log directory of a broker, as of the start of the audit."""

    path: str
    broker: BrokerId | None
    is_running: bool = False
    is_clean: bool = True
    """The clean-shutdown marker is present."""

    def __str__(self) -> str:
        return self.path if self.broker is None else f"broker {self.broker}"


@dataclass(frozen=True)
class Replica:
    """One replica: files, checkpoints and, once read, the contents of its segments."""

    log_dir: LogDir
    topic_partition: TopicPartition
    path: str
    files: tuple[SegmentFile, ...] = ()
    orphaned_offsets: tuple[int, ...] = ()
    """Base offsets of index files that have no segment beside them."""
    topic_id: Uuid | None = None
    high_watermark: int | None = None
    """None if there is no checkpoint."""
    recovery_point: int = 0
    """Recovery point: all records and leader epochs before it were on disk when the audit started."""
    checkpointed_start: int = 0
    cleaned_end: int = 0
    """End offset of the compacted section."""
    epochs: tuple[EpochEntry, ...] = ()
    segments: tuple[SegmentFacts, ...] = ()

    @property
    def log_start(self) -> int:
        first = self.files[0].base_offset if self.files else 0
        return max(self.checkpointed_start, first)

    @property
    def log_end(self) -> int:
        return self.segments[-1].end_offset if self.segments else self.log_start

    @property
    def judged_end(self) -> int:
        """End of the committed records, which must be equal on all replicas."""
        return self.log_end if self.high_watermark is None else self.high_watermark

    @property
    def epochs_end(self) -> int:
        """The checkpoint must have the leader epochs before this offset: a broker writes them at the next flush."""
        is_stopped = self.log_dir.is_clean and not self.log_dir.is_running
        return self.judged_end if is_stopped else min(self.judged_end, self.recovery_point)

    def file_path(self, base_offset: int) -> str:
        return f"{self.path}/{base_offset:020d}.log"


class OffsetRange(NamedTuple):
    start: int
    end: int

    def holds(self, offset: int) -> bool:
        return self.start <= offset < self.end


class BatchIdentity(NamedTuple):
    """Fields that must be equal on all replicas; the CRC covers everything after the first fields of the header."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    size_bytes: int
    crc: int


class PlacedBatch(NamedTuple):
    identity: BatchIdentity
    file: str
    position: int
