"""Producer states of a partition (Kafka: ProducerStateManager): duplicates, sequences, transactions."""

# Core: no clock, no I/O, no await.

import struct
from collections import deque
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple

from tidelog.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from tidelog.protocol.checksums import crc32c
from tidelog.protocol.record_batch import CONTROL_BIT, MAX_SEQUENCE, TRANSACTIONAL_BIT, BatchHeader
from tidelog.protocol.records import ControlType, EndMarker
from tidelog.storage.transaction_index import AbortedTransaction
from tidelog.storage.validation import AppendOrigin
from tidelog.storage.verification_guards import LAST_PRODUCER_EPOCH, VerificationGuard, VerificationGuards
from tidelog.types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

REMEMBERED_BATCHES = 5
"""A producer may have five requests in flight, and may repeat any of its last five batches."""

NO_COORDINATOR_EPOCH = -1

SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = struct.Struct(">hIi")
_SNAPSHOT_CRC_START = 6
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_EARLIER_BATCHES = struct.Struct(">qi")  # producer id, number of batches
_EARLIER_BATCH = struct.Struct(">iiqqq")  # the fields of BatchMetadata
_new_tuple: Final = tuple.__new__  # half the time of a named tuple's own constructor


class CorruptSnapshot(Exception):
    """A producer snapshot cannot be read."""


class BatchMetadata(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int


class ProducerStateEntry:
    """State of one producer in this log."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "has_written",
        "idle_since_ms",
        "last_timestamp",
        "next_sequence",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.batches: deque[BatchMetadata] = deque(maxlen=REMEMBERED_BATCHES)
        self.next_sequence = 0
        self.last_timestamp = NO_TIMESTAMP
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.transaction_first_offset = NO_OFFSET
        self.has_written = True
        """Since `remove_expired` last looked."""
        self.idle_since_ms = 0

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def find_duplicate(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        if epoch != self.epoch:
            return None
        for batch in self.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None

    def maybe_update_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.batches.clear()
            self.next_sequence = 0
            self.epoch = epoch

    def copy(self) -> "ProducerStateEntry":
        twin = ProducerStateEntry(self.producer_id)
        twin.epoch = self.epoch
        twin.batches = self.batches.copy()
        twin.next_sequence = self.next_sequence
        twin.last_timestamp = self.last_timestamp
        twin.coordinator_epoch = self.coordinator_epoch
        twin.transaction_first_offset = self.transaction_first_offset
        return twin

    def remember(self, batch: BatchMetadata) -> None:
        self.batches.append(batch)
        self.next_sequence = (batch.last_sequence + 1) & MAX_SEQUENCE


class ProducerStateManager:
    """All producers of one partition.

    `check` decides on a batch before its append and changes nothing. `update` applies it after the append.
    """

    __slots__ = ("_open_transactions", "_unreplicated", "by_id", "end_offset", "verifications")

    def __init__(self, end_offset: int = 0) -> None:
        self.by_id: dict[int, ProducerStateEntry] = {}
        self.end_offset = end_offset
        """All idempotent and transactional batches before this offset have been applied."""
        self._open_transactions: dict[int, int] = {}
        """First offset of each open transaction, in log order: the first one limits the last stable offset."""
        self._unreplicated: deque[CompletedTransaction] = deque()
        """Completed transactions whose marker is not committed yet, sorted by first offset."""
        self.verifications = VerificationGuards()

    # ---- before an append

    def check(self, header: BatchHeader, origin: AppendOrigin) -> BatchMetadata | None:
        """Raise if the batch is invalid. Returns the earlier batch that it repeats; None if it may be appended."""
        state = self.by_id.get(header.producer_id)
        if state is None:
            if header.producer_epoch < NO_PRODUCER_EPOCH and origin is AppendOrigin.CLIENT:
                raise InvalidProducerEpoch(f"producer {header.producer_id} sent epoch {header.producer_epoch}")
            return None
        attributes, epoch, sequence = header.attributes, header.producer_epoch, header.base_sequence
        if attributes & CONTROL_BIT:
            self._check_epoch(state, header)
            return None
        if origin is AppendOrigin.CLIENT and (epoch != state.epoch or sequence != state.next_sequence):
            duplicate = state.find_duplicate(epoch, sequence, header.last_sequence)
            if duplicate is not None:
                return duplicate
            self._check_epoch(state, header)
            self._check_sequence(state, header)
        elif epoch < state.epoch:
            self._check_epoch(state, header)
        if state.transaction_first_offset != NO_OFFSET and not attributes & TRANSACTIONAL_BIT:
            raise InvalidTxnState(
                f"producer {header.producer_id} has an open transaction here and sent a batch outside of it"
            )
        return None

    def is_expected(self, header: BatchHeader) -> bool:
        """Whether the batch follows the last one of its producer, or repeats one of the last."""
        state = self.by_id.get(header.producer_id)
        if state is None or header.producer_epoch != state.epoch:
            return False
        sequence = header.base_sequence
        return (
            sequence == state.next_sequence
            or state.find_duplicate(header.producer_epoch, sequence, header.last_sequence) is not None
        )

    def check_end_marker(self, header: BatchHeader, marker: EndMarker) -> None:
        state = self.by_id.get(header.producer_id)
        if state is not None and marker.coordinator_epoch < state.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"marker of producer {header.producer_id} from coordinator epoch {marker.coordinator_epoch},"
                f" epoch {state.coordinator_epoch} has written here already"
            )

    def check_newer_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Check a marker of transactions version 2, which raises the producer epoch (KIP-890).

        A repeated marker has the current epoch, which is valid only while no transaction is open. The maximum epoch
        is not raised.
        """
        state = self.by_id.get(producer_id)
        if state is None or producer_epoch > state.epoch:
            return
        is_repeated = state.transaction_first_offset == NO_OFFSET or producer_epoch == LAST_PRODUCER_EPOCH
        if producer_epoch < state.epoch or not is_repeated:
            raise InvalidProducerEpoch(
                f"marker of producer {producer_id} with epoch {producer_epoch}, epoch {state.epoch} has taken over"
            )

    def begin_verification(self, header: BatchHeader, now_ms: int, *, starts_at_zero: bool) -> VerificationGuard | None:
        """For a transactional batch: None if the transaction is open here, else the guard for its first batch."""
        state = self.by_id.get(header.producer_id)
        if state is not None:
            self._check_epoch(state, header)
            if state.transaction_first_offset != NO_OFFSET and state.epoch == header.producer_epoch:
                return None
        return self.verifications.begin(header, now_ms, starts_at_zero=starts_at_zero)

    def check_verified(self, header: BatchHeader, verification: VerificationGuard) -> None:
        """After the coordinator's confirmation: raises unless the transaction is open here or may still begin."""
        state = self.by_id.get(header.producer_id)
        if state is not None:
            self._check_epoch(state, header)
            if state.transaction_first_offset != NO_OFFSET and state.epoch == header.producer_epoch:
                return
        has_batches = state is not None and bool(state.batches)
        self.verifications.check(header, verification, has_batches=has_batches)

    def _check_epoch(self, state: ProducerStateEntry, header: BatchHeader) -> None:
        if header.producer_epoch < state.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} sent epoch {header.producer_epoch}, epoch {state.epoch} has taken over"
            )

    def _check_sequence(self, state: ProducerStateEntry, header: BatchHeader) -> None:
        """Check a batch that does not have the next sequence. As in Kafka, without an epoch it may have any."""
        if state.epoch == NO_PRODUCER_EPOCH:
            return
        if header.producer_epoch != state.epoch:
            if header.base_sequence != 0:
                raise OutOfOrderSequenceNumber(
                    f"producer {header.producer_id} starts epoch {header.producer_epoch}"
                    f" with sequence {header.base_sequence} instead of 0"
                )
            return
        raise OutOfOrderSequenceNumber(
            f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence {header.base_sequence},"
            f" expected {state.next_sequence}"
        )

    # ---- after an append

    def update(self, header: BatchHeader, first_offset: int) -> None:
        """Apply a data batch that was appended at `first_offset`."""
        attributes, delta, timestamp = header.attributes, header.last_offset_delta, header.max_timestamp
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        state = self.by_id.get(producer_id) or self._state(producer_id)
        if epoch != state.epoch:
            state.maybe_update_epoch(epoch)
        if sequence >= 0:
            last_sequence = (sequence + delta) & MAX_SEQUENCE
            state.batches.append(
                _new_tuple(BatchMetadata, (sequence, last_sequence, first_offset, first_offset + delta, timestamp))
            )
            state.next_sequence = (last_sequence + 1) & MAX_SEQUENCE
        else:
            # A coordinator's batch has no sequence, but compaction keeps the producer's state by it.
            state.remember(BatchMetadata(NO_SEQUENCE, NO_SEQUENCE, first_offset, first_offset + delta, timestamp))
        state.last_timestamp, state.has_written = timestamp, True
        if attributes & TRANSACTIONAL_BIT and state.transaction_first_offset == NO_OFFSET:
            state.transaction_first_offset = first_offset
            self._open_transactions[producer_id] = first_offset
            self.verifications.end(producer_id)

    def end_transaction(self, header: BatchHeader, marker: EndMarker, offset: int) -> AbortedTransaction | None:
        """Apply a marker at `offset`. Returns the entry for the transaction index if it aborts records."""
        state = self._state(header.producer_id)
        state.maybe_update_epoch(header.producer_epoch)
        state.coordinator_epoch = marker.coordinator_epoch
        state.last_timestamp, state.has_written = header.max_timestamp, True
        self.verifications.on_marker(header.producer_id, header.producer_epoch)
        first_offset = state.transaction_first_offset
        if first_offset == NO_OFFSET:
            return None
        state.transaction_first_offset = NO_OFFSET
        self._open_transactions.pop(header.producer_id, None)
        self._record_completed(CompletedTransaction(header.producer_id, first_offset, offset))
        if marker.control_type is ControlType.COMMIT:
            return None
        undecided = next(iter(self._open_transactions.values()), offset + 1)
        return AbortedTransaction(header.producer_id, first_offset, offset, undecided)

    def _record_completed(self, completed: CompletedTransaction) -> None:
        """Drop earlier entries that began later: they commit before this one and never limit the stable offset."""
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[-1].first_offset >= completed.first_offset:
            unreplicated.pop()
        unreplicated.append(completed)

    def update_epoch(self, header: BatchHeader) -> None:
        """Apply the header of a marker whose records compaction removed: only producer and epoch are left."""
        state = self._state(header.producer_id)
        if header.producer_epoch > state.epoch:
            state.maybe_update_epoch(header.producer_epoch)
            state.last_timestamp, state.has_written = header.max_timestamp, True

    def on_high_watermark(self, high_watermark: int) -> None:
        """Transactions with a marker below the high watermark no longer limit the last stable offset."""
        while self._unreplicated and self._unreplicated[0].last_offset < high_watermark:
            self._unreplicated.popleft()

    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open or whose marker is not committed."""
        opened = next(iter(self._open_transactions.values()), None)
        if not self._unreplicated:
            return opened
        completed = self._unreplicated[0].first_offset
        return completed if opened is None else min(opened, completed)

    @property
    def oldest_transaction_timestamp(self) -> int | None:
        """Last timestamp of the earliest open transaction."""
        producer_id = next(iter(self._open_transactions), None)
        return None if producer_id is None else self.by_id[producer_id].last_timestamp

    def remove_expired(self, monotonic_ms: int, expiration_ms: int) -> None:
        """Remove producers that have not written for so long, counted from the first call that finds them idle.

        Apache Kafka compares the timestamps of their records with the clock. Records may be older than that when they
        are written, and a clock may be set: a batch that is then sent again would be appended twice.
        """
        for state in list(self.by_id.values()):
            if state.has_written:
                state.has_written, state.idle_since_ms = False, monotonic_ms
            elif state.transaction_first_offset == NO_OFFSET and monotonic_ms - state.idle_since_ms >= expiration_ms:
                del self.by_id[state.producer_id]

    def clear(self, end_offset: int) -> None:
        self.by_id.clear()
        self._open_transactions.clear()
        self._unreplicated.clear()
        self.verifications.clear()
        self.end_offset = end_offset

    def _state(self, producer_id: int) -> ProducerStateEntry:
        state = self.by_id.get(producer_id)
        if state is None:
            state = self.by_id[producer_id] = ProducerStateEntry(producer_id)
        return state

    # ---- snapshots

    def copy(self, end_offset: int) -> "ProducerStateManager":
        """Copy of the current state."""
        twin = ProducerStateManager(end_offset)
        twin.by_id = {producer_id: state.copy() for producer_id, state in self.by_id.items()}
        twin._open_transactions = self._open_transactions.copy()
        twin._unreplicated = self._unreplicated.copy()
        return twin

    def become(self, copy: "ProducerStateManager") -> None:
        """Take over the contents of a copy, which must not be used afterwards."""
        self.by_id = copy.by_id
        self.end_offset = copy.end_offset
        self._open_transactions = copy._open_transactions
        self._unreplicated = copy._unreplicated
        self.verifications.clear()

    def snapshot(self) -> bytes:
        """Kafka's entries, which have the last batch of each producer, and behind them the batches before it.

        Apache Kafka ignores those. It does not recognise a repetition of an earlier batch after a crash.
        """
        states = self.by_id.values()
        entries = [_snapshot_entry(state) for state in states]
        earlier = [_earlier_batches(state) for state in states if len(state.batches) > 1]
        body = b"".join([struct.pack(">i", len(entries)), *entries, *earlier])
        return struct.pack(">hI", SNAPSHOT_VERSION, crc32c(body)) + body

    def restore(self, snapshot: bytes, end_offset: int) -> None:
        """Load a snapshot. Raises CorruptSnapshot before anything has changed."""
        states = _snapshot_states(snapshot)
        self.clear(end_offset)
        self.by_id.update((state.producer_id, state) for state in states)
        opened = [state for state in states if state.transaction_first_offset != NO_OFFSET]
        for state in sorted(opened, key=attrgetter("transaction_first_offset")):
            self._open_transactions[state.producer_id] = state.transaction_first_offset


def _snapshot_entry(state: ProducerStateEntry) -> bytes:
    last = state.batches[-1] if state.batches else None
    return _SNAPSHOT_ENTRY.pack(
        state.producer_id,
        state.epoch,
        last.last_sequence if last else NO_SEQUENCE,
        last.last_offset if last else NO_OFFSET,
        last.last_offset - last.first_offset if last else 0,
        state.last_timestamp,
        state.coordinator_epoch,
        state.transaction_first_offset,
    )


def _earlier_batches(state: ProducerStateEntry) -> bytes:
    """All but the last one."""
    count = len(state.batches) - 1
    batches = [_EARLIER_BATCH.pack(*batch) for batch in islice(state.batches, count)]
    return _EARLIER_BATCHES.pack(state.producer_id, count) + b"".join(batches)


def _snapshot_states(snapshot: bytes) -> list[ProducerStateEntry]:
    if len(snapshot) < _SNAPSHOT_HEADER.size:
        raise CorruptSnapshot(f"{len(snapshot)} bytes are less than a header")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(snapshot)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"version {version} is unknown")
    if crc32c(memoryview(snapshot)[_SNAPSHOT_CRC_START:]) != crc:
        raise CorruptSnapshot("its CRC does not match")
    entries_end = _SNAPSHOT_HEADER.size + count * _SNAPSHOT_ENTRY.size
    if len(snapshot) < entries_end:
        raise CorruptSnapshot(f"{count} entries do not fit into {len(snapshot)} bytes")
    entries = _SNAPSHOT_ENTRY.iter_unpack(snapshot[_SNAPSHOT_HEADER.size : entries_end])
    states = {entry[0]: _snapshot_state(*entry) for entry in entries}
    try:
        _restore_earlier_batches(states, snapshot, entries_end)
    except (KeyError, struct.error) as error:
        raise CorruptSnapshot(f"the batches behind {count} entries cannot be read: {error!r}") from error
    return list(states.values())


def _restore_earlier_batches(states: dict[int, ProducerStateEntry], snapshot: bytes, position: int) -> None:
    while position < len(snapshot):
        producer_id, count = _EARLIER_BATCHES.unpack_from(snapshot, position)
        position += _EARLIER_BATCHES.size
        if not 0 < count < REMEMBERED_BATCHES:
            raise CorruptSnapshot(f"{count} batches before the last one of producer {producer_id}")
        for number in reversed(range(count)):
            batch = _EARLIER_BATCH.unpack_from(snapshot, position + number * _EARLIER_BATCH.size)
            states[producer_id].batches.appendleft(BatchMetadata(*batch))
        position += count * _EARLIER_BATCH.size


def _snapshot_state(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_first_offset: int,
) -> ProducerStateEntry:
    state = ProducerStateEntry(producer_id)
    state.epoch = epoch
    state.last_timestamp = timestamp
    state.coordinator_epoch = coordinator_epoch
    state.transaction_first_offset = transaction_first_offset
    if last_offset >= 0:
        first_sequence = NO_SEQUENCE if last_sequence == NO_SEQUENCE else (last_sequence - offset_delta) & MAX_SEQUENCE
        first_offset = last_offset - offset_delta
        state.remember(BatchMetadata(first_sequence, last_sequence, first_offset, last_offset, timestamp))
    return state
