"""Journal of a group member: what it did, line by line, in a file that survives its kill -9.

All processes of a machine read the same monotonic clock, so the journals of a group can be put in one order.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple


class Kind(StrEnum):
    ASSIGNED = "assigned"
    """In `generation`, where the client reports it."""
    REVOKED = "revoked"
    """Given up in order, after a last commit."""
    LOST = "lost"
    """Somebody else may have them already: the coordinator knows this member no more."""
    PROCESSED = "processed"
    """Records of one partition from `first` to `last`."""
    COMMITTING = "committing"
    COMMITTED = "committed"
    REJECTED = "refused"
    """A commit."""
    STRANGE = "strange"
    """A record that is not the one of its offset."""
    CLOSED = "closed"


class Entry(NamedTuple):
    at_s: float
    kind: Kind
    details: dict[str, Any]

    @property
    def partitions(self) -> list[int]:
        return list(self.details["partitions"])

    @property
    def offsets(self) -> dict[int, int]:
        return {int(partition): offset for partition, offset in self.details["offsets"].items()}


class Journal:
    """Every line is one write: it is in the file, whatever becomes of the process."""

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, kind: Kind, **details: Any) -> None:
        line = json.dumps({"at_s": time.monotonic(), "kind": kind, **details})
        os.write(self._descriptor, line.encode() + b"\n")


def read_journal(file: Path) -> Iterator[Entry]:
    if not file.exists():
        return
    for line in file.read_text().splitlines():
        details = json.loads(line)
        yield Entry(details.pop("at_s"), Kind(details.pop("kind")), details)


class Ledger:
    """How far a member has come with each of its partitions, written to its journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._positions: dict[int, int | None] = {}
        self._committed: dict[int, int] = {}

    def assigned(self, partitions: list[int], generation: int | None = None) -> None:
        self._journal.note(Kind.ASSIGNED, partitions=partitions, generation=generation)
        self._positions |= dict.fromkeys(partitions)

    def given_up(self, partitions: list[int], *, is_lost: bool = False) -> None:
        for partition in partitions:
            self._positions.pop(partition, None)
            self._committed.pop(partition, None)
        self._journal.note(Kind.LOST if is_lost else Kind.REVOKED, partitions=partitions)

    def processed(self, partition: int, records: Mapping[int, bytes]) -> None:
        """Values by offset, in their order. What comes after its partition was given up is left to the next owner."""
        if partition not in self._positions or not records:
            return
        first = previous = next(iter(records)) - 1
        for offset, value in records.items():
            if value != b"%d:%d" % (partition, offset):
                self._journal.note(Kind.STRANGE, partition=partition, offset=offset, value=repr(value))
            if offset != previous + 1:
                self._journal.note(Kind.PROCESSED, partition=partition, first=first + 1, last=previous)
                first = offset - 1
            previous = offset
        self._journal.note(Kind.PROCESSED, partition=partition, first=first + 1, last=previous)
        self._positions[partition] = previous + 1

    def uncommitted(self) -> dict[int, int]:
        """By partition, what is to be read next, where that is not yet committed."""
        return {
            partition: position
            for partition, position in self._positions.items()
            if position is not None and self._committed.get(partition) != position
        }

    def positions(self) -> dict[int, int]:
        """The same of all partitions that were read: a commit of these asks whether the member is still known."""
        return {partition: position for partition, position in self._positions.items() if position is not None}

    def committing(self, offsets: dict[int, int]) -> None:
        self._journal.note(Kind.COMMITTING, offsets=offsets)

    def committed(self, offsets: dict[int, int]) -> None:
        self._journal.note(Kind.COMMITTED, offsets=offsets)
        self._committed |= offsets

    def rejected(self, offsets: dict[int, int], reason: str) -> None:
        self._journal.note(Kind.REJECTED, offsets=offsets, reason=reason)

    def closed(self) -> None:
        self._journal.note(Kind.CLOSED)
