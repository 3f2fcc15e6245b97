"""Transaction metrics: numbers of commits, aborts and timeouts."""

# Core: no clock, no I/O, no await.

from tidelog.replicated.machine import Effects
from tidelog.transactions.transaction import Transaction


class TransactionCounts:
    """Counters since the broker started, over all partitions that it coordinated."""

    __slots__ = ("aborts", "commits", "timeouts")

    def __init__(self) -> None:
        self.commits = 0
        self.aborts = 0
        self.timeouts = 0
        """Aborts of transactions that timed out."""

    def record_decision(self, decided: Transaction, effects: Effects) -> None:
        """Count the decision once it is committed."""
        effects.after_commit.append(self._record_commit if decided.is_committing else self._record_abort)

    def _record_commit(self, _: Effects) -> None:
        self.commits += 1

    def _record_abort(self, _: Effects) -> None:
        self.aborts += 1

    def record_timeout(self, _: Effects) -> None:
        self.timeouts += 1
