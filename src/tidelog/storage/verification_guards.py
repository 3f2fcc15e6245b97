"""Verification guards of a partition, between the verification of a transaction and its first append (KIP-890).

The coordinator may end the transaction after its confirmation and before the append. The end marker then removes the
guard, and a batch whose guard was removed must not be appended: no marker would ever end that transaction.
"""

# Core: no clock, no I/O, no await.

from tidelog.errors import InvalidTxnState, OutOfOrderSequenceNumber
from tidelog.protocol.record_batch import BatchHeader

LAST_PRODUCER_EPOCH = 2**15 - 1


class VerificationGuard:
    """One guard. It is valid while it is the partition's current guard of its producer."""

    __slots__ = ("epoch", "lowest_sequence", "since_ms", "starts_at_zero")

    def __init__(self, header: BatchHeader, now_ms: int, *, starts_at_zero: bool) -> None:
        self.epoch = header.producer_epoch
        self.lowest_sequence = header.base_sequence
        self.since_ms = now_ms
        self.starts_at_zero = starts_at_zero
        """Transactions version 2: each transaction has its own epoch, and its first batch has sequence 0."""

    def is_needed_by(self, header: BatchHeader) -> None:
        """Another batch waits for it. Later batches must not overtake the first, which may be sent again."""
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
        """The producer's guard, for which other batches may wait already."""
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
        """The transaction has begun here, or ended."""
        if self._by_id:
            self._by_id.pop(producer_id, None)

    def on_marker(self, producer_id: int, producer_epoch: int) -> None:
        """A transaction of the producer ended: the guarded one, or the one before it.

        Producers begin the next transaction before all markers of the last one have arrived. With transactions
        version 2 the epoch distinguishes them: a marker has a later epoch than the transaction that it ends.
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
