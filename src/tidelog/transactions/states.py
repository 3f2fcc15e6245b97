"""Transaction states of the coordinator, with their legal transitions."""

# Core: no clock, no I/O, no await.

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from tidelog.state_machine import TransitionTable


class TransactionState(IntEnum):
    """Numbered as in the records of `__transaction_state`."""

    EMPTY = 0  # the producer has its id and epoch, no transaction has begun
    ONGOING = 1
    PREPARE_COMMIT = 2  # decided, markers are being written
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4  # all markers are written
    COMPLETE_ABORT = 5
    DEAD = 6  # in Kafka, an id that is being deleted; never written here
    PREPARE_EPOCH_FENCE = 7  # in Kafka, a producer that is being fenced before an abort; never written here

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
DEAD, PREPARE_EPOCH_FENCE = TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE

_PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
_COMPLETED = frozenset({COMPLETE_COMMIT, COMPLETE_ABORT})

STATES_BY_LABEL: Mapping[str, TransactionState] = {state.label: state for state in TransactionState}

_TABLE: Final = {
    # With transactions version 2 a producer may abort before it has begun: it gets its next epoch (KIP-890).
    EMPTY: {EMPTY, ONGOING, PREPARE_ABORT, DEAD},
    ONGOING: {ONGOING, PREPARE_COMMIT, PREPARE_ABORT, PREPARE_EPOCH_FENCE},
    PREPARE_COMMIT: {COMPLETE_COMMIT},
    PREPARE_ABORT: {COMPLETE_ABORT},
    COMPLETE_COMMIT: {EMPTY, ONGOING, PREPARE_ABORT, DEAD},
    COMPLETE_ABORT: {EMPTY, ONGOING, PREPARE_ABORT, DEAD},
    DEAD: set[TransactionState](),
    PREPARE_EPOCH_FENCE: set[TransactionState](),
}

TRANSITIONS: Final = TransitionTable(_TABLE)
