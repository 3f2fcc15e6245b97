"""The transaction index of a segment: which transactions that ended in it were aborted."""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.runtime.disk import Disk
from tidelog.storage.segment_cache import SegmentCache

ENTRY = struct.Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Of the abort marker."""
    last_stable_offset: int
    """What the last stable offset became with the marker: no later entry matters to a reader that ends below it."""


class TransactionIndex:
    """The entries of one segment, in the order of their markers; there is a file only if there are entries."""

    __slots__ = ("_cache", "_contents", "_disk", "has_entries", "path")

    def __init__(self, disk: Disk, cache: SegmentCache, path: str, *, has_entries: bool) -> None:
        self._disk = disk
        self._cache = cache
        self.path = path
        self.has_entries = has_entries
        self._contents: bytes | None = None

    def entries(self, first_offset: int = 0) -> Iterator[AbortedTransaction]:
        """Those that end at `first_offset` or later."""
        contents = self._load()
        number = bisect_left(
            range(len(contents) // ENTRY.size), first_offset, key=lambda at: _last_offset(contents, at)
        )
        for place in range(number * ENTRY.size, len(contents), ENTRY.size):
            yield AbortedTransaction(*ENTRY.unpack_from(contents, place)[1:])

    def append(self, transaction: AbortedTransaction) -> None:
        entry = ENTRY.pack(VERSION, *transaction)
        file = self._disk.open(self.path, "append")
        file.append(entry)
        file.close()
        self.has_entries = True
        if self._contents is not None:
            self._keep(self._contents + entry)

    def replace(self, transactions: list[AbortedTransaction]) -> None:
        self._disk.remove(self.path)
        self.release()
        if transactions:
            file = self._disk.open(self.path, "create")
            file.append(b"".join(ENTRY.pack(VERSION, *transaction) for transaction in transactions))
            file.close()
        self.has_entries = bool(transactions)

    def release(self) -> None:
        self._contents = None

    def let_go(self) -> None:
        self.release()
        self._cache.dropped(self)

    def _load(self) -> bytes:
        """The whole entries; a torn one at the end was never finished."""
        if not self.has_entries:
            return b""
        contents = self._contents
        if contents is None:
            read = self._disk.read_file(self.path)
            contents = read[: len(read) - len(read) % ENTRY.size]
            self._keep(contents)
        return contents

    def _keep(self, contents: bytes) -> None:
        self._contents = contents
        self._cache.loaded(self, len(contents))


def _last_offset(contents: bytes, number: int) -> int:
    last_offset: int = ENTRY.unpack_from(contents, number * ENTRY.size)[3]
    return last_offset
