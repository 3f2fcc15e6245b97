"""Local log: the segments of a log and their files, without leaders, producers or watermarks (Kafka: LocalLog).

Changes happen on the event loop. Readers in workers keep the list of segments that they started with, and detect
renamed files by `renames`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar

from tidelog.storage.disk_errors import irreversible_change
from tidelog.storage.log_directory import StorageContext
from tidelog.storage.reading import Tail
from tidelog.storage.segment import CLEANED_SUFFIX, DELETED_SUFFIX, Segment

T = TypeVar("T")

REMEMBERED_TAIL_BATCHES: Final = 256
"""Maximum number of last batches that are found without index or file: tail reads and high watermarks are there."""


class PendingDeletion(NamedTuple):
    due_ms: int
    """By the monotonic clock."""
    paths: list[str]


class LocalLog:
    __slots__ = ("_context", "_pending_deletions", "path", "renames", "segments", "tail")

    def __init__(self, context: StorageContext, path: str, segments: list[Segment], log_end_offset: int) -> None:
        self._context = context
        self.path = path
        self.segments = segments
        """Oldest first. A change replaces the list: readers in workers keep the one that they started with."""
        self.tail = Tail(segments[-1], log_end_offset, [], [])
        self.renames = 0
        """Incremented before and after files are renamed: odd meanwhile."""
        self._pending_deletions: list[PendingDeletion] = []

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    # ---- tail

    def remember_batch(self, end_offset: int, position: int) -> bool:
        """Add a batch at `position` of the active segment to the tail. Returns whether older ones were dropped."""
        _, _, ends, positions = self.tail
        positions.append(position)
        ends.append(end_offset)
        if len(ends) <= REMEMBERED_TAIL_BATCHES:
            return False
        # Replaced, not shortened: a reader in a worker may be using the old one.
        half = REMEMBERED_TAIL_BATCHES // 2
        self.tail = Tail(self.segments[-1], ends[half - 1], ends[half:], positions[half:])
        return True

    def forget_tail(self, log_end_offset: int) -> None:
        self.tail = Tail(self.segments[-1], log_end_offset, [], [])

    # ---- new segments

    def create_segment(self, base_offset: int, extra_suffix: str = "") -> Segment:
        context = self._context
        now_ms = context.clock.now_ms()
        return Segment.create(
            context.disk, context.cache, self.path, base_offset, now_ms=now_ms, extra_suffix=extra_suffix
        )

    def add(self, segment: Segment, log_end_offset: int) -> None:
        self.segments = [*self.segments, segment]
        self.forget_tail(log_end_offset)

    def replace_empty_segment(self, base_offset: int, log_end_offset: int, due_ms: int) -> Segment:
        """Replace the empty active segment with one that has another base offset."""
        old = self.segments[-1]
        if old.base_offset == base_offset:
            return old
        segment = self.create_segment(base_offset)
        with irreversible_change():
            self.segments = [*self.segments[:-1], segment]
            self.delete_files([old], due_ms)
        self.forget_tail(log_end_offset)
        return segment

    # ---- removed and replaced segments

    def truncate(self, kept: list[Segment], due_ms: int) -> None:
        """Delete the segments after those that are kept."""
        removed, self.segments = self.segments[len(kept) :], kept
        self.delete_files(removed[::-1], due_ms)  # last one first, so that a crash leaves no gap

    def prepare_new_start(self, base_offset: int) -> Segment:
        """Create the only segment of a log that starts over.

        It has a temporary name: an old segment may have its name, and must stay if a shortage (R5) stops the change.
        """
        return self.create_segment(base_offset, CLEANED_SUFFIX)

    def start_over(self, segment: Segment, due_ms: int) -> None:
        self.delete_files(self.segments[::-1], due_ms)
        segment.change_suffix("")
        self.segments = [segment]

    def remove_oldest(self, count: int, due_ms: int) -> None:
        removed, self.segments = self.segments[:count], self.segments[count:]
        self.delete_files(removed, due_ms)

    def replace(self, old: list[Segment], new: list[Segment], due_ms: int) -> None:
        """Replace segments with their compacted ones in one step."""
        first = self.segments.index(old[0])
        segments = [*self.segments[:first], *new, *self.segments[first + len(old) :]]
        with irreversible_change(), self._renaming():
            self.delete_files(old, due_ms)
            for segment in new:
                segment.change_suffix("")
            self.segments = segments

    # ---- file names

    def retry_after_rename(self, search: Callable[[], T]) -> T:
        """Run a search of the files, maybe in a worker; repeat it if a file was renamed meanwhile."""
        while True:
            renames = self.renames
            try:
                return search()
            except FileNotFoundError:
                if self.renames == renames and renames % 2 == 0:
                    raise

    def delete_files(self, segments: list[Segment], due_ms: int) -> None:
        """Rename the files now. A worker deletes them later, because readers may still send from them."""
        with self._renaming():
            for segment in segments:
                self._pending_deletions.append(PendingDeletion(due_ms, segment.change_suffix(DELETED_SUFFIX)))

    def rename_directory(self, path: str) -> None:
        """Rename the directory of the log. Readers in workers repeat their search."""
        old = self.path
        with self._renaming():
            self._context.disk.rename(old, path)
            self.path = path
            for segment in self.segments:
                segment.on_directory_renamed(path)
            self._pending_deletions = [
                PendingDeletion(due_ms, [path + each.removeprefix(old) for each in paths])
                for due_ms, paths in self._pending_deletions
            ]

    @contextmanager
    def _renaming(self) -> Iterator[None]:
        is_outermost = self.renames % 2 == 0
        self.renames += is_outermost
        try:
            yield
        finally:
            self.renames += is_outermost

    def pop_due_deletions(self, now_ms: int) -> list[PendingDeletion]:
        due = [pending for pending in self._pending_deletions if pending.due_ms <= now_ms]
        if due:
            self._pending_deletions = [pending for pending in self._pending_deletions if pending.due_ms > now_ms]
        return due

    def put_back_deletions(self, pending: list[PendingDeletion]) -> None:
        """The deletion failed: retry later."""
        self._pending_deletions += pending

    def release_resources(self) -> None:
        """Free descriptors and cached indexes."""
        for segment in self.segments:
            segment.release_resources()
