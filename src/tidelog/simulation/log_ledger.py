"""Incremental log matching: mirrors of replica logs, and a ledger per partition of what was written and committed.

A batch is known by (base offset, leader epoch). Whoever holds it holds the same bytes, after the same batch (I3). What
a leader has committed is the same everywhere and for ever, unless an unclean election lost it (I2, I5).

What was deleted on one replica is not compared any more: a follower that differs from its leader below the leader's log
start has nothing to cut, and takes over that log start.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.protocol.records import records_of
from tidelog.simulation.log_watch import BatchFacts
from tidelog.types import Buffer


class _Place(NamedTuple):
    crc: int
    end_offset: int
    before: BatchFacts | None
    """The batch that ends where this one begins, if that was known."""


class Mirror:
    """The batches of one replica, oldest first."""

    __slots__ = ("batches", "broker_id", "verified_offset")

    def __init__(self, broker_id: int, batches: list[BatchFacts]) -> None:
        self.broker_id = broker_id
        self.batches = batches
        self.verified_offset = 0
        """Up to here the replica holds what the ledger says is committed."""

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    def truncate(self, end_offset: int) -> None:
        while self.batches and self.batches[-1].end_offset > end_offset:
            self.batches.pop()
        self.verified_offset = min(self.verified_offset, end_offset)

    def since(self, offset: int) -> Sequence[BatchFacts]:
        """The batches that end after the offset."""
        first = bisect_left(self.batches, offset + 1, key=lambda batch: batch.end_offset)
        return self.batches[first:]


class Ledger:
    """Of one partition of one topic id."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        """Of what is known to be committed."""
        self.leaders: dict[int, int] = {}
        """By leader epoch, the broker that appended as leader in it (I6)."""
        self.deleted_offset = 0
        """As far as any replica has deleted its oldest records."""
        self._places: dict[tuple[int, int], _Place] = {}
        self._committed: dict[int, BatchFacts] = {}
        self._records: dict[tuple[int, int], int] = {}
        """Of compacted topics, whose batches are written anew: by offset and epoch, a hash of key and value."""

    # ---- log matching

    def match(self, batches: Sequence[BatchFacts], before: BatchFacts | None) -> Iterator[str]:
        for batch in batches:
            if before is not None and before.end_offset != batch.base_offset:
                before = None
            if before is not None and before.end_offset <= self.deleted_offset:
                before = None
            yield from self._match(batch, before)
            before = batch

    def _match(self, batch: BatchFacts, before: BatchFacts | None) -> Iterator[str]:
        key = batch.base_offset, batch.leader_epoch
        known = self._places.get(key)
        if known is None or (known.before is None and before is not None and known.crc == batch.crc):
            self._places[key] = _Place(batch.crc, batch.end_offset, before)
        elif (known.crc, known.end_offset) != (batch.crc, batch.end_offset):
            yield f"two batches are at {key} (offset, epoch)"
        elif before is not None and known.before is not None and before != known.before:
            yield f"{known.before} and {before} come before {key} (offset, epoch)"

    def match_records(self, batches: Sequence[Buffer], epochs: Sequence[int]) -> Iterator[str]:
        for batch, epoch in zip(batches, epochs, strict=True):
            for record in records_of(batch):
                content = hash((record.key, record.value))
                if self._records.setdefault((record.offset, epoch), content) != content:
                    yield f"two records are at {(record.offset, epoch)} (offset, epoch)"

    # ---- what is committed

    def commit(self, mirror: Mirror, end_offset: int) -> Iterator[str]:
        """The leader's high watermark has reached this offset."""
        yield from self.verify(mirror, min(end_offset, self.end_offset))
        for batch in mirror.since(self.end_offset):
            if batch.end_offset > end_offset:
                break
            if not self._committed:
                self.start_offset = batch.base_offset
            self._committed[batch.base_offset] = batch
        self.end_offset = max(self.end_offset, end_offset)
        mirror.verified_offset = max(mirror.verified_offset, end_offset)

    def verify(self, mirror: Mirror, end_offset: int) -> Iterator[str]:
        """The replica holds, as far as its log reaches back, what is committed below this offset."""
        end_offset = min(end_offset, self.end_offset)
        if mirror.verified_offset >= end_offset:
            return
        for batch in mirror.since(max(mirror.verified_offset, self.deleted_offset)):
            if batch.base_offset >= end_offset:
                break
            known = self._committed.get(batch.base_offset)
            if known is not None and known != batch:
                yield f"broker {mirror.broker_id} holds {batch} where {known} is committed"
            elif known is None and self.start_offset <= batch.base_offset < self.end_offset:
                yield f"broker {mirror.broker_id} holds {batch}, which is not what is committed there"
        mirror.verified_offset = max(mirror.verified_offset, min(end_offset, mirror.end_offset))

    def lose(self, mirror: Mirror) -> int:
        """An unclean election: what is committed ends where the log of the new leader ends, or differs from it."""
        end_offset = min(self.end_offset, mirror.end_offset)
        for batch in mirror.batches:
            known = self._committed.get(batch.base_offset)
            if self.start_offset <= batch.base_offset < end_offset and known != batch:
                end_offset = batch.base_offset
        self.end_offset = end_offset
        self._committed = {base: batch for base, batch in self._committed.items() if batch.end_offset <= end_offset}
        return end_offset
