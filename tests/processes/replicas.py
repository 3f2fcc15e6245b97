"""The log files of stopped brokers: every replica must hold the same bytes up to the high watermark."""

import struct
from collections.abc import Iterable
from pathlib import Path

from tidelog.audit.audit_run import AuditOptions, LocalRunner, audit
from tidelog.runtime.disk import SystemDisk
from tidelog.storage.checkpoints import HIGH_WATERMARKS, read_offsets
from tidelog.types import TopicPartition

BATCH_HEADER = struct.Struct(">qi")
LENGTH_OVERHEAD = BATCH_HEADER.size
LAST_OFFSET_DELTA_POSITION = 23


def assert_replicas_identical(log_dirs: Iterable[Path]) -> dict[TopicPartition, int]:
    """Returns the high watermarks that were compared."""
    log_dirs = list(log_dirs)
    high_watermarks = [read_offsets(SystemDisk(), str(log_dir / HIGH_WATERMARKS)) for log_dir in log_dirs]
    assert high_watermarks[0].keys() == high_watermarks[1].keys() == high_watermarks[2].keys(), high_watermarks
    highest = {each: max(found[each] for found in high_watermarks) for each in high_watermarks[0]}
    for topic_partition, high_watermark in highest.items():
        assert_partition_identical(topic_partition, high_watermark, log_dirs)
    return highest


def assert_partition_identical(topic_partition: TopicPartition, high_watermark: int, log_dirs: Iterable[Path]) -> None:
    replicas = {log_dir.name: committed(log_dir / str(topic_partition), high_watermark) for log_dir in log_dirs}
    first, *others = replicas.values()
    assert all(other == first for other in others), (
        f"{topic_partition} differs below {high_watermark}: "
        f"{ {name: (len(data), _first_difference(data, first)) for name, data in replicas.items()} }"
    )


def committed(directory: Path, high_watermark: int) -> bytes:
    """The batches below the high watermark, whatever segments they are in."""
    data = b"".join(segment.read_bytes() for segment in sorted(directory.glob("*.log")))
    position = end_offset = 0
    while position < len(data) and end_offset < high_watermark:
        base_offset, length = BATCH_HEADER.unpack_from(data, position)
        (last_offset_delta,) = struct.unpack_from(">i", data, position + LAST_OFFSET_DELTA_POSITION)
        end_offset = base_offset + last_offset_delta + 1
        position += LENGTH_OVERHEAD + length
    assert end_offset == high_watermark, f"{directory} ends at {end_offset}, the high watermark is {high_watermark}"
    return data[:position]


def _first_difference(data: bytes, other: bytes) -> int | None:
    return next((at for at, (one, two) in enumerate(zip(data, other, strict=False)) if one != two), None)


def assert_audit_clean(log_dirs: Iterable[Path]) -> None:
    """`tidelog audit` finds no fault: CRCs, offsets, leader epochs, and replicas that agree."""
    found = audit(AuditOptions([str(log_dir) for log_dir in log_dirs], counts_keys=False), LocalRunner())
    assert found.faults == []
