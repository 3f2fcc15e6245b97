"""Incremental log matching: mirrors of replica logs, and a ledger per partition of what was written and committed.

A batch is identified by (base offset, leader epoch). Every replica that holds it holds the same bytes, after the same
batch (I3). Committed records are the same on all replicas for ever, unless an unclean election lost them (I2, I5).

Records that one replica has deleted are not compared any more: a follower that differs from its leader below the
leader's log start offset does not truncate; it adopts that log start offset.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.protocol.records import records_of
from tidelog.simulation.log_watch import BatchFacts
from tidelog.types import Buffer


class _RecordedBatch(NamedTuple):
    """A batch that some replica holds, by base offset and leader epoch."""

    crc: int
    end_offset: int
    before: BatchFacts | None
    """The preceding batch, if known."""


class Mirror:
    """The batches of one replica, oldest first."""

    __slots__ = ("batches", "broker_id", "verified_offset")

    def __init__(self, broker_id: int, batches: list[BatchFacts]) -> None:
        self.broker_id = broker_id
        self.batches = batches
        self.verified_offset = 0
        """The replica was verified up to this offset against the ledger's committed records."""

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
    """Ledger of one partition of one topic id."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        """End of the committed records."""
        self.leaders: dict[int, int] = {}
        """Broker that appended as leader, by leader epoch (I6)."""
        self.deleted_offset = 0
        """Highest log start offset of any replica."""
        self._recorded: dict[tuple[int, int], _RecordedBatch] = {}
        self._committed: dict[int, BatchFacts] = {}
        self._records: dict[tuple[int, int], int] = {}
        """For compacted topics, whose batches are rewritten: hash of key and value by offset and epoch."""

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
        recorded = self._recorded.get(key)
        if recorded is None or (recorded.before is None and before is not None and recorded.crc == batch.crc):
            self._recorded[key] = _RecordedBatch(batch.crc, batch.end_offset, before)
        elif (recorded.crc, recorded.end_offset) != (batch.crc, batch.end_offset):
            yield f"two batches are at {key} (offset, epoch)"
        elif before is not None and recorded.before is not None and before != recorded.before:
            yield f"{recorded.before} and {before} come before {key} (offset, epoch)"

    def match_records(self, batches: Sequence[Buffer], epochs: Sequence[int]) -> Iterator[str]:
        for batch, epoch in zip(batches, epochs, strict=True):
            for record in records_of(batch):
                content = hash((record.key, record.value))
                if self._records.setdefault((record.offset, epoch), content) != content:
                    yield f"two records are at {(record.offset, epoch)} (offset, epoch)"

    # ---- committed records

    def commit(self, mirror: Mirror, end_offset: int) -> Iterator[str]:
        """Record that the leader's high watermark has reached this offset."""
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
        """Check that the replica holds the committed records below this offset, from its log start on."""
        end_offset = min(end_offset, self.end_offset)
        if mirror.verified_offset >= end_offset:
            return
        for batch in mirror.since(max(mirror.verified_offset, self.deleted_offset)):
            if batch.base_offset >= end_offset:
                break
            recorded = self._committed.get(batch.base_offset)
            if recorded is not None and recorded != batch:
                yield f"broker {mirror.broker_id} holds {batch} where {recorded} is committed"
            elif recorded is None and self.start_offset <= batch.base_offset < self.end_offset:
                yield f"broker {mirror.broker_id} holds {batch}, which is not what is committed there"
        mirror.verified_offset = max(mirror.verified_offset, min(end_offset, mirror.end_offset))

    def lose(self, mirror: Mirror) -> int:
        """After an unclean election the committed records end where the new leader's log ends or differs."""
        end_offset = min(self.end_offset, mirror.end_offset)
        for batch in mirror.batches:
            recorded = self._committed.get(batch.base_offset)
            if self.start_offset <= batch.base_offset < end_offset and recorded != batch:
                end_offset = batch.base_offset
        self.end_offset = end_offset
        self._committed = {base: batch for base, batch in self._committed.items() if batch.end_offset <= end_offset}
        return end_offset
