"""The timers of a transaction coordinator."""

from enum import Enum, auto
from typing import NamedTuple

from tidelog.protocol.transaction_groups import TransactionalId
from tidelog.replicated.machine import Effects
from tidelog.transactions.transaction import Transaction


class TimerKind(Enum):
    TIMEOUT = auto()  # a transaction has taken too long
    FINISH = auto()  # that all markers are written could not be noted
    EXPIRATION = auto()  # ids that nobody uses are forgotten


class TimerKey(NamedTuple):
    kind: TimerKind
    transactional_id: TransactionalId | None = None


EXPIRATION = TimerKey(TimerKind.EXPIRATION)


def set_timeout(transaction: Transaction, effects: Effects) -> None:
    """It is never cancelled: whoever is told looks whether there is still something to abort."""
    delay_ms = max(0, transaction.times_out_at_ms - effects.now_ms)
    effects.set_timer(TimerKey(TimerKind.TIMEOUT, transaction.id), delay_ms)
