"""Transaction guards of TxnOffsetCommit: a late commit must not begin a transaction that never ends (KIP-890).

Before offsets become part of a transaction, the transaction coordinator verifies that it is open. The transaction may
end between the verification and the commit: the end marker breaks the guard, and the commit is refused.
"""

# Core: no clock, no I/O, no await.

from tidelog.errors import InvalidTxnState, NotCoordinator
from tidelog.storage.verification_guards import LAST_PRODUCER_EPOCH


class OffsetCommitGuard:
    """Guard of one commit that waits for the transaction coordinator."""

    __slots__ = ("is_broken", "own_epoch", "producer_id")

    def __init__(self, producer_id: int, own_epoch: int | None = None) -> None:
        self.producer_id = producer_id
        self.own_epoch = own_epoch
        """Producer epoch, if every transaction has its own."""
        self.is_broken = False

    def is_later_than_marker(self, marker_epoch: int) -> bool:
        """True if the guard belongs to the next transaction: producers begin it before the last marker has arrived."""
        return self.own_epoch is not None and marker_epoch <= self.own_epoch < LAST_PRODUCER_EPOCH


class OffsetCommitGuards:
    def __init__(self) -> None:
        self._by_producer: dict[int, set[OffsetCommitGuard]] = {}

    def add(self, guard: OffsetCommitGuard) -> None:
        self._by_producer.setdefault(guard.producer_id, set()).add(guard)

    def remove(self, guard: OffsetCommitGuard) -> None:
        guards = self._by_producer.get(guard.producer_id, set())
        guards.discard(guard)
        if not guards:
            self._by_producer.pop(guard.producer_id, None)

    def check(self, guard: OffsetCommitGuard) -> None:
        if guard.is_broken:
            raise InvalidTxnState("the transaction has ended in the meantime")
        if guard not in self._by_producer.get(guard.producer_id, ()):
            raise NotCoordinator("the group had another coordinator in the meantime")

    def on_transaction_ended(self, producer_id: int, marker_epoch: int) -> None:
        for guard in list(self._by_producer.get(producer_id, ())):
            if not guard.is_later_than_marker(marker_epoch):
                self._break(guard)

    def break_all(self, producer_id: int) -> None:
        """Break all guards, for a marker whose epoch does not identify the transaction."""
        for guard in list(self._by_producer.get(producer_id, ())):
            self._break(guard)

    def _break(self, guard: OffsetCommitGuard) -> None:
        guard.is_broken = True
        self.remove(guard)
