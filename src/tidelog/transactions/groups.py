"""Transaction groups: one commit decision for the records of many producers.

A driver opens the group by InitProducerId. Its members write as ordinary transactional producers, each with its own
producer id. The driver's EndTxn names the winners (the members to commit) and a batch id. One record of the group
contains the decision, the batch id and the winners. COMMIT markers for the winners and ABORT markers for all other
members follow; after a crash they are derived again from the records of the group and its members. A finished member
is deleted. The group keeps the batch id, so that the same batch is not committed twice: groups with batch ids never
expire.

A group is open while it is Ongoing. Its timeout restarts when a member joins or writes to another partition, because
many short tasks may take long together. Opening a group again fences the previous driver and all its members.
"""

# Core that logs: no clock, no I/O, no await.

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from tidelog.errors import (
    NO_ERROR,
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTxnState,
    KafkaError,
    PolicyViolation,
    ProducerFenced,
)
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.transaction_groups import GroupId, MemberId, parse_transactional_id
from tidelog.replicated.machine import Effects
from tidelog.transactions.rules import (
    check_expected,
    check_owner,
    expected_identity,
    is_repeated_identity,
    needs_new_producer_id,
)
from tidelog.transactions.state_manager import (
    MAX_FORGOTTEN_BYTES,
    MarkerOrder,
    TimerKey,
    TimerKind,
    TransactionStateManager,
    id_bytes,
    start_timeout,
)
from tidelog.transactions.states import (
    COMPLETE_ABORT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)
from tidelog.transactions.statistics import TransactionCounts
from tidelog.transactions.transaction import (
    NO_BATCH_ID,
    TV_2,
    ProducerIdentity,
    Transaction,
    created,
)
from tidelog.types import NO_PRODUCER_ID

logger = logging.getLogger(__name__)

MAX_MEMBER_BYTES = 800_000
"""Maximum size of all member ids, so that the record with the winners fits into a batch."""


class TransactionGroups:
    def __init__(
        self, state_manager: TransactionStateManager, take_producer_id: Callable[[], int], counts: TransactionCounts
    ) -> None:
        self._state_manager = state_manager
        self._take_producer_id = take_producer_id
        self._counts = counts

    # ---- opening

    def open(
        self, group_id: GroupId, request: InitProducerIdRequest, effects: Effects
    ) -> InitProducerIdResponse | KafkaError:
        group = self._state_manager.get(group_id.text)
        if group is None:
            new = created(group_id, self._take_producer_id(), request.transaction_timeout_ms, effects.now_ms)
            return self._open(new.initialized(None, request.transaction_timeout_ms, effects.now_ms, None), effects)
        expected = expected_identity(request)
        check_expected(group, expected)
        if group.state is ONGOING and self._must_be_aborted(group):
            check_owner(group, expected)
            self.abort(group, effects, "it was opened again")
            return ConcurrentTransactions("the members of an earlier driver are being aborted")
        return self._open(self._next_epoch(group, expected, request.transaction_timeout_ms, effects.now_ms), effects)

    def _must_be_aborted(self, group: Transaction) -> bool:
        """True if an abort must precede opening it again: members have written, or are too many for one step."""
        is_large = self._state_manager.member_bytes(group.transactional_id) > MAX_FORGOTTEN_BYTES
        return is_large or any(member.partitions for member in self._members(group))

    def _next_epoch(
        self, transaction: Transaction, expected: ProducerIdentity | None, timeout_ms: int, now_ms: int
    ) -> Transaction:
        # An open group without writes counts as empty.
        closed = replace(transaction, state=EMPTY) if transaction.state is ONGOING else transaction
        new_producer_id = self._take_producer_id() if needs_new_producer_id(transaction, expected) else None
        return closed.initialized(
            None if expected is None else expected.producer_epoch, timeout_ms, now_ms, new_producer_id
        )

    def _open(self, group: Transaction, effects: Effects) -> InitProducerIdResponse:
        opened = group.with_partitions((), effects.now_ms, TV_2)
        for member in self._members(group):
            self._state_manager.forget(member, effects)
        self._state_manager.write(opened, effects)
        start_timeout(opened, effects)
        return InitProducerIdResponse(
            error_code=NO_ERROR,
            producer_id=opened.producer_id,
            producer_epoch=opened.producer_epoch,
            group_batch_id=opened.batch_id,
        )

    # ---- members

    def check_open(self, member_id: MemberId) -> Transaction:
        """The member's group. Raises ProducerFenced unless the driver that created the member still has it open."""
        group = self._state_manager.get(member_id.group_id)
        if group is None or group.state is not ONGOING or group.identity != _driver_of(member_id):
            raise ProducerFenced(
                f"{member_id.group_id} is not open with producer id {member_id.producer_id}"
                f" and epoch {member_id.producer_epoch}"
            )
        return group

    def add_member(
        self, member_id: MemberId, request: InitProducerIdRequest, effects: Effects
    ) -> InitProducerIdResponse:
        group = self.check_open(member_id)
        member = self._state_manager.get(member_id.text)
        if member is None:
            self._check_room(group, member_id.text)
            member = created(member_id, self._take_producer_id(), request.transaction_timeout_ms, effects.now_ms)
        if member.state is ONGOING:
            # Its records may be committed already: no other producer may continue with its id.
            raise ProducerFenced(f"{member_id.text} has written already")
        expected = expected_identity(request)
        check_expected(member, expected)
        initialized = self._next_epoch(member, expected, request.transaction_timeout_ms, effects.now_ms)
        self._state_manager.write(initialized, effects)
        start_timeout(group, effects)
        return InitProducerIdResponse(
            error_code=NO_ERROR, producer_id=initialized.producer_id, producer_epoch=initialized.producer_epoch
        )

    def on_member_writes(self, member_id: MemberId, effects: Effects) -> None:
        """A member writes to a new partition: the timeout of its group restarts. A member times out with its group."""
        start_timeout(self.check_open(member_id), effects)

    def _check_room(self, group: Transaction, transactional_id: str) -> None:
        taken_bytes = self._state_manager.member_bytes(group.transactional_id)
        if taken_bytes + id_bytes(transactional_id) > MAX_MEMBER_BYTES:
            count = self._state_manager.member_count(group.transactional_id)
            raise PolicyViolation(f"{group.transactional_id} has {count} members already, and no room for more")

    def times_out_at_ms(self, group: Transaction) -> int:
        """Wall clock time at which the group times out: its timeout after the last activity of the group or a member.

        The activity times are from the clocks of all coordinators that the group has had.
        """
        active_at_ms = max((member.updated_at_ms for member in self._members(group)), default=0)
        return max(group.times_out_at_ms, active_at_ms + group.timeout_ms)

    def _members(self, group: Transaction) -> list[Transaction]:
        return self._state_manager.members_of(group.transactional_id)

    # ---- ending

    def end(self, request: EndTxnRequest, effects: Effects) -> EndTxnResponse:
        if request.group_batch_id < NO_BATCH_ID or (request.group_winners and not request.committed):
            raise InvalidRequest("the batch id must not be negative, and an abort must not name winners")
        group = self._state_manager.get(request.transactional_id)
        if group is None:
            raise InvalidProducerIdMapping
        identity = ProducerIdentity(request.producer_id, request.producer_epoch)
        if group.identity != identity and not (is_repeated_identity(group, identity) and group.state is not ONGOING):
            raise _identity_error(group, identity)
        if group.state is not ONGOING:
            return self._end_again(group, identity, request)
        if not request.committed:
            return self._decide(group, PREPARE_ABORT, effects)
        if _is_committed_already(group, request):
            logger.info(
                "ignored batch that was committed before group=%s batch_id=%d last_batch_id=%d",
                group.transactional_id,
                request.group_batch_id,
                group.batch_id,
            )
            return self._decide(group, PREPARE_ABORT, effects)
        winners = self._check_winners(group, request.group_winners)
        batch_id = group.batch_id if request.group_batch_id == NO_BATCH_ID else request.group_batch_id
        return self._decide(replace(group, batch_id=batch_id, winners=winners), PREPARE_COMMIT, effects)

    def _end_again(self, group: Transaction, identity: ProducerIdentity, request: EndTxnRequest) -> EndTxnResponse:
        """The group is closed. A repeated request succeeds if the group has the requested outcome."""
        is_current = group.identity == identity
        if request.committed:
            has_outcome = _is_committed_already(group, request) or (
                request.group_batch_id == NO_BATCH_ID and not is_current and _is_not_aborted(group.state)
            )
        else:
            has_outcome = is_current or not _is_not_aborted(group.state)
        if not has_outcome:
            raise InvalidTxnState(f"{group.transactional_id} is {group.state.label}")
        return _ended(group if group.state.is_completed else group.completed(group.updated_at_ms))

    def _check_winners(self, group: Transaction, winners: Collection[str]) -> tuple[str, ...]:
        """Winners that have written records; the others have nothing to commit."""
        for winner in winners:
            member_id = parse_transactional_id(winner)
            is_member = isinstance(member_id, MemberId) and _driver_of(member_id) == group.identity
            if not is_member or self._state_manager.get(winner) is None:
                raise InvalidTxnState(f"{winner} is not a member of the open transaction of {group.transactional_id}")
        chosen = frozenset(winners)
        return tuple(
            member.transactional_id
            for member in self._members(group)
            if member.transactional_id in chosen and member.partitions
        )

    def abort(self, group: Transaction, effects: Effects, reason: str) -> None:
        logger.info(
            "aborting transaction group group=%s producer_id=%d producer_epoch=%d members=%d reason=%s",
            group.transactional_id,
            group.producer_id,
            group.producer_epoch,
            self._state_manager.member_count(group.transactional_id),
            reason,
        )
        self._decide(group, PREPARE_ABORT, effects)

    def _decide(self, group: Transaction, state: TransactionState, effects: Effects) -> EndTxnResponse:
        """Write the decision as one record. Everything after it can be repeated from that record."""
        next_producer_id = self._take_producer_id() if group.is_epoch_exhausted else NO_PRODUCER_ID
        decided = group.prepared(state, TV_2, effects.now_ms, next_producer_id)
        logger.debug(
            "decided transaction group group=%s state=%s batch_id=%d winners=%d members=%d",
            decided.transactional_id,
            decided.state.label,
            decided.batch_id,
            len(decided.winners),
            self._state_manager.member_count(decided.transactional_id),
        )
        self._state_manager.write(decided, effects)
        self._counts.record_decision(decided, effects)
        self.order_markers(decided, effects)
        self.finish(decided, effects)
        return _ended(decided.completed(effects.now_ms))

    # ---- after the decision

    def order_markers(self, group: Transaction, effects: Effects) -> None:
        """Order the markers of all members that have written. A new coordinator does this first."""
        winners = frozenset(group.winners) if group.is_committing else frozenset[str]()
        for member in self._members(group):
            if member.partitions:
                order = _order(member, is_committed=member.transactional_id in winners)
                self._state_manager.order_markers(order, effects)

    def finish_member(self, member_id: MemberId, effects: Effects) -> None:
        """Delete a finished member; after the last one the group is complete."""
        member, group = self._state_manager.get(member_id.text), self._state_manager.get(member_id.group_id)
        if member is None or group is None or not group.state.is_prepared or not self._state_manager.is_done(member):
            return
        self._state_manager.forget(member, effects)
        if self._state_manager.member_count(member_id.group_id) == 1:
            self._state_manager.write(group.completed(effects.now_ms), effects)

    def finish(self, group: Transaction, effects: Effects) -> None:
        """Delete all finished members and those without records, in several steps if they are many."""
        done = [member for member in self._members(group) if self._state_manager.is_done(member)]
        if not self._state_manager.forget_some(done, effects):
            effects.set_timer(TimerKey(TimerKind.FINISH, group.id), 0)
        elif len(done) == self._state_manager.member_count(group.transactional_id):
            self._state_manager.write(group.completed(effects.now_ms), effects)


def _driver_of(member_id: MemberId) -> ProducerIdentity:
    return ProducerIdentity(member_id.producer_id, member_id.producer_epoch)


def _order(member: Transaction, *, is_committed: bool) -> MarkerOrder:
    """Markers carry the member's next epoch, which fences late writes (KIP-890)."""
    return MarkerOrder(
        member.id,
        member.producer_id,
        member.producer_epoch + 1,
        is_committed,
        TV_2,
        member.partitions,
    )


def _is_not_aborted(state: TransactionState) -> bool:
    return state not in (PREPARE_ABORT, COMPLETE_ABORT)


def _is_committed_already(group: Transaction, request: EndTxnRequest) -> bool:
    return NO_BATCH_ID < request.group_batch_id <= group.batch_id


def _identity_error(group: Transaction, identity: ProducerIdentity) -> KafkaError:
    if group.producer_id != identity.producer_id:
        return InvalidProducerIdMapping()
    return ProducerFenced(f"the epoch is {group.producer_epoch}, not {identity.producer_epoch}")


def _ended(group: Transaction) -> EndTxnResponse:
    return EndTxnResponse(error_code=NO_ERROR, producer_id=group.producer_id, producer_epoch=group.producer_epoch)
