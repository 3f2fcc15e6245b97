"""Transaction state manager: transactions of one `__transaction_state` partition, their timers and pending markers."""

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
    TIMEOUT = auto()  # the transaction timed out
    FINISH = auto()  # retry of writing the completed state
    EXPIRATION = auto()  # deletion of unused transactional ids


class TimerKey(NamedTuple):
    kind: TimerKind
    transactional_id: TransactionalId | None = None


EXPIRATION = TimerKey(TimerKind.EXPIRATION)


def start_timeout(transaction: Transaction, effects: Effects) -> None:
    """Start the timeout, which replaces that of an earlier transaction. Never cancelled: it may find nothing to do.

    The timer runs on the monotonic clock: a wall clock that is set back would keep the transaction open and hold back
    the last stable offset of its partitions.
    """
    effects.set_timer(TimerKey(TimerKind.TIMEOUT, transaction.id), transaction.timeout_ms)


def resume_timeout(transaction: Transaction, times_out_at_ms: int, effects: Effects) -> None:
    """Resume the timeout on a new coordinator. Its clock may be far behind: never more than the full timeout."""
    left_ms = min(max(0, times_out_at_ms - effects.now_ms), transaction.timeout_ms)
    effects.set_timer(TimerKey(TimerKind.TIMEOUT, transaction.id), left_ms)


MAX_FORGOTTEN_BYTES = 100_000
"""The tombstones of one step must fit into a batch."""
TOMBSTONE_OVERHEAD_BYTES = 20


class MarkerOrder(NamedTuple):
    """Markers of one ended transaction, for all its partitions."""

    transactional_id: TransactionalId
    producer_id: int
    producer_epoch: int
    is_committed: bool
    transaction_version: int
    partitions: frozenset[TopicPartition]


class TransactionStateManager:
    def __init__(self, send: Callable[[MarkerOrder], None]) -> None:
        self._send = send
        self.by_id: dict[str, Transaction] = {}
        self._history = SharedHistory[str]()
        self._members: dict[str, dict[str, None]] = defaultdict(dict)
        """Members of each transaction group, in order of arrival."""
        self._member_bytes: Counter[str] = Counter()
        """Encoded size of the member ids of each group."""
        self._unwritten: dict[str, tuple[MarkerOrder, set[TopicPartition]]] = {}
        """Partitions that lack a marker. Not persistent: after a reload all markers are sent again."""

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
        """Delete as many as fit into one step; True if these were all."""
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
            logger.error("skipped malformed transaction record key=%s error=%s", record.key, error)
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
        """Send the markers once the decision is committed, not before."""

        def begin(_: Effects) -> None:
            self._unwritten[order.transactional_id.text] = (order, set(order.partitions))
            self._send(order)

        effects.after_commit.append(begin)

    def on_markers_written(self, order: MarkerOrder, partitions: frozenset[TopicPartition]) -> bool:
        """True if these were the last partitions of the order and the order is still current."""
        awaited, left = self._unwritten.get(order.transactional_id.text, (None, None))
        if awaited != order or left is None:
            return False
        left -= partitions
        return not left

    def is_done(self, transaction: Transaction) -> bool:
        """True if its markers are written, or it needs none."""
        return not self.partitions_left(transaction)

    def partitions_left(self, transaction: Transaction) -> frozenset[TopicPartition]:
        """Partitions of the transaction; while it ends, those that lack a marker."""
        _, left = self._unwritten.get(transaction.transactional_id, (None, None))
        return transaction.partitions if left is None else frozenset(left)


def id_bytes(transactional_id: str) -> int:
    """Encoded size of the id in a record."""
    return len(transactional_id.encode()) + 2
