"""Compaction plan of a table: groups of small files to merge."""

# Core: no clock, no I/O, no await.

from collections import defaultdict
from collections.abc import Iterable

from tidelog.pipelines.definition.model import Compaction
from tidelog.pipelines.tables.file_facts import Partition, TableFile

SMALL_SHARE = 0.75
"""A file below this share of the target size is small. A rewritten file is about the target size, so it is not."""


def groups_to_compact(files: Iterable[TableFile], compaction: Compaction) -> list[list[TableFile]]:
    """Each group becomes one file of at most about the target size; its files belong to one partition."""
    groups: list[list[TableFile]] = []
    for small in _small_files(files, compaction.target_bytes).values():
        if len(small) >= compaction.files:
            groups += [group for group in _bins(small, compaction.target_bytes) if len(group) > 1]
    return groups


def _small_files(files: Iterable[TableFile], target_bytes: int) -> dict[Partition, list[TableFile]]:
    small: dict[Partition, list[TableFile]] = defaultdict(list)
    for file in sorted(files):
        if file.bytes < target_bytes * SMALL_SHARE:
            small[file.partition].append(file)
    return small


def _bins(files: Iterable[TableFile], target_bytes: int) -> list[list[TableFile]]:
    bins: list[list[TableFile]] = []
    room_bytes = 0
    for file in files:
        if not bins or file.bytes > room_bytes:
            bins.append([])
            room_bytes = target_bytes
        bins[-1].append(file)
        room_bytes -= file.bytes
    return bins
