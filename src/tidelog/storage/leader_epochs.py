"""Leader epochs of a log with their start offsets (Kafka: LeaderEpochFileCache), by which logs are compared (R3)."""

# Core: no clock, no I/O, no await.

from bisect import bisect_right
from typing import NamedTuple

from tidelog.errors import OffsetOutOfRange
from tidelog.types import NO_LEADER_EPOCH, NO_OFFSET


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The largest epoch <= the requested one, and its end offset on this replica."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """Epochs and start offsets, both increasing. In memory; the log writes them to its directory.

    They are in the journal, without a sync, before the first record of an epoch, so that they survive a process crash
    like the record; the next flush writes the checkpoint, synced. Recovery checks the epochs of batches against them,
    for no CRC covers those.
    """

    __slots__ = ("_starts", "is_unsynced", "is_unwritten", "latest_epoch")

    def __init__(self, starts: list[EpochEntry] | None = None) -> None:
        self._starts: list[EpochEntry] = []
        self.latest_epoch = NO_LEADER_EPOCH
        for start in starts or []:
            self.assign(*start)
        self.is_unsynced = False
        """Changed since the checkpoint was last written."""
        self.is_unwritten = False
        """Changed since the checkpoint or the journal was last written."""

    @property
    def starts(self) -> tuple[EpochEntry, ...]:
        return tuple(self._starts)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` starts at this offset. No change if the epoch is not newer than the latest.

        Earlier epochs that start at or after this offset have no records and are removed.
        """
        if epoch <= self.latest_epoch or epoch < 0:
            return
        while self._starts and self._starts[-1].start_offset >= start_offset:
            self._starts.pop()
        self._starts.append(EpochEntry(epoch, start_offset))
        self._changed()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest epoch <= the requested one, and its end offset; (-1, -1) if there is none."""
        if epoch < 0 or not self._starts:
            return EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)
        if epoch == self.latest_epoch:
            return EpochEnd(epoch, log_end_offset)
        following = bisect_right(self._starts, epoch, key=lambda start: start.epoch)
        if following == len(self._starts):
            # Newer than all epochs of this log: the requester is ahead of this replica.
            return EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)
        if following == 0:
            # Older than all epochs of this log: it ended where the first epoch starts, at the latest.
            return EpochEnd(epoch, self._starts[0].start_offset)
        return EpochEnd(self._starts[following - 1].epoch, self._starts[following].start_offset)

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int, log_end_offset: int) -> EpochEnd | None:
        """Where the log of a reader diverges from this one (KIP-595).

        `last_fetched_epoch` is the epoch of the reader's last record before `fetch_offset`.

        None if the reader's log is a prefix of this one, or if the reader sends no epoch. Raises OffsetOutOfRange, as
        Kafka does, if the epoch is newer than all epochs of this log, since there is no end offset to compare.
        """
        if last_fetched_epoch < 0 or (last_fetched_epoch == self.latest_epoch and fetch_offset <= log_end_offset):
            return None
        epoch, end_offset = self.end_offset_for(last_fetched_epoch, log_end_offset)
        if epoch == NO_LEADER_EPOCH:
            raise OffsetOutOfRange(f"leader epoch {last_fetched_epoch} is newer than every epoch in this log")
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return EpochEnd(epoch, end_offset)
        return None

    def epoch_at(self, offset: int) -> int:
        """Epoch of the record at `offset`; -1 if unknown."""
        following = bisect_right(self._starts, offset, key=lambda start: start.start_offset)
        return self._starts[following - 1].epoch if following else NO_LEADER_EPOCH

    def last_record_epoch(self, log_start_offset: int, log_end_offset: int) -> int:
        """Epoch of the last record. The latest epoch may have no record yet: a new leader records its epoch first."""
        if log_start_offset == log_end_offset > 0:
            return self.latest_epoch
        return self.epoch_at(log_end_offset - 1)

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that start at or after the new log end."""
        while self._starts and self._starts[-1].start_offset >= end_offset:
            self._starts.pop()
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs before the new log start; the epoch of the log start is kept and starts there."""
        following = bisect_right(self._starts, start_offset, key=lambda start: start.start_offset)
        if following == 0:
            return
        covering = self._starts[following - 1]
        if following == 1 and covering.start_offset == start_offset:
            return
        self._starts[:following] = [EpochEntry(covering.epoch, start_offset)]
        self._changed()

    def clear(self) -> None:
        if self._starts:
            self._starts.clear()
            self._changed()

    def _changed(self) -> None:
        self.latest_epoch = self._starts[-1].epoch if self._starts else NO_LEADER_EPOCH
        self.is_unsynced = self.is_unwritten = True
