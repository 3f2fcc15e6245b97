"""Which leader epoch started at which offset (R3): what followers reconcile by."""

# Core: no clock, no I/O, no await.

from bisect import bisect_right
from typing import NamedTuple

from tidelog.errors import OffsetOutOfRange
from tidelog.types import NO_LEADER_EPOCH, NO_OFFSET


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The largest epoch that a replica knows not above the one asked for, and where it ends there."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """Epochs and their start offsets, both growing; kept in memory, written to their file by the owner.

    With the first record of an epoch the file is written without a sync, so that it survives the process as the record
    does; with the next flush it is synced. So recovery can tell an epoch from a flipped bit: no CRC covers it.
    """

    __slots__ = ("_starts", "is_changed", "is_unwritten", "latest_epoch")

    def __init__(self, starts: list[EpochStart] | None = None) -> None:
        self._starts: list[EpochStart] = []
        self.latest_epoch = NO_LEADER_EPOCH
        for start in starts or []:
            self.assign(*start)
        self.is_changed = False
        """Since the file was last synced."""
        self.is_unwritten = False
        """The file says something else."""

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        return tuple(self._starts)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` starts here. An epoch that is known already, or older than the latest, changes nothing.

        Earlier epochs that would start at or after this offset hold no records, and are forgotten.
        """
        if epoch <= self.latest_epoch or epoch < 0:
            return
        while self._starts and self._starts[-1].start_offset >= start_offset:
            self._starts.pop()
        self._starts.append(EpochStart(epoch, start_offset))
        self._changed()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochStart:
        """The largest known epoch not above the one asked for, and where it ends; (-1, -1) if there is none."""
        if epoch < 0 or not self._starts:
            return EpochStart(NO_LEADER_EPOCH, NO_OFFSET)
        if epoch == self.latest_epoch:
            return EpochStart(epoch, log_end_offset)
        following = bisect_right(self._starts, epoch, key=lambda start: start.epoch)
        if following == len(self._starts):
            # Newer than everything known here: the asker is ahead of this replica.
            return EpochStart(NO_LEADER_EPOCH, NO_OFFSET)
        if following == 0:
            # Older than everything known: it ended, at the latest, where the first known epoch starts.
            return EpochStart(epoch, self._starts[0].start_offset)
        return EpochStart(self._starts[following - 1].epoch, self._starts[following].start_offset)

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int, log_end_offset: int) -> EpochEnd | None:
        """Where this log parts from that of a reader whose last record before `fetch_offset` has this epoch (KIP-595).

        None if the reader's log continues in this one, or if the reader names no epoch. Raises OffsetOutOfRange, as
        Kafka does, if the epoch is newer than all that are known here: there is no end to compare with.
        """
        if last_fetched_epoch < 0:
            return None
        epoch, end_offset = self.end_offset_for(last_fetched_epoch, log_end_offset)
        if epoch == NO_LEADER_EPOCH:
            raise OffsetOutOfRange(f"leader epoch {last_fetched_epoch} is newer than all that is known here")
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return EpochEnd(epoch, end_offset)
        return None

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at `offset` was written, as far as known."""
        following = bisect_right(self._starts, offset, key=lambda start: start.start_offset)
        return self._starts[following - 1].epoch if following else NO_LEADER_EPOCH

    def last_record_epoch(self, log_start_offset: int, log_end_offset: int) -> int:
        """Of the last record: a leader that has written nothing has noted its epoch too, and holds no more for it."""
        if log_start_offset == log_end_offset > 0:
            return self.latest_epoch
        return self.epoch_at(log_end_offset - 1)

    def truncate_from_end(self, end_offset: int) -> None:
        """The log ends here now: epochs that start at or after its end are gone."""
        while self._starts and self._starts[-1].start_offset >= end_offset:
            self._starts.pop()
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """The log starts here now: the epoch that covers the start stays, and starts no earlier."""
        following = bisect_right(self._starts, start_offset, key=lambda start: start.start_offset)
        if following == 0:
            return
        covering = self._starts[following - 1]
        if following == 1 and covering.start_offset == start_offset:
            return
        self._starts[:following] = [EpochStart(covering.epoch, start_offset)]
        self._changed()

    def clear(self) -> None:
        if self._starts:
            self._starts.clear()
            self._changed()

    def _changed(self) -> None:
        self.latest_epoch = self._starts[-1].epoch if self._starts else NO_LEADER_EPOCH
        self.is_changed = self.is_unwritten = True
