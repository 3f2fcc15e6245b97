"""Transaction state machine of one `__transaction_state` partition: decides on requests, timers and written markers.

Kafka refuses requests while a record is being appended. Here the next step sees the uncommitted records before it, and
its response waits until they are committed: a response never depends on a record that may still be lost.
"""

# Core that logs: no clock, no I/O, no await.

import logging
from collections.abc import Callable, Collection
from typing import TypeAlias

from tidelog.config.coordinators import CoordinatorSettings
from tidelog.errors import (
    NO_ERROR,
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    TransactionalIdNotFound,
)
from tidelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsResponse
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.structs import Response
from tidelog.protocol.transaction_groups import GroupId, MemberId, PlainId, TransactionalId
from tidelog.replicated.machine import Effects, Producer, Reply, ReplyOutcome, StateRecord
from tidelog.transactions.descriptions import description, verified
from tidelog.transactions.groups import TransactionGroups
from tidelog.transactions.rules import (
    check_expected,
    check_owner,
    check_producer,
    expected_identity,
    needs_new_producer_id,
    should_end,
)
from tidelog.transactions.state_manager import (
    EXPIRATION,
    MarkerOrder,
    TimerKey,
    TimerKind,
    TransactionStateManager,
    resume_timeout,
    start_timeout,
)
from tidelog.transactions.states import ONGOING, PREPARE_ABORT, PREPARE_COMMIT
from tidelog.transactions.statistics import TransactionCounts
from tidelog.transactions.transaction import (
    NO_BATCH_ID,
    TV_0,
    TV_2,
    ProducerIdentity,
    Transaction,
    created,
)
from tidelog.types import NO_PRODUCER_ID, TopicPartition

logger = logging.getLogger(__name__)

FINISH_RETRY_MS = 1000
NEXT_EXPIRED_MS = 100

Outcome: TypeAlias = Response | KafkaError


class TransactionMachine:
    def __init__(
        self,
        settings: Callable[[], CoordinatorSettings],
        take_producer_id: Callable[[], int],
        send_markers: Callable[[MarkerOrder], None],
        counts: TransactionCounts | None = None,
    ) -> None:
        """`take_producer_id` raises a KafkaError if no producer id is available."""
        self._settings = settings
        self._take_producer_id = take_producer_id
        self.state_manager = TransactionStateManager(send_markers)
        self._counts = counts or TransactionCounts()
        self._groups = TransactionGroups(self.state_manager, take_producer_id, self._counts)
        self.on_gone: Callable[[], None] = lambda: None
        """Called when this broker is no longer the coordinator."""
        self.is_gone = False

    # ---- StateMachine

    def replay(self, record: StateRecord, producer: Producer | None) -> None:
        self.state_manager.replay(record)

    def replay_end_marker(self, producer: Producer, *, is_committed: bool) -> None:
        """No record of this topic is part of a transaction."""

    def on_loaded(self, effects: Effects) -> None:
        """Orders markers and writes nothing: a refused write would drop the markers too. Timers make the writes."""
        effects.is_read_of_state = True
        effects.set_timer(EXPIRATION, self._settings().transaction_remove_expired_transaction_cleanup_interval_ms)
        for transaction in self.state_manager:
            if isinstance(transaction.id, MemberId):
                continue  # its group orders its markers
            if transaction.state is ONGOING:
                resume_timeout(transaction, self._times_out_at_ms(transaction), effects)
            elif transaction.state.is_prepared:
                self._order_markers(transaction, effects)
                effects.set_timer(TimerKey(TimerKind.FINISH, transaction.id), 0)

    def on_unloaded(self, effects: Effects) -> None:
        self.is_gone = True
        self.on_gone()

    def on_timer(self, key: TimerKey, effects: Effects) -> None:
        match key:
            case TimerKey(TimerKind.EXPIRATION):
                self._expire(effects)
            case TimerKey(TimerKind.TIMEOUT, PlainId() | GroupId() as transactional_id):
                self._on_timeout(transactional_id, effects)
            case TimerKey(TimerKind.FINISH, PlainId() | GroupId() | MemberId() as transactional_id):
                self._finish(transactional_id, effects)

    # ---- InitProducerId

    def init(
        self, transactional_id: TransactionalId, request: InitProducerIdRequest, reply: Reply, effects: Effects
    ) -> None:
        def decide() -> Outcome:
            match transactional_id:
                case PlainId():
                    return self._init(transactional_id, request, effects)
                case GroupId():
                    return self._groups.open(transactional_id, request, effects)
                case MemberId():
                    return self._groups.add_member(transactional_id, request, effects)

        self._answer(reply, effects, decide)

    def _init(self, plain_id: PlainId, request: InitProducerIdRequest, effects: Effects) -> Outcome:
        timeout_ms, expected = request.transaction_timeout_ms, expected_identity(request)
        transaction = self.state_manager.get(plain_id.text)
        if transaction is None:
            transaction = created(plain_id, self._take_producer_id(), timeout_ms, effects.now_ms)
        else:
            check_expected(transaction, expected)
        if transaction.state is ONGOING:
            check_owner(transaction, expected)
            self._abort(transaction, effects, "its producer was initialized again")
            return ConcurrentTransactions("the open transaction is being aborted")
        return self._initialize(transaction, expected, timeout_ms, effects)

    def _initialize(
        self, transaction: Transaction, expected: ProducerIdentity | None, timeout_ms: int, effects: Effects
    ) -> InitProducerIdResponse:
        new_producer_id = self._take_producer_id() if needs_new_producer_id(transaction, expected) else None
        expected_epoch = None if expected is None else expected.producer_epoch
        initialized = transaction.initialized(expected_epoch, timeout_ms, effects.now_ms, new_producer_id)
        self.state_manager.write(initialized, effects)
        return InitProducerIdResponse(
            error_code=NO_ERROR, producer_id=initialized.producer_id, producer_epoch=initialized.producer_epoch
        )

    # ---- AddPartitionsToTxn, AddOffsetsToTxn

    def add_partitions(
        self,
        transactional_id: TransactionalId,
        identity: ProducerIdentity,
        partitions: Collection[TopicPartition],
        client_version: int,
        granted: Response,
        reply: Reply,
        effects: Effects,
    ) -> None:
        """`granted` is the response if the partitions are part of the transaction, new or not."""

        def decide() -> Outcome:
            transaction = self._check_producer(transactional_id, identity)
            if transaction.state is not ONGOING or not transaction.partitions.issuperset(partitions):
                self._add(transaction, partitions, client_version, effects)
            return granted

        self._answer(reply, effects, decide)

    def verify_partitions(
        self,
        transactional_id: TransactionalId,
        identity: ProducerIdentity,
        partitions: Collection[TopicPartition],
        reply: Reply,
        effects: Effects,
    ) -> None:
        """Check that partitions are part of the transaction, without adding them (KIP-890)."""

        def decide() -> Outcome:
            transaction = self._check_producer(transactional_id, identity)
            return AddPartitionsToTxnResponse(
                error_code=NO_ERROR,
                results_by_transaction=[verified(transaction, partitions)],
            )

        self._answer(reply, effects, decide)

    def _check_producer(self, transactional_id: TransactionalId, identity: ProducerIdentity) -> Transaction:
        if isinstance(transactional_id, GroupId):
            raise InvalidTxnState("the members of a transaction group write, not the group")
        transaction = check_producer(self.state_manager.get(transactional_id.text), identity)
        if isinstance(transactional_id, MemberId):
            self._groups.check_open(transactional_id)
        return transaction

    def _add(
        self, transaction: Transaction, partitions: Collection[TopicPartition], client_version: int, effects: Effects
    ) -> None:
        self.state_manager.write(transaction.with_partitions(partitions, effects.now_ms, client_version), effects)
        if isinstance(transaction.id, MemberId):
            self._groups.on_member_writes(transaction.id, effects)
        elif transaction.state is not ONGOING:
            start_timeout(transaction, effects)

    # ---- EndTxn

    def end(
        self,
        transactional_id: TransactionalId,
        request: EndTxnRequest,
        api_version: int,
        reply: Reply,
        effects: Effects,
    ) -> None:
        def decide() -> Outcome:
            match transactional_id:
                case PlainId():
                    return self._end(request, api_version, effects)
                case GroupId():
                    return self._groups.end(request, effects)
                case MemberId():
                    raise InvalidTxnState("a member of a transaction group ends with its group")

        self._answer(reply, effects, decide)

    def _end(self, request: EndTxnRequest, api_version: int, effects: Effects) -> EndTxnResponse:
        transaction = self.state_manager.get(request.transactional_id)
        if transaction is None:
            raise InvalidProducerIdMapping
        identity = ProducerIdentity(request.producer_id, request.producer_epoch)
        client_version = TV_2 if api_version >= 5 else TV_0
        if should_end(transaction, identity, is_commit=request.committed, client_version=client_version):
            transaction = self._decide(transaction, effects, is_commit=request.committed, client_version=client_version)
            transaction = transaction.completed(effects.now_ms)
        if client_version < TV_2:
            return EndTxnResponse(error_code=NO_ERROR)
        return EndTxnResponse(
            error_code=NO_ERROR, producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch
        )

    def _decide(
        self, transaction: Transaction, effects: Effects, *, is_commit: bool, client_version: int
    ) -> Transaction:
        is_exhausted = client_version >= TV_2 and transaction.is_epoch_exhausted
        decided = transaction.prepared(
            PREPARE_COMMIT if is_commit else PREPARE_ABORT,
            client_version,
            effects.now_ms,
            self._take_producer_id() if is_exhausted else NO_PRODUCER_ID,
        )
        self.state_manager.write(decided, effects)
        self._counts.record_decision(decided, effects)
        if decided.partitions:
            self.state_manager.order_markers(_order(decided), effects)
        else:
            self.state_manager.write(decided.completed(effects.now_ms), effects)
        return decided

    def _abort(self, transaction: Transaction, effects: Effects, reason: str) -> None:
        """Abort by the coordinator. It fences the producer with the next epoch, whatever protocol version it uses."""
        logger.info(
            "aborting transaction transactional_id=%s producer_id=%d producer_epoch=%d partitions=%d reason=%s",
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            len(transaction.partitions),
            reason,
        )
        self._decide(transaction, effects, is_commit=False, client_version=TV_2)

    # ---- after the decision

    def _order_markers(self, transaction: Transaction, effects: Effects) -> None:
        if isinstance(transaction.id, GroupId):
            self._groups.order_markers(transaction, effects)
        elif transaction.partitions:
            self.state_manager.order_markers(_order(transaction), effects)

    def on_markers_written(self, order: MarkerOrder, partitions: frozenset[TopicPartition], effects: Effects) -> None:
        if self.state_manager.on_markers_written(order, partitions):
            self._finish(order.transactional_id, effects)

    def _finish(self, transactional_id: TransactionalId, effects: Effects) -> None:
        """Write the completed state, and retry until it is written."""

        def try_again(error: KafkaError, instead: Effects) -> None:
            instead.set_timer(TimerKey(TimerKind.FINISH, transactional_id), FINISH_RETRY_MS)

        effects.on_rejected = try_again
        if isinstance(transactional_id, MemberId):
            self._groups.finish_member(transactional_id, effects)
            return
        transaction = self.state_manager.get(transactional_id.text)
        if transaction is None or not transaction.state.is_prepared:
            return
        if isinstance(transactional_id, GroupId):
            self._groups.finish(transaction, effects)
        elif self.state_manager.is_done(transaction):
            self.state_manager.write(transaction.completed(effects.now_ms), effects)

    # ---- timers

    def _times_out_at_ms(self, transaction: Transaction) -> int:
        is_group = isinstance(transaction.id, GroupId)
        return self._groups.times_out_at_ms(transaction) if is_group else transaction.times_out_at_ms

    def _on_timeout(self, transactional_id: PlainId | GroupId, effects: Effects) -> None:
        transaction = self.state_manager.get(transactional_id.text)
        if transaction is None or transaction.state is not ONGOING:
            return
        retry_ms = self._settings().transaction_abort_timed_out_transaction_cleanup_interval_ms
        # If the abort is refused, this timer retries it; otherwise it will find nothing to do.
        effects.set_timer(TimerKey(TimerKind.TIMEOUT, transactional_id), retry_ms)
        abort = self._groups.abort if isinstance(transactional_id, GroupId) else self._abort
        try:
            abort(transaction, effects, "it timed out")
            effects.after_commit.append(self._counts.record_timeout)
        except KafkaError as error:
            logger.warning(
                "failed to abort transaction, retrying transactional_id=%s error=%s", transactional_id.text, error
            )

    def _expire(self, effects: Effects) -> None:
        settings = self._settings()
        oldest_ms = effects.now_ms - settings.transactional_id_expiration_ms
        expired = [each for each in self.state_manager if each.updated_at_ms <= oldest_ms and _may_expire(each)]
        is_all = self.state_manager.forget_some(expired, effects)
        if expired:
            logger.info("deleting unused transactional ids count=%d", len(expired))
        interval_ms = settings.transaction_remove_expired_transaction_cleanup_interval_ms
        effects.set_timer(EXPIRATION, interval_ms if is_all else NEXT_EXPIRED_MS)

    # ---- DescribeTransactions

    def describe(self, transactional_id: TransactionalId, reply: Reply, effects: Effects) -> None:
        def decide() -> Outcome:
            transaction = self.state_manager.get(transactional_id.text)
            if transaction is None:
                return TransactionalIdNotFound()
            partitions = self.state_manager.partitions_left(transaction)
            return DescribeTransactionsResponse(transaction_states=[description(transaction, partitions)])

        self._answer(reply, effects, decide)

    def _answer(self, reply: Reply, effects: Effects, decide: Callable[[], Outcome]) -> None:
        """Errors too wait until earlier records are committed: they depend on them."""
        effects.is_read_of_state = True
        try:
            outcome = decide()
        except KafkaError as error:
            effects.fail(reply, error)
        else:
            effects.responses.append(ReplyOutcome(reply, outcome))


def _order(transaction: Transaction) -> MarkerOrder:
    return MarkerOrder(
        transaction.id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.is_committing,
        transaction.client_version,
        transaction.partitions,
    )


def _may_expire(transaction: Transaction) -> bool:
    """A group with a batch id never expires, and members are deleted when their group ends."""
    match transaction.id:
        case MemberId():
            return False
        case GroupId() if transaction.batch_id != NO_BATCH_ID:
            return False
    return transaction.state.may_expire
