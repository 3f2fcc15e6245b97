"""All transactions of one partition of the state topic, their timers, and the markers on their way for them."""

# Core that logs: no clock, no I/O, no await.

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from typing import NamedTuple

from tidelog.errors import UnsupportedVersion
from tidelog.protocol.errors import MalformedMessage
from tidelog.protocol.transaction_groups import MemberId, TransactionalId, parse_transactional_id
from tidelog.replicated.machine import Effects, StateRecord
from tidelog.state_machine import SharedHistory
from tidelog.transactions.transaction import Transaction, decode_key, decode_transaction, encode_key
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)


class TimerKind(Enum):
    TIMEOUT = auto()  # a transaction has taken too long
    FINISH = auto()  # that all markers are written could not be noted
    EXPIRATION = auto()  # ids that nobody uses are forgotten


class TimerKey(NamedTuple):
    kind: TimerKind
    transactional_id: TransactionalId | None = None


EXPIRATION = TimerKey(TimerKind.EXPIRATION)


def start_timeout(transaction: Transaction, effects: Effects) -> None:
    """In place of the timer of an earlier transaction. It is never cancelled: on expiry there may be nothing to abort.

    Once it runs the wall clock does not matter: one that is set back would keep the transaction open, and with it hold
    back the last stable offset of its partitions.
    """
    effects.set_timer(TimerKey(TimerKind.TIMEOUT, transaction.id), transaction.timeout_ms)


def resume_timeout(transaction: Transaction, times_out_at_ms: int, effects: Effects) -> None:
    """Under a new coordinator, whose clock may be far behind that of the one before: never more than the timeout."""
    left_ms = min(max(0, times_out_at_ms - effects.now_ms), transaction.timeout_ms)
    effects.set_timer(TimerKey(TimerKind.TIMEOUT, transaction.id), left_ms)


MAX_FORGOTTEN_BYTES = 100_000
"""What is forgotten in one step must fit into a batch."""
TOMBSTONE_OVERHEAD_BYTES = 20


class MarkerOrder(NamedTuple):
    """How the transaction of a producer ends, for all its partitions."""

    transactional_id: TransactionalId
    producer_id: int
    producer_epoch: int
    is_committed: bool
    transaction_version: int
    partitions: frozenset[TopicPartition]


class TransactionLedger:
    def __init__(self, send: Callable[[MarkerOrder], None]) -> None:
        self._send = send
        self.by_id: dict[str, Transaction] = {}
        self._history = SharedHistory[str]()
        self._members: dict[str, dict[str, None]] = defaultdict(dict)
        """The members of each transaction group, in the order in which they came."""
        self._member_bytes: Counter[str] = Counter()
        """How much room the ids of a group's members take."""
        self._unwritten: dict[str, tuple[MarkerOrder, set[TopicPartition]]] = {}
        """Where a marker is on its way: soft, since after a reload all of them are sent again."""

    def get(self, transactional_id: str) -> Transaction | None:
        return self.by_id.get(transactional_id)

    def members_of(self, group_id: str) -> list[Transaction]:
        return [self.by_id[member_id] for member_id in self._members.get(group_id, ())]

    def member_count(self, group_id: str) -> int:
        return len(self._members.get(group_id, ()))

    def member_bytes(self, group_id: str) -> int:
        return self._member_bytes[group_id]

    def __iter__(self) -> Iterator[Transaction]:
        return iter(list(self.by_id.values()))

    # ---- records

    def write(self, transaction: Transaction, effects: Effects) -> None:
        effects.write(encode_key(transaction.transactional_id), transaction.encode())

    def forget(self, transaction: Transaction, effects: Effects) -> None:
        effects.write(encode_key(transaction.transactional_id), None)

    def forget_some(self, transactions: Iterable[Transaction], effects: Effects) -> bool:
        """As many as one step can take; whether these were all."""
        size_bytes = 0
        for transaction in transactions:
            if size_bytes >= MAX_FORGOTTEN_BYTES:
                return False
            self.forget(transaction, effects)
            size_bytes += len(effects.records[-1].key) + TOMBSTONE_OVERHEAD_BYTES
        return True

    def replay(self, record: StateRecord) -> None:
        try:
            transactional_id = parse_transactional_id(decode_key(record.key))
            transaction = (
                None if record.value is None else decode_transaction(transactional_id, record.value, self._history)
            )
        except (MalformedMessage, UnsupportedVersion, ValueError) as error:
            logger.error("skipped a record of a transaction that cannot be read key=%s error=%s", record.key, error)
            return
        if transaction is None:
            self._remove(transactional_id)
        else:
            self._put(transaction)

    def _put(self, transaction: Transaction) -> None:
        transactional_id = transaction.id.text
        earlier = self.by_id.get(transactional_id)
        if earlier is not None and earlier.state is not transaction.state:
            self._history.record(transactional_id, earlier.state, transaction.state, transaction.identity)
        self.by_id[transactional_id] = transaction
        if isinstance(transaction.id, MemberId):
            group_id = transaction.id.group_id
            others = self._members[group_id]
            if transactional_id not in others:
                others[transactional_id] = None
                self._member_bytes[group_id] += id_bytes(transactional_id)
        elif not transaction.state.is_prepared:
            self._unwritten.pop(transactional_id, None)

    def _remove(self, removed: TransactionalId) -> None:
        transactional_id = removed.text
        self.by_id.pop(transactional_id, None)
        self._unwritten.pop(transactional_id, None)
        if isinstance(removed, MemberId):
            others = self._members.get(removed.group_id, {})
            if transactional_id in others:
                del others[transactional_id]
                self._member_bytes[removed.group_id] -= id_bytes(transactional_id)
            if not others:
                self._members.pop(removed.group_id, None)
                self._member_bytes.pop(removed.group_id, None)

    # ---- markers

    def order_markers(self, order: MarkerOrder, effects: Effects) -> None:
        """Once the decision is committed, and not before."""

        def begin() -> None:
            self._unwritten[order.transactional_id.text] = (order, set(order.partitions))
            self._send(order)

        effects.after_commit.append(begin)

    def on_markers_written(self, order: MarkerOrder, partitions: frozenset[TopicPartition]) -> bool:
        """Whether these were the last ones of that order, as far as it still counts."""
        awaited, left = self._unwritten.get(order.transactional_id.text, (None, None))
        if awaited != order or left is None:
            return False
        left -= partitions
        return not left

    def is_done(self, transaction: Transaction) -> bool:
        """Its markers are written, or it needs none."""
        return not self.partitions_left(transaction)

    def partitions_left(self, transaction: Transaction) -> frozenset[TopicPartition]:
        """Of the transaction; while it ends, those that lack their marker."""
        _, left = self._unwritten.get(transaction.transactional_id, (None, None))
        return transaction.partitions if left is None else frozenset(left)


def id_bytes(transactional_id: str) -> int:
    """The room that it takes among others in a record."""
    return len(transactional_id.encode()) + 2
