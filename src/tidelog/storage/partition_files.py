"""Files of a partition's directory at startup, with cleanup of what a crash left there."""

import errno
import logging
import re
from dataclasses import dataclass, field

from tidelog.runtime.disk import DirectoryEntry, Disk
from tidelog.storage.checkpoints import EPOCH_JOURNAL, LEADER_EPOCHS, MISSING_SEGMENTS, OFFSET_GAPS
from tidelog.storage.log_directory import LogDirectory
from tidelog.storage.partition_metadata import PARTITION_METADATA
from tidelog.storage.producer_snapshots import SNAPSHOT_SUFFIX
from tidelog.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    IndexSizes,
    Segment,
    segment_path,
)

logger = logging.getLogger(__name__)

_TEMPORARY_SUFFIX = ".tmp"
_LEFTOVERS = (DELETED_SUFFIX, CLEANED_SUFFIX, _TEMPORARY_SUFFIX)
_OFFSET_DIGITS = 20
_OFFSET_NAME = re.compile(rf"[0-9]{{{_OFFSET_DIGITS}}}")


@dataclass(slots=True)
class PartitionFiles:
    segments: list[Segment] = field(default_factory=list)
    snapshot_offsets: list[int] = field(default_factory=list)
    has_leader_epochs: bool = False
    has_epoch_journal: bool = False
    has_topic_id: bool = False
    has_gaps: bool = False
    has_missing_segments: bool = False


def tidy_and_list(directory: LogDirectory, path: str) -> PartitionFiles:
    """Complete or undo interrupted changes, then list the files of the log."""
    disk = directory.context.disk
    entries = disk.list_directory(path)
    names = {entry.name for entry in entries}
    if any(name.endswith((*_LEFTOVERS, SWAP_SUFFIX)) for name in names):
        _remove_leftovers(disk, path, names)
        _complete_swaps(directory, path, disk.list_directory(path))
        entries = disk.list_directory(path)
    return _list(directory, path, entries)


def _remove_leftovers(disk: Disk, path: str, names: set[str]) -> None:
    for name in sorted(names):  # sorted: a crash in between keeps a predictable part
        if name.endswith(_LEFTOVERS):
            disk.remove(f"{path}/{name}")


def _complete_swaps(directory: LogDirectory, path: str, entries: list[DirectoryEntry]) -> None:
    """Complete the swap of compacted segments that were complete when the broker crashed."""
    disk = directory.context.disk
    sizes = {entry.name: entry.size for entry in entries}
    for name in sorted(sizes):
        if _is_named_by_offset(name, LOG_SUFFIX + SWAP_SUFFIX):
            base_offset = int(name[:_OFFSET_DIGITS])
            _remove_replaced(directory, path, base_offset, sizes)
            logger.info("completing an interrupted compaction path=%s/%s", path, name)
    for name in sizes:
        if name.endswith(SWAP_SUFFIX) and _OFFSET_NAME.match(name):
            disk.rename(f"{path}/{name}", f"{path}/{name.removesuffix(SWAP_SUFFIX)}")


def _remove_replaced(directory: LogDirectory, path: str, base_offset: int, sizes: dict[str, int]) -> None:
    context = directory.context
    name = f"{base_offset:0{_OFFSET_DIGITS}d}"
    swap = Segment(
        context.disk,
        context.cache,
        path,
        base_offset,
        now_ms=0,
        size_bytes=sizes[name + LOG_SUFFIX + SWAP_SUFFIX],
        index_sizes=IndexSizes(sizes.get(name + OFFSET_INDEX_SUFFIX + SWAP_SUFFIX)),
        extra_suffix=SWAP_SUFFIX,
    )
    end_offset = swap.find_end_offset()
    swap.release_resources()
    for other in sizes:
        if not _is_named_by_offset(other, LOG_SUFFIX):
            continue
        other_base_offset = int(other[:_OFFSET_DIGITS])
        if base_offset <= other_base_offset < max(end_offset, base_offset + 1):
            for suffix in SEGMENT_SUFFIXES:
                context.disk.remove(segment_path(path, other_base_offset, suffix))


def _list(directory: LogDirectory, path: str, entries: list[DirectoryEntry]) -> PartitionFiles:
    files = PartitionFiles()
    by_name = {entry.name: entry for entry in entries}
    context = directory.context
    for name, entry in by_name.items():
        if entry.is_dangling:
            raise OSError(errno.ENOENT, "a link in the directory of a log leads nowhere", f"{path}/{name}")
        if _is_named_by_offset(name, LOG_SUFFIX):
            files.segments.append(_segment(directory, path, name.removesuffix(LOG_SUFFIX), by_name))
        elif _is_named_by_offset(name, SNAPSHOT_SUFFIX):
            files.snapshot_offsets.append(int(name[:_OFFSET_DIGITS]))
        elif name == LEADER_EPOCHS:
            files.has_leader_epochs = True
        elif name == EPOCH_JOURNAL:
            files.has_epoch_journal = True
        elif name == PARTITION_METADATA:
            files.has_topic_id = True
        elif name == OFFSET_GAPS:
            files.has_gaps = True
        elif name == MISSING_SEGMENTS:
            files.has_missing_segments = True
        elif _is_index_without_log(name, by_name):
            logger.warning("removed index without log file path=%s/%s", path, entry.name)
            context.disk.remove(f"{path}/{name}")
    files.segments.sort(key=lambda segment: segment.base_offset)
    return files


def _is_named_by_offset(name: str, suffix: str) -> bool:
    """Other files are foreign, as copies that somebody made: they are neither read nor removed."""
    return name.endswith(suffix) and _OFFSET_NAME.fullmatch(name.removesuffix(suffix)) is not None


def _is_index_without_log(name: str, by_name: dict[str, DirectoryEntry]) -> bool:
    base_name, _, _ = name.partition(".")
    return (
        any(_is_named_by_offset(name, suffix) for suffix in SEGMENT_SUFFIXES) and base_name + LOG_SUFFIX not in by_name
    )


def _segment(directory: LogDirectory, path: str, name: str, by_name: dict[str, DirectoryEntry]) -> Segment:
    log_file = by_name[name + LOG_SUFFIX]
    return Segment(
        directory.context.disk,
        directory.context.cache,
        path,
        int(name),
        now_ms=log_file.modified_ms,
        size_bytes=log_file.size,
        index_sizes=IndexSizes(
            _size(by_name, name + OFFSET_INDEX_SUFFIX),
            _size(by_name, name + TIME_INDEX_SUFFIX),
            _size(by_name, name + TRANSACTION_INDEX_SUFFIX),
        ),
    )


def _size(by_name: dict[str, DirectoryEntry], name: str) -> int | None:
    entry = by_name.get(name)
    return None if entry is None else entry.size
