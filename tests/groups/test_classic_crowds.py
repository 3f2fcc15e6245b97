"""Steps of very large classic groups: what they do per member is little, since a step cannot be divided."""

from collections.abc import Callable

from tests.counted_calls import counted_calls
from tests.groups.classic_groups import GROUP, RANGE, Coordinator
from tidelog.errors import NotEnoughReplicas
from tidelog.groups.classic.records import encoded_group, group_key
from tidelog.groups.classic.states import GroupState
from tidelog.protocol.internal.offset_records import GroupMetadataValue
from tidelog.protocol.internal.versioned import decode_versioned, encode_versioned
from tidelog.replicated.machine import StateRecord

MEMBERS = 400


def waiting_crowd(instance: Callable[[int], str | None] = lambda _: None) -> Coordinator:
    """All members have sent JoinGroup, and the generation is about to begin."""
    coordinator = Coordinator(group_initial_rebalance_delay_ms=1)
    for number in range(MEMBERS):
        coordinator.join(version=3, instance=instance(number))
    coordinator.group.has_new_member = False
    return coordinator


def synced_crowd() -> tuple[Coordinator, dict[str, bytes]]:
    """All members but the leader wait for their assignments."""
    coordinator = waiting_crowd()
    coordinator.shard.advance(1)
    leader, *others = coordinator.group.members
    for member_id in others:
        coordinator.sync(member_id, 1)
    return coordinator, dict.fromkeys((leader, *others), b"yours")


def test_a_generation_of_many_members_begins_with_little_work_for_each() -> None:
    coordinator = waiting_crowd()
    with counted_calls() as calls:
        coordinator.shard.advance(1)
    assert coordinator.group.state is GroupState.COMPLETING_REBALANCE
    assert calls.count / MEMBERS < 26


def test_an_assignment_of_many_members_is_stored_with_little_work_for_each() -> None:
    coordinator, assignments = synced_crowd()
    with counted_calls() as calls:
        answer = coordinator.sync(next(iter(assignments)), 1, assignments)
    assert answer.synced.assignment == b"yours"
    assert coordinator.group.state is GroupState.STABLE
    assert calls.count / MEMBERS < 32


def test_one_static_member_that_comes_back_costs_little_for_each_of_the_others() -> None:
    coordinator = waiting_crowd(str)
    coordinator.shard.advance(1)
    coordinator.assign(*coordinator.group.members)
    with counted_calls() as calls:
        answer = coordinator.join(instance="7")
    assert answer.joined.member_id in coordinator.group.members
    assert calls.count / MEMBERS < 12


def test_equal_subscriptions_are_decoded_once() -> None:
    coordinator = Coordinator()
    subscription = b"\0\0" + b"\0\0\0\1\0\1t" + b"\xff\xff\xff\xff"
    for _ in range(MEMBERS):
        coordinator.join(version=3, protocols=(("range", subscription),))
    with counted_calls() as calls:
        assert coordinator.group.members.subscribed_topics("range") == frozenset("t")
    assert calls.count / MEMBERS < 5


# -- what is remembered of a member is what it has


def test_a_record_of_remembered_parts_is_what_the_codec_writes() -> None:
    coordinator, assignments = synced_crowd()
    coordinator.sync(next(iter(assignments)), 1, assignments)
    group = coordinator.group
    written = encoded_group(group, assignments)
    value = decode_versioned(GroupMetadataValue, written)
    assert encode_versioned(value, 3) == written
    assert [each.member_id for each in value.members] == list(group.members)
    assert {each.assignment for each in value.members} == {b"yours"}


def test_a_member_that_joins_again_with_other_metadata_is_stored_with_it() -> None:
    coordinator = Coordinator()
    (member_id,) = coordinator.stable(1)
    coordinator.join(member_id, protocols=(("range", b"other"), ("sticky", b"third")), rebalance_ms=5, session_ms=7_000)
    coordinator.sync(member_id, 2, {member_id: b"new"})
    stored = coordinator.written()[-1]
    assert stored is not None
    (member,) = stored.members
    assert (member.subscription, member.assignment) == (b"other", b"new")
    assert (member.rebalance_timeout, member.session_timeout) == (5, 7_000)


def test_a_stored_generation_with_another_protocol_has_the_metadata_of_that() -> None:
    coordinator = Coordinator()
    coordinator.stable(1, protocols=(*RANGE, ("sticky", b"for sticky")))
    group = coordinator.group
    group.protocol_name = "sticky"
    stored = decode_versioned(GroupMetadataValue, encoded_group(group, {}))
    assert stored.members[0].subscription == b"for sticky"


def test_a_record_of_a_rejected_append_is_forgotten() -> None:
    coordinator, assignments = synced_crowd()
    coordinator.shard.rejection = NotEnoughReplicas()
    coordinator.sync(next(iter(assignments)), 1, assignments)
    assert coordinator.group.members.written is None
    assert {member.assignment for member in coordinator.group.members.values()} == {b""}


def test_a_record_that_was_read_is_decoded() -> None:
    coordinator, assignments = synced_crowd()
    value = encoded_group(coordinator.group, assignments)
    coordinator.shard.machine.replay(StateRecord(group_key(GROUP), value), None)
    assert coordinator.group.state is GroupState.STABLE
    assert {member.assignment for member in coordinator.group.members.values()} == {b"yours"}
