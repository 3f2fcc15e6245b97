"""Transaction groups: one record decides for all members."""

from dataclasses import replace

import pytest

from tests.transactions.driving import A0, A1, B0, OLD, TIMEOUT_MS, Coordinator
from tidelog.config.coordinators import CoordinatorSettings
from tidelog.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTxnState,
    PolicyViolation,
    ProducerFenced,
)
from tidelog.replicated.entries import batch_of
from tidelog.replicated.machine import Effects
from tidelog.replicated.memory_shard import WrittenStep
from tidelog.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)
from tidelog.transactions.transaction import LAST_CLIENT_EPOCH, LAST_EPOCH, ProducerIdentity

GROUP = "tidelog-group-query-1"


def member(driver: ProducerIdentity, name: str) -> str:
    return f"{GROUP}#{driver.producer_id}.{driver.producer_epoch}-{name}"


def member_names(coordinator: Coordinator) -> list[str]:
    return [each.transactional_id.rpartition("-")[2] for each in coordinator.machine.state_manager.members_of(GROUP)]


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def driver(coordinator: Coordinator) -> ProducerIdentity:
    return coordinator.producer(GROUP)


def writer(coordinator: Coordinator, driver: ProducerIdentity, name: str, *partitions: object) -> ProducerIdentity:
    identity = coordinator.producer(member(driver, name))
    coordinator.add(member(driver, name), identity, *partitions)  # type: ignore[arg-type]
    return identity


# ---- opening


def test_a_new_group_has_committed_nothing(coordinator: Coordinator) -> None:
    response = coordinator.init(GROUP)
    assert (response.producer_id, response.producer_epoch, response.group_batch_id) == (1000, 0, -1)
    assert coordinator.state(GROUP) is ONGOING


def test_opening_again_shuts_the_earlier_driver_and_its_members_out(
    coordinator: Coordinator, driver: ProducerIdentity
) -> None:
    task = writer(coordinator, driver, "task", A0)
    coordinator.producer(member(driver, "idle"))
    with pytest.raises(ConcurrentTransactions):
        coordinator.init(GROUP)
    assert member_names(coordinator) == ["task"]
    with pytest.raises(ConcurrentTransactions):
        coordinator.init(GROUP)
    coordinator.deliver()
    assert coordinator.markers.written == {(task.producer_id, A0): [(1, False)]}
    assert member_names(coordinator) == []
    successor = coordinator.producer(GROUP)
    assert successor == (1000, 2)
    with pytest.raises(ProducerFenced):
        coordinator.end(GROUP, driver, batch_id=0)
    with pytest.raises(ProducerFenced):
        coordinator.producer(member(driver, "late"))
    with pytest.raises(InvalidProducerIdMapping):
        coordinator.add(member(driver, "task"), task, A0)


def test_opening_again_at_once_if_nobody_has_written(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    coordinator.producer(member(driver, "idle"))
    response = coordinator.init(GROUP)
    assert response.producer_epoch == driver.producer_epoch + 1
    assert member_names(coordinator) == []


def test_a_driver_that_names_itself_wrongly_opens_nothing(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    successor = coordinator.producer(GROUP)
    with pytest.raises(ProducerFenced):
        coordinator.init(GROUP, expected=driver)
    writer(coordinator, successor, "task", A0)
    with pytest.raises(ProducerFenced):
        coordinator.init(GROUP, expected=driver)
    assert coordinator.state(GROUP) is ONGOING


def test_exhausted_epochs_of_a_group_lead_to_a_new_producer_id(coordinator: Coordinator) -> None:
    driver = coordinator.producer(GROUP)
    known = coordinator.known(GROUP)
    assert known is not None
    aged = replace(known, producer_epoch=LAST_CLIENT_EPOCH)
    coordinator.shard.perform(lambda machine, effects: machine.state_manager.write(aged, effects))
    driver = ProducerIdentity(driver.producer_id, LAST_CLIENT_EPOCH)
    writer(coordinator, driver, "task", A0)
    following = coordinator.end(GROUP, driver, batch_id=0, winners=[member(driver, "task")])
    assert following == (1002, 0)
    decided = coordinator.known(GROUP)
    assert decided is not None
    assert decided.producer_epoch == LAST_EPOCH
    coordinator.deliver()
    assert coordinator.end(GROUP, driver, batch_id=0) == following
    assert coordinator.producer(GROUP) == (1002, 1)


# ---- members


def test_each_member_has_a_producer_id_of_its_own(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    assert coordinator.producer(member(driver, "one")) == (1001, 0)
    assert coordinator.producer(member(driver, "two")) == (1002, 0)


@pytest.mark.parametrize("stranger", [ProducerIdentity(1000, 1), ProducerIdentity(7, 0)])
def test_members_of_other_drivers_are_shut_out(
    coordinator: Coordinator, driver: ProducerIdentity, stranger: ProducerIdentity
) -> None:
    with pytest.raises(ProducerFenced):
        coordinator.init(member(stranger, "task"))
    assert coordinator.known(member(stranger, "task")) is None


def test_a_member_needs_a_group(coordinator: Coordinator) -> None:
    with pytest.raises(ProducerFenced):
        coordinator.init(member(ProducerIdentity(1000, 0), "task"))
    assert not coordinator.shard.log


def test_a_member_that_has_not_written_may_start_again(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    first = coordinator.producer(member(driver, "task"))
    assert coordinator.producer(member(driver, "task")) == (first.producer_id, 1)
    with pytest.raises(ProducerFenced):
        coordinator.add(member(driver, "task"), first, A0)


def test_a_member_that_starts_again_too_often_gets_a_new_producer_id(
    coordinator: Coordinator, driver: ProducerIdentity
) -> None:
    name = member(driver, "task")
    coordinator.init(name)
    known = coordinator.known(name)
    assert known is not None
    aged = replace(known, producer_epoch=LAST_CLIENT_EPOCH)
    coordinator.shard.perform(lambda machine, effects: machine.state_manager.write(aged, effects))
    identity = coordinator.producer(name)
    assert identity == (1002, 0)
    coordinator.add(name, identity, A0)
    coordinator.end(GROUP, driver, batch_id=0, winners=[name])
    coordinator.deliver()
    assert coordinator.markers.written == {(1002, A0): [(1, True)]}


def test_nobody_goes_on_under_the_name_of_a_member_that_has_written(
    coordinator: Coordinator, driver: ProducerIdentity
) -> None:
    task = writer(coordinator, driver, "task", A0)
    with pytest.raises(ProducerFenced):
        coordinator.init(member(driver, "task"))
    coordinator.add(member(driver, "task"), task, A1)


def test_a_member_does_not_end_by_itself(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    task = writer(coordinator, driver, "task", A0)
    for commit in (True, False):
        with pytest.raises(InvalidTxnState):
            coordinator.end(member(driver, "task"), task, commit=commit)
    assert coordinator.state(member(driver, "task")) is ONGOING


def test_a_group_does_not_write_itself(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    with pytest.raises(InvalidTxnState):
        coordinator.add(GROUP, driver, A0)
    with pytest.raises(InvalidTxnState):
        coordinator.verify(GROUP, driver, A0)


# ---- ending


def test_winners_are_committed_and_all_others_aborted(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    one = writer(coordinator, driver, "one", A0, B0)
    two = writer(coordinator, driver, "two", A0)
    retried = writer(coordinator, driver, "retried", A1)
    coordinator.producer(member(driver, "idle"))
    winners = [member(driver, name) for name in ("one", "two", "idle")]
    batches = len(coordinator.shard.log)
    assert coordinator.end(GROUP, driver, batch_id=0, winners=winners) == (1000, 1)
    assert len(coordinator.shard.log) == batches + 1
    assert coordinator.state(GROUP) is PREPARE_COMMIT
    coordinator.deliver()
    assert coordinator.markers.written == {
        (one.producer_id, A0): [(1, True)],
        (one.producer_id, B0): [(1, True)],
        (two.producer_id, A0): [(1, True)],
        (retried.producer_id, A1): [(1, False)],
    }
    assert coordinator.state(GROUP) is COMPLETE_COMMIT
    assert [each.transactional_id for each in coordinator.machine.state_manager] == [GROUP]
    assert coordinator.init(GROUP).group_batch_id == 0


def test_a_decided_group_takes_nothing_more(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    task = writer(coordinator, driver, "task", A0)
    coordinator.end(GROUP, driver, batch_id=0, winners=[member(driver, "task")])
    with pytest.raises(ProducerFenced):
        coordinator.add(member(driver, "task"), task, A1)
    with pytest.raises(ProducerFenced):
        coordinator.verify(member(driver, "task"), task, A0)
    with pytest.raises(ProducerFenced):
        coordinator.init(member(driver, "late"))


def test_an_empty_batch_is_committed_by_its_number_alone(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    coordinator.end(GROUP, driver, batch_id=4)
    assert coordinator.state(GROUP) is COMPLETE_COMMIT
    assert not coordinator.markers.waiting
    assert coordinator.init(GROUP).group_batch_id == 4


def test_an_abort_ends_all_members_and_keeps_the_number(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    coordinator.end(GROUP, driver, batch_id=4)
    driver = coordinator.producer(GROUP)
    task = writer(coordinator, driver, "task", A0)
    coordinator.end(GROUP, driver, commit=False)
    assert coordinator.state(GROUP) is PREPARE_ABORT
    coordinator.deliver()
    assert coordinator.markers.written == {(task.producer_id, A0): [(1, False)]}
    assert coordinator.init(GROUP).group_batch_id == 4


def test_a_winner_must_be_a_member_of_this_driver(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    writer(coordinator, driver, "task", A0)
    batches = len(coordinator.shard.log)
    strangers = [member(driver, "nobody"), member(ProducerIdentity(1000, 7), "task"), GROUP, "orders", ""]
    for stranger in strangers:
        with pytest.raises(InvalidTxnState):
            coordinator.end(GROUP, driver, batch_id=0, winners=[member(driver, "task"), stranger])
    assert len(coordinator.shard.log) == batches
    assert coordinator.state(GROUP) is ONGOING


def test_a_winner_is_not_a_member_of_another_group(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    other = coordinator.producer("tidelog-group-other")
    stranger = f"tidelog-group-other#{other.producer_id}.{other.producer_epoch}-task"
    coordinator.producer(stranger)
    with pytest.raises(InvalidTxnState):
        coordinator.end(GROUP, driver, batch_id=0, winners=[stranger])
    assert coordinator.state(GROUP) is ONGOING


def test_a_batch_that_was_committed_before_is_not_committed_again(
    coordinator: Coordinator, driver: ProducerIdentity
) -> None:
    first = writer(coordinator, driver, "task", A0)
    coordinator.end(GROUP, driver, batch_id=3, winners=[member(driver, "task")])
    coordinator.deliver()
    for batch_id in (3, 2, 0):
        driver = coordinator.producer(GROUP)
        again = writer(coordinator, driver, "task", A0)
        response = coordinator.end(GROUP, driver, batch_id=batch_id, winners=[member(driver, "task")])
        assert response == coordinator.end(GROUP, driver, batch_id=batch_id)
        coordinator.deliver()
        assert coordinator.markers.written[again.producer_id, A0] == [(1, False)]
    assert coordinator.markers.written[first.producer_id, A0] == [(1, True)]
    assert coordinator.state(GROUP) is COMPLETE_ABORT
    assert coordinator.init(GROUP).group_batch_id == 3


def test_a_repeated_end_is_granted(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    writer(coordinator, driver, "task", A0)
    winners = [member(driver, "task")]
    response = coordinator.end(GROUP, driver, batch_id=0, winners=winners)
    assert coordinator.end(GROUP, driver, batch_id=0, winners=winners) == response
    assert coordinator.end(GROUP, driver, batch_id=0, winners=winners, version=OLD) == response
    coordinator.crash()
    coordinator.deliver()
    assert coordinator.end(GROUP, driver, batch_id=0, winners=winners) == response
    with pytest.raises(InvalidTxnState):
        coordinator.end(GROUP, driver, commit=False)
    with pytest.raises(InvalidTxnState):
        coordinator.end(GROUP, driver, batch_id=1)
    coordinator.end(GROUP, response, commit=False)  # nothing is open
    with pytest.raises(InvalidTxnState):
        coordinator.end(GROUP, response)


def test_a_repeated_abort_is_granted_and_a_commit_after_it_is_not(
    coordinator: Coordinator, driver: ProducerIdentity
) -> None:
    writer(coordinator, driver, "task", A0)
    response = coordinator.end(GROUP, driver, commit=False)
    for _ in range(2):
        assert coordinator.end(GROUP, driver, commit=False) == response
        with pytest.raises(InvalidTxnState):
            coordinator.end(GROUP, driver, batch_id=0)
        coordinator.deliver()


def test_a_group_without_numbers_can_be_committed_and_repeated(
    coordinator: Coordinator, driver: ProducerIdentity
) -> None:
    task = writer(coordinator, driver, "task", A0)
    coordinator.end(GROUP, driver, winners=[member(driver, "task")])
    coordinator.end(GROUP, driver, winners=[member(driver, "task")])
    coordinator.deliver()
    assert coordinator.markers.written == {(task.producer_id, A0): [(1, True)]}
    assert coordinator.init(GROUP).group_batch_id == -1


def test_nonsense_is_refused(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    coordinator.producer(member(driver, "task"))
    with pytest.raises(InvalidRequest):
        coordinator.end(GROUP, driver, batch_id=-2)
    with pytest.raises(InvalidRequest):
        coordinator.end(GROUP, driver, commit=False, winners=[member(driver, "task")])
    with pytest.raises(ProducerFenced):
        coordinator.end(GROUP, ProducerIdentity(1000, 7), batch_id=0)
    with pytest.raises(InvalidProducerIdMapping):
        coordinator.end(GROUP, ProducerIdentity(7, 0), batch_id=0)
    with pytest.raises(InvalidProducerIdMapping):
        coordinator.end("tidelog-group-unknown", driver, batch_id=0)
    assert coordinator.state(GROUP) is ONGOING


# ---- time


def test_a_group_that_is_open_for_too_long_is_aborted(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    task = writer(coordinator, driver, "task", A0)
    coordinator.shard.advance(TIMEOUT_MS)
    assert coordinator.state(GROUP) is PREPARE_ABORT
    coordinator.deliver()
    assert coordinator.markers.written == {(task.producer_id, A0): [(1, False)]}
    with pytest.raises(InvalidTxnState):
        coordinator.end(GROUP, driver, batch_id=0, winners=[])
    assert coordinator.init(GROUP).producer_epoch == 2


def test_a_group_stays_open_while_members_come(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    for number in range(5):
        coordinator.shard.advance(TIMEOUT_MS - 1)
        writer(coordinator, driver, f"task-{number}", A0)
    assert coordinator.state(GROUP) is ONGOING
    coordinator.shard.advance(TIMEOUT_MS - 1)
    assert coordinator.state(GROUP) is ONGOING
    coordinator.shard.advance(1)
    assert coordinator.state(GROUP) is PREPARE_ABORT


def test_a_group_stays_open_while_members_write_to_more_partitions(
    coordinator: Coordinator, driver: ProducerIdentity
) -> None:
    task = writer(coordinator, driver, "task", A0)
    coordinator.shard.advance(TIMEOUT_MS - 1)
    coordinator.add(member(driver, "task"), task, B0)
    coordinator.shard.advance(TIMEOUT_MS - 1)
    assert coordinator.state(GROUP) is ONGOING
    coordinator.shard.advance(1)
    assert coordinator.state(GROUP) is PREPARE_ABORT


@pytest.mark.parametrize("is_crash", [False, True])
def test_a_clock_that_is_set_back_does_not_keep_a_group_open(
    coordinator: Coordinator, driver: ProducerIdentity, is_crash: bool
) -> None:
    writer(coordinator, driver, "task", A0)
    coordinator.shard.now_ms -= 10 * TIMEOUT_MS
    if is_crash:
        coordinator.crash()
    coordinator.shard.advance(TIMEOUT_MS)
    assert coordinator.state(GROUP) is PREPARE_ABORT


def test_a_new_coordinator_counts_from_the_last_member_of_a_group(
    coordinator: Coordinator, driver: ProducerIdentity
) -> None:
    coordinator.shard.advance(TIMEOUT_MS - 1)
    writer(coordinator, driver, "task", A0)
    coordinator.shard.advance(1)
    coordinator.crash()
    coordinator.shard.advance(TIMEOUT_MS - 2)
    assert coordinator.state(GROUP) is ONGOING
    coordinator.shard.advance(1)
    assert coordinator.state(GROUP) is PREPARE_ABORT


def test_members_have_no_timeout_of_their_own() -> None:
    coordinator = Coordinator()
    opened = coordinator.init(GROUP, timeout_ms=10 * TIMEOUT_MS)
    driver = ProducerIdentity(opened.producer_id, opened.producer_epoch)
    writer(coordinator, driver, "task", A0)
    coordinator.shard.advance(5 * TIMEOUT_MS)
    coordinator.crash()
    assert coordinator.state(member(driver, "task")) is ONGOING
    coordinator.shard.advance(5 * TIMEOUT_MS)
    assert coordinator.state(GROUP) is PREPARE_ABORT


def test_groups_remember_their_batch_for_ever() -> None:
    coordinator = Coordinator(CoordinatorSettings(transactional_id_expiration_ms=1))
    coordinator.end(GROUP, coordinator.producer(GROUP), batch_id=9)
    coordinator.shard.advance(10_000_000)
    assert coordinator.init(GROUP).group_batch_id == 9


def test_groups_that_number_nothing_are_forgotten_in_time() -> None:
    coordinator = Coordinator(CoordinatorSettings(transactional_id_expiration_ms=1))
    coordinator.end(GROUP, coordinator.producer(GROUP))
    coordinator.shard.advance(10_000_000)
    assert coordinator.known(GROUP) is None


# ---- crashes


@pytest.mark.parametrize("arrived_before", [0, 1, 2, 3])
def test_a_decision_outlives_its_coordinator_at_every_record(arrived_before: int) -> None:
    """Markers are on their way only once the decision is committed: from there on nothing changes it."""
    decided_at = _first_prepared(_group_transaction(0))
    for kept in range(decided_at, len(_group_transaction(arrived_before).shard.log) + 1):
        coordinator = _group_transaction(arrived_before)
        coordinator.crash(kept)
        coordinator.deliver()
        assert coordinator.state(GROUP) is COMPLETE_COMMIT
        assert member_names(coordinator) == []
        winners = {1001: True, 1002: True, 1003: False}
        assert len(coordinator.markers.written) == 5
        for (producer_id, _), markers in coordinator.markers.written.items():
            assert markers == [(1, winners[producer_id])]
        assert coordinator.init(GROUP).group_batch_id == 5


def test_without_a_decision_a_crash_leads_to_an_abort() -> None:
    for kept in range(1, _first_prepared(_group_transaction(0))):
        coordinator = _group_transaction(0)
        coordinator.crash(kept)
        coordinator.shard.advance(TIMEOUT_MS)
        coordinator.deliver()
        assert coordinator.state(GROUP) is COMPLETE_ABORT
        assert member_names(coordinator) == []
        assert all(markers == [(1, False)] for markers in coordinator.markers.written.values())
        assert coordinator.init(GROUP).group_batch_id == -1


def _group_transaction(arrived_before: int) -> Coordinator:
    coordinator = Coordinator()
    driver = coordinator.producer(GROUP)
    for name, partitions in {"one": (A0, B0), "two": (A1,), "loser": (A0, A1)}.items():
        writer(coordinator, driver, name, *partitions)
    coordinator.producer(member(driver, "idle"))
    coordinator.end(GROUP, driver, batch_id=5, winners=[member(driver, "one"), member(driver, "two")])
    for order in coordinator.markers.waiting[:arrived_before]:
        coordinator.arrive(order, order.partitions)
    return coordinator


def _first_prepared(coordinator: Coordinator) -> int:
    """How many batches it takes until the decision is written."""
    replayed = Coordinator()
    for number, entry in enumerate(coordinator.shard.log, 1):
        for record in entry.records:  # type: ignore[union-attr]
            replayed.machine.replay(record, None)
        if replayed.state(GROUP) is PREPARE_COMMIT:
            return number
    raise AssertionError("there is no decision")


def test_what_could_not_be_noted_is_noted_later(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    for name in ("one", "two"):
        writer(coordinator, driver, name, A0)
    coordinator.end(GROUP, driver, batch_id=0, winners=[member(driver, "one")])
    coordinator.shard.rejection = CoordinatorNotAvailable()
    coordinator.deliver()
    assert member_names(coordinator) == ["one", "two"]
    coordinator.shard.rejection = None
    coordinator.shard.advance(1000)
    assert coordinator.state(GROUP) is COMPLETE_COMMIT
    assert member_names(coordinator) == []


def test_loading_a_decision_while_nothing_can_be_written(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    writer(coordinator, driver, "task", A0)
    coordinator.end(GROUP, driver, batch_id=0, winners=[member(driver, "task")])
    coordinator.markers.waiting.clear()
    coordinator.shard = coordinator.shard.reloaded()
    coordinator.shard.rejection = CoordinatorNotAvailable()
    coordinator.deliver()
    coordinator.shard.advance(10_000)
    assert coordinator.state(GROUP) is PREPARE_COMMIT
    coordinator.shard.rejection = None
    coordinator.shard.advance(10_000)
    assert coordinator.state(GROUP) is COMPLETE_COMMIT


def test_a_group_is_never_empty_as_kafka_means_it(coordinator: Coordinator, driver: ProducerIdentity) -> None:
    states: set[TransactionState | None] = {coordinator.state(GROUP)}
    coordinator.end(GROUP, driver, batch_id=0)
    states.add(coordinator.state(GROUP))
    coordinator.producer(GROUP)
    states.add(coordinator.state(GROUP))
    assert states == {ONGOING, COMPLETE_COMMIT}


# ---- many members

MAX_BATCH = 1_048_588
"""Kafka's default of max.message.bytes."""


def batch_bytes(written: object) -> int:
    assert isinstance(written, WrittenStep)
    effects = Effects(0)
    effects.records += written.records
    return len(batch_of(effects))


def many_members(coordinator: Coordinator, driver: ProducerIdentity) -> list[str]:
    """As many as a group takes."""
    names: list[str] = []
    while True:
        name = member(driver, f"{len(names)} of those that have a {'very ' * 40}long name")
        try:
            coordinator.init(name)
        except PolicyViolation:
            return names
        names.append(name)


def test_a_group_with_as_many_members_as_it_takes_is_ended_in_batches_that_can_be_written(
    coordinator: Coordinator, driver: ProducerIdentity
) -> None:
    names = many_members(coordinator, driver)
    assert len(names) >= 3000
    for name in names[:-100]:
        known = coordinator.known(name)
        assert known is not None
        coordinator.add(name, known.identity, A0)
    before = len(coordinator.shard.log)
    coordinator.end(GROUP, driver, batch_id=1, winners=names)
    coordinator.crash()
    coordinator.deliver()
    coordinator.shard.advance(0)
    assert coordinator.state(GROUP) is COMPLETE_COMMIT
    assert member_names(coordinator) == []
    assert max(map(batch_bytes, coordinator.shard.log[before:])) < MAX_BATCH


@pytest.mark.parametrize("is_opened_again", [True, False])
def test_idle_members_of_a_large_group_are_forgotten_in_batches_that_can_be_written(
    coordinator: Coordinator, driver: ProducerIdentity, is_opened_again: bool
) -> None:
    many_members(coordinator, driver)
    before = len(coordinator.shard.log)
    if is_opened_again:
        with pytest.raises(ConcurrentTransactions):
            coordinator.init(GROUP)
    else:
        coordinator.end(GROUP, driver, commit=False)
    coordinator.crash()
    coordinator.shard.advance(0)
    assert coordinator.state(GROUP) is COMPLETE_ABORT
    assert member_names(coordinator) == []
    assert max(map(batch_bytes, coordinator.shard.log[before:])) < MAX_BATCH / 4
