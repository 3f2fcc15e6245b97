"""What metrics tell of transactions."""

# Core: no clock, no I/O, no await.

from tidelog.replicated.machine import Effects
from tidelog.transactions.transaction import Transaction


class TransactionCounts:
    """What has happened since the broker started, in all partitions that it has coordinated since."""

    __slots__ = ("aborts", "commits", "timeouts")

    def __init__(self) -> None:
        self.commits = 0
        self.aborts = 0
        self.timeouts = 0
        """Of the aborts, those of transactions that took too long."""

    def note_decision(self, decided: Transaction, effects: Effects) -> None:
        """It counts once it is committed."""
        effects.after_commit.append(self._note_commit if decided.is_committing else self._note_abort)

    def _note_commit(self) -> None:
        self.commits += 1

    def _note_abort(self) -> None:
        self.aborts += 1

    def note_timeout(self) -> None:
        self.timeouts += 1
