"""What keeps a late commit from beginning a transaction that nobody would end (KIP-890).

Before offsets become part of a transaction its coordinator is asked whether it goes on. It may end between the answer
and the commit: the end marker breaks the guard, and the commit is refused.
"""

from tidelog.errors import InvalidTxnState, NotCoordinator


class TransactionGuard:
    """Of one commit that waits for the transaction's coordinator."""

    __slots__ = ("is_broken", "producer_id")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.is_broken = False


class TransactionGuards:
    def __init__(self) -> None:
        self._by_producer: dict[int, set[TransactionGuard]] = {}

    def add(self, guard: TransactionGuard) -> None:
        self._by_producer.setdefault(guard.producer_id, set()).add(guard)

    def remove(self, guard: TransactionGuard) -> None:
        guards = self._by_producer.get(guard.producer_id, set())
        guards.discard(guard)
        if not guards:
            self._by_producer.pop(guard.producer_id, None)

    def check(self, guard: TransactionGuard) -> None:
        if guard.is_broken:
            raise InvalidTxnState("the transaction has ended meanwhile")
        if guard not in self._by_producer.get(guard.producer_id, ()):
            raise NotCoordinator("the group had another coordinator meanwhile")

    def on_transaction_ended(self, producer_id: int) -> None:
        for guard in self._by_producer.pop(producer_id, ()):
            guard.is_broken = True
