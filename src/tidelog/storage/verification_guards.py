"""Transactions that a partition is about to become part of: the guards between asking the coordinator and appending.

A coordinator that says "it goes on" may end the transaction before the leader has appended. The end marker takes the
guard away, and whoever still holds it must not append: nobody would ever end what it begins (KIP-890).
"""

# Core: no clock, no I/O, no await.

from tidelog.errors import InvalidTxnState, OutOfOrderSequenceNumber
from tidelog.protocol.record_batch import BatchHeader

LAST_PRODUCER_EPOCH = 2**15 - 1


class VerificationGuard:
    """One guard. It counts as long as it is the very one that the partition has for its producer."""

    __slots__ = ("epoch", "lowest_sequence", "since_ms", "starts_at_zero")

    def __init__(self, header: BatchHeader, now_ms: int, *, starts_at_zero: bool) -> None:
        self.epoch = header.producer_epoch
        self.lowest_sequence = header.base_sequence
        self.since_ms = now_ms
        self.starts_at_zero = starts_at_zero
        """Every transaction has an epoch of its own, so that its first batch in a partition has sequence 0."""

    def is_needed_by(self, header: BatchHeader) -> None:
        """A batch waits for it too. Later ones must not overtake the first, which may have to be sent again."""
        if header.producer_epoch > self.epoch:
            self.epoch, self.lowest_sequence = header.producer_epoch, header.base_sequence
        elif header.producer_epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, header.base_sequence)

    def is_later_than_marker(self, marker_epoch: int) -> bool:
        return self.starts_at_zero and marker_epoch <= self.epoch < LAST_PRODUCER_EPOCH

    def check_sequence(self, header: BatchHeader, *, has_batches: bool) -> None:
        sequence = header.base_sequence
        if sequence > self.lowest_sequence or (self.starts_at_zero and sequence != 0 and not has_batches):
            first = 0 if self.starts_at_zero and not has_batches else self.lowest_sequence
            raise OutOfOrderSequenceNumber(
                f"producer {header.producer_id} epoch {header.producer_epoch} begins its transaction here"
                f" with sequence {sequence}, expected {first}"
            )


class VerificationGuards:
    """The guards of one partition, by producer id."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[int, VerificationGuard] = {}

    def begin(self, header: BatchHeader, now_ms: int, *, starts_at_zero: bool) -> VerificationGuard:
        """The producer's guard, which other batches may be waiting for already."""
        found = self._by_id.get(header.producer_id)
        if found is None:
            found = self._by_id[header.producer_id] = VerificationGuard(header, now_ms, starts_at_zero=starts_at_zero)
        else:
            found.is_needed_by(header)
        return found

    def check(self, header: BatchHeader, verification: VerificationGuard, *, has_batches: bool) -> None:
        if self._by_id.get(header.producer_id) is not verification:
            raise InvalidTxnState(f"the transaction of producer {header.producer_id} ended before it began here")
        verification.check_sequence(header, has_batches=has_batches)

    def end(self, producer_id: int) -> None:
        """The transaction has begun here, or is over."""
        if self._by_id:
            self._by_id.pop(producer_id, None)

    def on_marker(self, producer_id: int, producer_epoch: int) -> None:
        """A transaction of the producer is over: the one that is guarded, or the one before it.

        Producers begin the next transaction while markers of the last are on their way. Where every transaction has
        an epoch of its own they can be told apart: a marker has a later epoch than the transaction that it ends.
        """
        found = self._by_id.get(producer_id)
        if found is not None and not found.is_later_than_marker(producer_epoch):
            del self._by_id[producer_id]

    def remove_older_than(self, time_ms: int) -> None:
        self._by_id = {each: found for each, found in self._by_id.items() if found.since_ms > time_ms}

    def clear(self) -> None:
        self._by_id.clear()

    def __len__(self) -> int:
        return len(self._by_id)
