"""Transaction metadata of a transactional id (Kafka: TransactionMetadata), as an immutable value."""

# Core: no clock, no I/O, no await.

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from tidelog.errors import ProducerFenced
from tidelog.protocol.internal.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from tidelog.protocol.internal.versioned import decode_versioned, encode_versioned
from tidelog.protocol.transaction_groups import TransactionalId
from tidelog.state_machine import SharedHistory
from tidelog.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
    TRANSITIONS,
    TransactionState,
)
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, Buffer, TopicPartition, indexes_by_topic

KEY_VERSION = 0
VALUE_VERSION = 1

LAST_EPOCH = 32767
"""Never given to a client: reserved for fencing the epoch before it."""
LAST_CLIENT_EPOCH = LAST_EPOCH - 1

NO_BATCH_ID = -1

TV_0 = 0
"""Transactions version that Kafka records for all clients before version 2."""
TV_2 = 2
"""Transactions version 2: each transaction has an epoch of its own, and writing adds partitions (KIP-890)."""


NO_HISTORY: Final = SharedHistory[str]()
"""History of a new transaction, or of one outside a state manager."""


class ProducerIdentity(NamedTuple):
    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"producer id {self.producer_id}, epoch {self.producer_epoch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """State of a transactional id, which has one transaction at a time. Each transition returns a new object."""

    id: TransactionalId
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    updated_at_ms: int
    started_at_ms: int = NO_TIMESTAMP
    partitions: frozenset[TopicPartition] = frozenset()
    client_version: int = TV_0
    """Transactions version of the client that made the last transition."""
    previous_producer_id: int = NO_PRODUCER_ID
    """Producer id before the last transition; differs from the current one if that transition exhausted the epochs."""
    next_producer_id: int = NO_PRODUCER_ID
    """Producer id that replaces the current one at the end of this transaction."""
    last_epoch: int = NO_PRODUCER_EPOCH
    """Epoch that the producer sent when it requested the current one, so that it can repeat the request (KIP-360)."""
    batch_id: int = NO_BATCH_ID
    """For a transaction group: the last committed batch."""
    winners: tuple[str, ...] = ()
    """For a transaction group: the members to commit."""
    history: SharedHistory[str] = field(default=NO_HISTORY, compare=False, repr=False)
    """History shared by all transactions of a partition, for the error of an illegal transition."""

    @property
    def transactional_id(self) -> str:
        return self.id.text

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def next_identity(self) -> ProducerIdentity:
        """Identity of the producer after this transaction; the producer gets it before all markers are written."""
        if self.has_epoch_per_transaction and self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdentity(self.next_producer_id, 0)
        return self.identity

    @property
    def has_epoch_per_transaction(self) -> bool:
        return self.client_version >= TV_2

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    @property
    def times_out_at_ms(self) -> int:
        return self.started_at_ms + self.timeout_ms

    @property
    def is_committing(self) -> bool:
        return self.state is PREPARE_COMMIT

    # ---- transitions

    def _moved(self, state: TransactionState, **changes: Any) -> "Transaction":
        self.history.check(TRANSITIONS, self.transactional_id, self.state, state, self.identity)
        changes.setdefault("next_producer_id", NO_PRODUCER_ID)
        return replace(self, state=state, previous_producer_id=self.producer_id, **changes)

    def initialized(
        self, expected_epoch: int | None, timeout_ms: int, now_ms: int, new_producer_id: int | None
    ) -> "Transaction":
        """Start the next epoch, or the first epoch of a new producer id. Raises ProducerFenced."""
        if new_producer_id is not None:
            identity = ProducerIdentity(new_producer_id, 0)
            last_epoch = NO_PRODUCER_EPOCH if expected_epoch is None else self.producer_epoch
        else:
            epoch, last_epoch = self._next_epoch(expected_epoch)
            identity = ProducerIdentity(self.producer_id, epoch)
        return self._moved(
            EMPTY,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_at_ms=NO_TIMESTAMP,
            updated_at_ms=now_ms,
        )

    def _next_epoch(self, expected_epoch: int | None) -> tuple[int, int]:
        """Next epoch, and the previous one if this producer had it."""
        if expected_epoch is None or self.producer_epoch == NO_PRODUCER_EPOCH:
            return self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch == self.producer_epoch:
            return self.producer_epoch + 1, self.producer_epoch
        if expected_epoch == self._epoch_before():
            return self.producer_epoch, expected_epoch  # a repeated request: the response was lost
        raise ProducerFenced(f"the epoch is {self.producer_epoch}, not {expected_epoch}")

    def _epoch_before(self) -> int:
        """Previous epoch, which the producer may still name: EndTxn of transactions version 2 increments the epoch."""
        if self.state.is_completed and self.has_epoch_per_transaction:
            return self.producer_epoch - 1 if self.producer_epoch else LAST_CLIENT_EPOCH
        return self.last_epoch

    def with_partitions(self, added: Iterable[TopicPartition], now_ms: int, client_version: int) -> "Transaction":
        return self._moved(
            ONGOING,
            partitions=self.partitions.union(added),
            started_at_ms=self.started_at_ms if self.state is ONGOING else now_ms,
            updated_at_ms=now_ms,
            client_version=client_version,
        )

    def prepared(
        self, state: TransactionState, client_version: int, now_ms: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> "Transaction":
        """Decide the outcome. With an epoch per transaction the markers have the next one, which fences late writes."""
        is_bumped = client_version >= TV_2 and self.producer_epoch < LAST_EPOCH
        return self._moved(
            state,
            producer_epoch=self.producer_epoch + is_bumped,
            next_producer_id=next_producer_id,
            last_epoch=NO_PRODUCER_EPOCH,
            started_at_ms=self.started_at_ms if self.state is ONGOING else now_ms,
            updated_at_ms=now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> "Transaction":
        """All markers are written."""
        identity = self.next_identity
        return self._moved(
            COMPLETE_COMMIT if self.state is PREPARE_COMMIT else COMPLETE_ABORT,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            partitions=frozenset(),
            updated_at_ms=now_ms,
            winners=(),
        )

    # ---- records

    def encode(self) -> bytes:
        return encode_versioned(
            TransactionLogValue(
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                transaction_timeout_ms=self.timeout_ms,
                transaction_status=self.state,
                transaction_partitions=None if self.state is EMPTY else _schemas(self.partitions),
                transaction_last_update_timestamp_ms=self.updated_at_ms,
                transaction_start_timestamp_ms=self.started_at_ms,
                previous_producer_id=self.previous_producer_id,
                next_producer_id=self.next_producer_id,
                client_transaction_version=self.client_version,
                group_batch_id=self.batch_id,
                group_winners=list(self.winners),
                last_producer_epoch=self.last_epoch,
            ),
            VALUE_VERSION,
        )


def created(transactional_id: TransactionalId, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """A new transaction; `initialized` gives it its first epoch."""
    return Transaction(
        id=transactional_id,
        producer_id=producer_id,
        producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=timeout_ms,
        state=EMPTY,
        updated_at_ms=now_ms,
    )


def _schemas(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    return [PartitionsSchema(topic, indexes) for topic, indexes in indexes_by_topic(partitions).items()]


def encode_key(transactional_id: str) -> bytes:
    return encode_versioned(TransactionLogKey(transactional_id), KEY_VERSION)


def decode_key(key: Buffer) -> str:
    return decode_versioned(TransactionLogKey, key).transactional_id


def decode_transaction(
    transactional_id: TransactionalId, value: Buffer, history: SharedHistory[str] = NO_HISTORY
) -> Transaction:
    record = decode_versioned(TransactionLogValue, value)
    return Transaction(
        id=transactional_id,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        timeout_ms=record.transaction_timeout_ms,
        state=TransactionState(record.transaction_status),
        updated_at_ms=record.transaction_last_update_timestamp_ms,
        started_at_ms=record.transaction_start_timestamp_ms,
        partitions=frozenset(
            TopicPartition(schema.topic, index)
            for schema in record.transaction_partitions or ()
            for index in schema.partition_ids
        ),
        client_version=record.client_transaction_version,
        previous_producer_id=record.previous_producer_id,
        next_producer_id=record.next_producer_id,
        last_epoch=record.last_producer_epoch,
        batch_id=record.group_batch_id,
        winners=tuple(record.group_winners),
        history=history,
    )
