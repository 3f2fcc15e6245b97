"""Transaction coordinator: its responses, and what it allows."""

from collections.abc import Callable

import pytest

from tests.transactions.driving import A0, A1, B0, OLD, TIMEOUT_MS, Coordinator
from tidelog.config.coordinators import CoordinatorSettings
from tidelog.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
    TransactionAbortable,
    TransactionalIdNotFound,
)
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsResponse
from tidelog.protocol.transaction_groups import PlainId
from tidelog.replicated.machine import StateRecord
from tidelog.replicated.memory_shard import MemoryReply
from tidelog.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)
from tidelog.transactions.transaction import LAST_CLIENT_EPOCH, LAST_EPOCH, ProducerIdentity

ID = "payments"


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def at_epoch(coordinator: Coordinator, epoch: int) -> ProducerIdentity:
    """The producer, after so many transactions that nobody wants to wait for them."""
    identity = coordinator.producer(ID)
    known = coordinator.known(ID)
    assert known is not None
    aged = known.initialized(None, TIMEOUT_MS, coordinator.shard.now_ms, None)
    aged = type(aged)(**{name: getattr(aged, name) for name in aged.__slots__} | {"producer_epoch": epoch})
    coordinator.shard.perform(lambda machine, effects: machine.state_manager.write(aged, effects))
    return ProducerIdentity(identity.producer_id, epoch)


# ---- InitProducerId


def test_a_new_id_gets_a_producer_id_and_epoch_0(coordinator: Coordinator) -> None:
    assert coordinator.producer(ID) == (1000, 0)
    assert coordinator.producer("another") == (1001, 0)
    assert coordinator.state(ID) is EMPTY


def test_who_comes_back_gets_the_next_epoch(coordinator: Coordinator) -> None:
    coordinator.producer(ID)
    assert coordinator.producer(ID) == (1000, 1)


def test_nothing_is_created_if_there_is_no_producer_id(coordinator: Coordinator) -> None:
    def none_left() -> int:
        raise CoordinatorLoadInProgress

    coordinator.take_producer_id = none_left
    with pytest.raises(CoordinatorLoadInProgress):
        coordinator.init(ID)
    assert coordinator.known(ID) is None
    assert not coordinator.shard.log


def test_an_open_transaction_is_aborted_before_its_successor_begins(coordinator: Coordinator) -> None:
    first = coordinator.producer(ID)
    coordinator.add(ID, first, A0)
    with pytest.raises(ConcurrentTransactions):
        coordinator.init(ID)
    assert coordinator.state(ID) is PREPARE_ABORT
    with pytest.raises(ConcurrentTransactions):
        coordinator.init(ID)
    coordinator.deliver()
    assert coordinator.markers.written == {(1000, A0): [(1, False)]}
    assert coordinator.producer(ID) == (1000, 2)
    with pytest.raises(ProducerFenced):
        coordinator.add(ID, first, A0)
    with pytest.raises(ProducerFenced):
        coordinator.end(ID, first)


def test_a_producer_can_ask_for_its_next_epoch_and_ask_again(coordinator: Coordinator) -> None:
    first = coordinator.producer(ID)
    assert coordinator.init(ID, expected=first).producer_epoch == 1
    coordinator.crash()
    assert coordinator.init(ID, expected=first).producer_epoch == 1
    assert coordinator.init(ID, expected=ProducerIdentity(1000, 1)).producer_epoch == 2
    with pytest.raises(ProducerFenced):
        coordinator.init(ID, expected=first)
    with pytest.raises(ProducerFenced):
        coordinator.init(ID, expected=ProducerIdentity(77, 2))


def test_a_successor_ends_the_right_to_ask_again(coordinator: Coordinator) -> None:
    first = coordinator.producer(ID)
    coordinator.init(ID, expected=first)
    coordinator.producer(ID)
    with pytest.raises(ProducerFenced):
        coordinator.init(ID, expected=first)


def test_an_id_that_was_forgotten_is_given_again_to_a_producer_that_names_itself(coordinator: Coordinator) -> None:
    assert coordinator.init(ID, expected=ProducerIdentity(5, 7)).producer_id == 1000


def test_exhausted_epochs_lead_to_a_new_producer_id(coordinator: Coordinator) -> None:
    last = at_epoch(coordinator, LAST_CLIENT_EPOCH)
    assert coordinator.init(ID, expected=last).producer_id == 1001
    again = coordinator.init(ID, expected=last)
    assert (again.producer_id, again.producer_epoch) == (1001, 0)


def test_fencing_the_last_epoch_leads_to_a_new_producer_id(coordinator: Coordinator) -> None:
    last = at_epoch(coordinator, LAST_CLIENT_EPOCH)
    coordinator.add(ID, last, A0)
    assert coordinator.producer(ID) == (1001, 1)
    assert coordinator.markers.written == {(1000, A0): [(LAST_EPOCH, False)]}


def test_a_producer_of_an_older_epoch_does_not_end_the_transaction_of_its_successor(coordinator: Coordinator) -> None:
    first = coordinator.producer(ID)
    second = coordinator.producer(ID)
    coordinator.add(ID, second, A0)
    with pytest.raises(ProducerFenced):
        coordinator.init(ID, expected=first)
    assert coordinator.state(ID) is ONGOING
    with pytest.raises(ConcurrentTransactions):
        coordinator.init(ID, expected=second)
    assert coordinator.state(ID) is PREPARE_ABORT


# ---- partitions


def test_partitions_are_added_once(coordinator: Coordinator) -> None:
    producer = coordinator.producer(ID)
    coordinator.add(ID, producer, A0)
    coordinator.add(ID, producer, A0, A1)
    batches = len(coordinator.shard.log)
    coordinator.add(ID, producer, A1)
    assert len(coordinator.shard.log) == batches
    transaction = coordinator.known(ID)
    assert transaction is not None
    assert transaction.partitions == {A0, A1}


@pytest.mark.parametrize(
    ("identity", "error"),
    [
        (ProducerIdentity(999, 0), InvalidProducerIdMapping),
        (ProducerIdentity(1000, 1), ProducerFenced),
        (ProducerIdentity(1000, -1), ProducerFenced),
    ],
)
def test_strangers_can_neither_add_nor_verify(
    coordinator: Coordinator, identity: ProducerIdentity, error: type[Exception]
) -> None:
    coordinator.producer(ID)
    with pytest.raises(error):
        coordinator.add(ID, identity, A0)
    with pytest.raises(error):
        coordinator.verify(ID, identity, A0)
    assert coordinator.state(ID) is EMPTY


def test_an_unknown_id_is_no_mapping(coordinator: Coordinator) -> None:
    nobody = ProducerIdentity(1, 1)
    for ask in (coordinator.add, coordinator.verify):
        with pytest.raises(InvalidProducerIdMapping):
            ask(ID, nobody, A0)
    with pytest.raises(InvalidProducerIdMapping):
        coordinator.end(ID, nobody)
    assert not coordinator.shard.log


def test_verification_reports_what_is_part_of_the_transaction(coordinator: Coordinator) -> None:
    producer = coordinator.producer(ID)
    coordinator.add(ID, producer, A0)
    assert coordinator.verify(ID, producer, A0, B0) == [0, TransactionAbortable.code]


def test_the_next_transaction_waits_for_the_markers_of_the_one_before(coordinator: Coordinator) -> None:
    producer = coordinator.producer(ID)
    coordinator.add(ID, producer, A0)
    following = coordinator.end(ID, producer)
    for ask in (coordinator.add, coordinator.verify):
        with pytest.raises(ConcurrentTransactions):
            ask(ID, following, A0)
    coordinator.deliver()
    coordinator.add(ID, following, A0)
    assert coordinator.verify(ID, following, A0) == [0]


# ---- EndTxn


def test_a_commit_is_written_everywhere_and_then_complete(coordinator: Coordinator) -> None:
    producer = coordinator.producer(ID)
    coordinator.add(ID, producer, A0, A1, B0)
    assert coordinator.end(ID, producer) == (1000, 1)
    assert coordinator.state(ID) is PREPARE_COMMIT
    (order,) = coordinator.markers.waiting
    assert (order.producer_epoch, order.is_committed, order.transaction_version) == (1, True, 2)
    coordinator.arrive(order, frozenset({A0, B0}))
    assert coordinator.state(ID) is PREPARE_COMMIT
    coordinator.arrive(order, frozenset({A1}))
    assert coordinator.state(ID) is COMPLETE_COMMIT


def test_older_clients_keep_their_epoch(coordinator: Coordinator) -> None:
    producer = coordinator.producer(ID)
    coordinator.add(ID, producer, A0, version=0)
    assert coordinator.end(ID, producer, version=OLD) == (-1, -1)
    (order,) = coordinator.markers.waiting
    assert (order.producer_epoch, order.transaction_version) == (0, 0)
    with pytest.raises(ConcurrentTransactions):
        coordinator.end(ID, producer, version=OLD)
    coordinator.deliver()
    coordinator.end(ID, producer, version=OLD)
    with pytest.raises(InvalidTxnState):
        coordinator.end(ID, producer, commit=False, version=OLD)
    coordinator.add(ID, producer, A0, version=0)
    coordinator.end(ID, producer, commit=False, version=OLD)
    coordinator.deliver()
    coordinator.end(ID, producer, commit=False, version=OLD)
    with pytest.raises(InvalidTxnState):
        coordinator.end(ID, producer, version=OLD)
    assert coordinator.markers.written == {(1000, A0): [(0, True), (0, False)]}


def test_an_older_client_cannot_end_what_it_has_not_begun(coordinator: Coordinator) -> None:
    producer = coordinator.producer(ID)
    for commit in (True, False):
        with pytest.raises(InvalidTxnState):
            coordinator.end(ID, producer, commit=commit, version=OLD)
    with pytest.raises(ProducerFenced):
        coordinator.end(ID, ProducerIdentity(1000, 1), version=OLD)
    with pytest.raises(InvalidProducerIdMapping):
        coordinator.end(ID, ProducerIdentity(1, 0), version=OLD)


def _empty(coordinator: Coordinator) -> ProducerIdentity:
    coordinator.producer(ID)
    return coordinator.producer(ID)


def _committed(coordinator: Coordinator) -> ProducerIdentity:
    producer = coordinator.producer(ID)
    coordinator.add(ID, producer, A0)
    return coordinator.end(ID, producer)


def _aborted(coordinator: Coordinator) -> ProducerIdentity:
    producer = coordinator.producer(ID)
    coordinator.add(ID, producer, A0)
    return coordinator.end(ID, producer, commit=False)


SAME, NEXT = "same epoch", "next epoch"


@pytest.mark.parametrize(
    ("prepare", "is_repeated", "commit", "outcome"),
    [
        (_empty, True, False, ProducerFenced),
        (_empty, False, False, NEXT),
        (_empty, True, True, ProducerFenced),
        (_empty, False, True, InvalidTxnState),
        (_aborted, True, False, SAME),
        (_aborted, False, False, NEXT),
        (_aborted, True, True, InvalidTxnState),
        (_aborted, False, True, InvalidTxnState),
        (_committed, True, False, InvalidTxnState),
        (_committed, False, False, NEXT),
        (_committed, True, True, SAME),
        (_committed, False, True, InvalidTxnState),
    ],
)
def test_ends_of_transactions_version_2_are_judged_by_their_epoch(
    prepare: Callable[[Coordinator], ProducerIdentity],
    is_repeated: bool,
    commit: bool,
    outcome: str | type[Exception],
    coordinator: Coordinator,
) -> None:
    present = prepare(coordinator)
    coordinator.deliver()
    asked = ProducerIdentity(present.producer_id, present.producer_epoch - is_repeated)
    if isinstance(outcome, str):
        epoch = coordinator.end(ID, asked, commit=commit).producer_epoch
        assert epoch == present.producer_epoch + (outcome == NEXT)
    else:
        batches = len(coordinator.shard.log)
        with pytest.raises(outcome):
            coordinator.end(ID, asked, commit=commit)
        assert len(coordinator.shard.log) == batches


def test_an_end_that_is_repeated_while_markers_are_written_is_asked_to_wait(coordinator: Coordinator) -> None:
    present = _committed(coordinator)
    earlier = ProducerIdentity(present.producer_id, present.producer_epoch - 1)
    with pytest.raises(ConcurrentTransactions):
        coordinator.end(ID, earlier)
    with pytest.raises(InvalidTxnState):
        coordinator.end(ID, earlier, commit=False)
    with pytest.raises(ProducerFenced):
        coordinator.end(ID, ProducerIdentity(present.producer_id, present.producer_epoch + 1))


def test_a_late_end_never_hits_the_next_transaction(coordinator: Coordinator) -> None:
    first = coordinator.producer(ID)
    coordinator.add(ID, first, A0)
    second = coordinator.end(ID, first)
    coordinator.deliver()
    coordinator.add(ID, second, B0)
    for commit in (True, False):
        with pytest.raises(ProducerFenced):
            coordinator.end(ID, first, commit=commit)
    with pytest.raises(ProducerFenced):
        coordinator.add(ID, first, A1)
    transaction = coordinator.known(ID)
    assert transaction is not None
    assert transaction.state is ONGOING
    assert transaction.partitions == {B0}


def test_an_abort_of_nothing_needs_no_markers(coordinator: Coordinator) -> None:
    producer = coordinator.producer(ID)
    assert coordinator.end(ID, producer, commit=False) == (1000, 1)
    assert not coordinator.markers.waiting
    assert coordinator.state(ID) is COMPLETE_ABORT


def test_the_end_that_exhausts_the_epochs_gives_a_new_producer_id(coordinator: Coordinator) -> None:
    last = at_epoch(coordinator, LAST_CLIENT_EPOCH)
    coordinator.add(ID, last, A0)
    assert coordinator.end(ID, last) == (1001, 0)
    (order,) = coordinator.markers.waiting
    assert (order.producer_id, order.producer_epoch) == (1000, LAST_EPOCH)
    coordinator.crash()
    coordinator.deliver()
    assert coordinator.end(ID, last) == (1001, 0)
    again = coordinator.init(ID, expected=last)
    assert (again.producer_id, again.producer_epoch) == (1001, 0)
    for older in (0, LAST_CLIENT_EPOCH - 1, LAST_EPOCH):
        with pytest.raises(InvalidProducerIdMapping):
            coordinator.end(ID, ProducerIdentity(1000, older))
    coordinator.add(ID, ProducerIdentity(1001, 0), A0)
    with pytest.raises(InvalidProducerIdMapping):
        coordinator.end(ID, last)


@pytest.mark.parametrize("epoch", [0, LAST_CLIENT_EPOCH])
def test_a_producer_that_knows_its_next_epoch_already_is_asked_to_wait_for_it(
    coordinator: Coordinator, epoch: int
) -> None:
    producer = at_epoch(coordinator, epoch)
    coordinator.add(ID, producer, A0)
    following = coordinator.end(ID, producer)
    for ask in (
        lambda: coordinator.add(ID, following, A0),
        lambda: coordinator.verify(ID, following, A0),
        lambda: coordinator.end(ID, following, commit=False),
        lambda: coordinator.init(ID, expected=following),
    ):
        with pytest.raises(ConcurrentTransactions):
            ask()
    coordinator.deliver()
    coordinator.add(ID, following, A0)
    coordinator.end(ID, following, commit=False)


# ---- time


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_shut_out(coordinator: Coordinator) -> None:
    producer = coordinator.producer(ID)
    coordinator.add(ID, producer, A0)
    coordinator.shard.advance(TIMEOUT_MS - 1)
    assert coordinator.state(ID) is ONGOING
    coordinator.shard.advance(1)
    assert coordinator.state(ID) is PREPARE_ABORT
    coordinator.deliver()
    assert coordinator.markers.written == {(1000, A0): [(1, False)]}
    with pytest.raises(InvalidTxnState):
        coordinator.end(ID, producer)
    with pytest.raises(ProducerFenced):
        coordinator.end(ID, producer, version=OLD)
    with pytest.raises(ProducerFenced):
        coordinator.add(ID, producer, A0)


def test_adding_partitions_does_not_prolong_a_transaction(coordinator: Coordinator) -> None:
    producer = coordinator.producer(ID)
    coordinator.add(ID, producer, A0)
    coordinator.shard.advance(TIMEOUT_MS - 1)
    coordinator.add(ID, producer, B0)
    coordinator.shard.advance(1)
    assert coordinator.state(ID) is PREPARE_ABORT


def test_each_transaction_has_its_own_time(coordinator: Coordinator) -> None:
    producer = coordinator.producer(ID)
    coordinator.add(ID, producer, A0)
    coordinator.shard.advance(TIMEOUT_MS - 1)
    producer = coordinator.end(ID, producer)
    coordinator.deliver()
    coordinator.add(ID, producer, A0)
    coordinator.shard.advance(TIMEOUT_MS - 1)
    assert coordinator.state(ID) is ONGOING
    coordinator.shard.advance(1)
    assert coordinator.state(ID) is PREPARE_ABORT


def test_a_new_coordinator_knows_how_much_time_is_left(coordinator: Coordinator) -> None:
    coordinator.add(ID, coordinator.producer(ID), A0)
    coordinator.shard.advance(TIMEOUT_MS - 1)
    coordinator.crash()
    assert coordinator.state(ID) is ONGOING
    coordinator.shard.advance(1)
    assert coordinator.state(ID) is PREPARE_ABORT


def test_a_clock_that_is_set_back_does_not_prolong_a_transaction(coordinator: Coordinator) -> None:
    coordinator.add(ID, coordinator.producer(ID), A0)
    coordinator.shard.now_ms -= 10 * TIMEOUT_MS
    coordinator.shard.advance(TIMEOUT_MS)
    assert coordinator.state(ID) is PREPARE_ABORT


def test_a_clock_that_is_set_forward_does_not_shorten_a_transaction(coordinator: Coordinator) -> None:
    coordinator.add(ID, coordinator.producer(ID), A0)
    coordinator.shard.now_ms += 10 * TIMEOUT_MS
    coordinator.shard.advance(TIMEOUT_MS - 1)
    assert coordinator.state(ID) is ONGOING


def test_adding_partitions_does_not_prolong_a_transaction_whatever_the_clock_says(coordinator: Coordinator) -> None:
    producer = coordinator.producer(ID)
    coordinator.add(ID, producer, A0)
    coordinator.shard.advance(TIMEOUT_MS - 1)
    coordinator.shard.now_ms -= TIMEOUT_MS - 1
    coordinator.add(ID, producer, B0)
    coordinator.shard.advance(1)
    assert coordinator.state(ID) is PREPARE_ABORT


def test_a_new_coordinator_whose_clock_is_behind_waits_no_longer_than_the_timeout(coordinator: Coordinator) -> None:
    coordinator.add(ID, coordinator.producer(ID), A0)
    coordinator.shard.now_ms -= 10 * TIMEOUT_MS
    coordinator.crash()
    coordinator.shard.advance(TIMEOUT_MS - 1)
    assert coordinator.state(ID) is ONGOING
    coordinator.shard.advance(1)
    assert coordinator.state(ID) is PREPARE_ABORT


def test_an_abort_that_cannot_be_written_is_tried_again(coordinator: Coordinator) -> None:
    coordinator.add(ID, coordinator.producer(ID), A0)
    coordinator.shard.rejection = CoordinatorNotAvailable()
    coordinator.shard.advance(TIMEOUT_MS)
    assert coordinator.state(ID) is ONGOING
    coordinator.shard.rejection = None
    coordinator.shard.advance(coordinator.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms)
    assert coordinator.state(ID) is PREPARE_ABORT


def test_a_refused_end_leaves_the_transaction_and_its_timeout(coordinator: Coordinator) -> None:
    producer = coordinator.producer(ID)
    coordinator.add(ID, producer, A0)
    coordinator.shard.rejection = CoordinatorNotAvailable()
    with pytest.raises(CoordinatorNotAvailable):
        coordinator.end(ID, producer)
    coordinator.shard.rejection = None
    assert not coordinator.markers.waiting
    coordinator.shard.advance(TIMEOUT_MS)
    assert coordinator.state(ID) is PREPARE_ABORT


def test_that_markers_are_written_is_noted_however_long_it_takes(coordinator: Coordinator) -> None:
    _committed(coordinator)
    coordinator.shard.rejection = CoordinatorNotAvailable()
    coordinator.deliver()
    coordinator.shard.advance(5000)
    assert coordinator.state(ID) is PREPARE_COMMIT
    coordinator.shard.rejection = None
    coordinator.shard.advance(1000)
    assert coordinator.state(ID) is COMPLETE_COMMIT


def test_ids_that_nobody_uses_are_forgotten() -> None:
    day_ms = 86_400_000
    coordinator = Coordinator(CoordinatorSettings(transactional_id_expiration_ms=day_ms))
    coordinator.producer("empty")
    _committed(coordinator)
    coordinator.deliver()
    coordinator.add("open", coordinator.init_for("open", timeout_ms=2**31 - 1), A0)
    coordinator.shard.advance(day_ms // 2)
    coordinator.producer("young")
    coordinator.shard.advance(day_ms // 2 + 3_600_000)
    assert [each.transactional_id for each in coordinator.machine.state_manager] == ["open", "young"]
    coordinator.shard.advance(day_ms // 2)
    assert [each.transactional_id for each in coordinator.machine.state_manager] == ["open"]
    assert coordinator.producer(ID) == (1004, 0)


# ---- a new coordinator


def test_decisions_are_carried_out_by_a_new_coordinator(coordinator: Coordinator) -> None:
    present = _committed(coordinator)
    sent = list(coordinator.markers.waiting)
    coordinator.crash()
    assert coordinator.markers.waiting == sent
    coordinator.deliver()
    assert coordinator.state(ID) is COMPLETE_COMMIT
    assert coordinator.end(ID, ProducerIdentity(present.producer_id, present.producer_epoch - 1)) == present


def test_loading_while_nothing_can_be_written_loses_no_markers(coordinator: Coordinator) -> None:
    _committed(coordinator)
    coordinator.markers.waiting.clear()
    coordinator.shard = coordinator.shard.reloaded()
    coordinator.shard.rejection = CoordinatorNotAvailable()
    coordinator.shard.advance(100)
    coordinator.deliver()
    coordinator.shard.rejection = None
    coordinator.shard.advance(10_000)
    assert coordinator.state(ID) is COMPLETE_COMMIT


def test_markers_of_an_earlier_end_say_nothing_about_a_later_one(coordinator: Coordinator) -> None:
    present = _committed(coordinator)
    (late,) = coordinator.markers.waiting
    coordinator.deliver()
    coordinator.add(ID, present, A0)
    coordinator.end(ID, present, commit=False)
    coordinator.arrive(late, late.partitions)
    assert coordinator.state(ID) is PREPARE_ABORT


def test_records_that_cannot_be_read_are_passed_over(coordinator: Coordinator) -> None:
    coordinator.producer(ID)
    for key in (b"", b"\x00\x07abc", b"\x00\x00\x00\x05x"):
        coordinator.machine.replay(StateRecord(key, b"\x00\x01"), None)
    coordinator.machine.replay(StateRecord(b"\x00\x00\x00\x01y", b"\x00\x09"), None)
    assert [each.transactional_id for each in coordinator.machine.state_manager] == [ID]


# ---- questions


def test_a_transaction_is_described(coordinator: Coordinator) -> None:
    producer = coordinator.producer(ID)
    coordinator.add(ID, producer, A0, A1, B0)
    coordinator.end(ID, producer)
    (order,) = coordinator.markers.waiting
    coordinator.arrive(order, frozenset({B0}))
    reply = MemoryReply()
    coordinator.shard.perform(lambda machine, effects: machine.describe(PlainId(ID), reply, effects))
    assert isinstance(reply.outcome, DescribeTransactionsResponse)
    (described,) = reply.outcome.transaction_states
    assert (described.transaction_state, described.producer_id, described.producer_epoch) == ("PrepareCommit", 1000, 1)
    assert (described.transaction_timeout_ms, described.transaction_start_time_ms) == (
        TIMEOUT_MS,
        coordinator.shard.now_ms,
    )
    assert [(topic.topic, list(topic.partitions)) for topic in described.topics] == [("a", [0, 1])]


def test_an_unknown_transaction_is_not_found(coordinator: Coordinator) -> None:
    reply = MemoryReply()
    coordinator.shard.perform(lambda machine, effects: machine.describe(PlainId(ID), reply, effects))
    assert isinstance(reply.outcome, TransactionalIdNotFound)
