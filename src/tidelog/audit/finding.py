"""Finding of the audit about a replica: a fault or a note."""

from enum import Enum
from typing import NamedTuple

from tidelog.audit.replica_facts import OffsetRange, Replica
from tidelog.types import BrokerId, TopicPartition


class Kind(Enum):
    CORRUPT_BATCH = "corrupt batch"
    MALFORMED_RECORDS = "malformed records"
    CUT_BATCH = "cut-off batch"
    MISSING_SEGMENT = "missing segment"
    MISSING_RECORDS = "missing records"
    MISSING_REPLICA = "missing replica"
    OVERLAP = "overlap"
    DIVERGED = "diverged replica"
    EPOCHS = "leader epochs"
    FILE_NAME = "file name"
    TOPIC_ID = "topic id"
    CHECKPOINT = "damaged checkpoint"
    UNREADABLE = "unreadable file"
    NOTE = "note"
    """Information, not a fault."""


class Finding(NamedTuple):
    kind: Kind
    sentence: str
    log_dir: str
    broker: BrokerId | None = None
    topic_partition: TopicPartition | None = None
    file: str | None = None
    position: int | None = None
    size_bytes: int | None = None
    offsets: OffsetRange | None = None

    @property
    def is_fault(self) -> bool:
        return self.kind is not Kind.NOTE


def finding_of(
    replica: Replica,
    kind: Kind,
    sentence: str,
    *,
    file: str | None = None,
    position: int | None = None,
    size_bytes: int | None = None,
    offsets: OffsetRange | None = None,
) -> Finding:
    log_dir = replica.log_dir
    return Finding(
        kind, sentence, log_dir.path, log_dir.broker, replica.topic_partition, file, position, size_bytes, offsets
    )


def offsets_text(offsets: OffsetRange) -> str:
    """Offset range as text, with its last offset."""
    if offsets.end - offsets.start <= 1:
        return f"offset {offsets.start}"
    return f"offsets {offsets.start} to {offsets.end - 1}"


def offsets_are(offsets: OffsetRange) -> str:
    """Subject and verb of a sentence: `offset 3 is`, `offsets 3 to 5 are`."""
    return f"{offsets_text(offsets)} {'is' if offsets.end - offsets.start <= 1 else 'are'}"
