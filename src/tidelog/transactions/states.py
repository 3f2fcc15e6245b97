"""The states of a transaction as the coordinator sees them, and which state may follow which."""

from collections.abc import Mapping
from enum import IntEnum


class TransactionState(IntEnum):
    """Numbered as in the records of `__transaction_state`."""

    EMPTY = 0  # the producer has its id and epoch, and has not begun
    ONGOING = 1
    PREPARE_COMMIT = 2  # decided; the markers are being written
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4  # all markers are written
    COMPLETE_ABORT = 5
    DEAD = 6  # Kafka's word for an id about to be forgotten; never written
    PREPARE_EPOCH_FENCE = 7  # Kafka's word for an abort about to be written; never written

    @property
    def label(self) -> str:
        """As the admin APIs spell it: `PrepareCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        return self in _PREPARED

    @property
    def is_completed(self) -> bool:
        return self in _COMPLETED

    @property
    def may_expire(self) -> bool:
        return self is TransactionState.EMPTY or self in _COMPLETED


EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

_PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
_COMPLETED = frozenset({COMPLETE_COMMIT, COMPLETE_ABORT})

STATES_BY_LABEL: Mapping[str, TransactionState] = {state.label: state for state in TransactionState}

MOVES: Mapping[TransactionState, frozenset[TransactionState]] = {
    EMPTY: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    ONGOING: frozenset({ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_COMMIT: frozenset({ONGOING}),
    # A producer of transactions version 2 may abort what it has not begun, and gets its next epoch for it (KIP-890).
    PREPARE_ABORT: frozenset({ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    TransactionState.DEAD: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({ONGOING}),
}
"""From which states a transaction may come into each state."""


class IllegalMove(AssertionError):
    """A mistake of ours: a transaction was to take a step that its state does not allow."""

    def __init__(self, transactional_id: str, before: TransactionState, target: TransactionState) -> None:
        super().__init__(f"{transactional_id}: {before.label} -> {target.label}")
