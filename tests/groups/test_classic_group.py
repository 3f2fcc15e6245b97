"""Queries of a classic group, and its stored form."""

import pytest

from tests.groups.classic_groups import DELAY_MS, SESSION_MS, Coordinator, leaving
from tidelog.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    KafkaError,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from tidelog.groups.classic.group import ClassicGroup
from tidelog.groups.classic.records import group_key, write_group, write_new_group
from tidelog.groups.classic.states import TRANSITIONS, GroupState
from tidelog.groups.group import Membership
from tidelog.protocol.codec import encode
from tidelog.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from tidelog.protocol.internal.offset_records import GroupMetadataValue
from tidelog.protocol.internal.versioned import decode_versioned, encode_versioned
from tidelog.replicated.machine import Effects
from tidelog.state_machine import IllegalTransition

NOW_MS = 1_700_000_000_123

# Written by the classes of Apache Kafka 4.3.1.
KAFKA_KEY = bytes.fromhex("0002000772656164657273")
KAFKA_NEW_GROUP = bytes.fromhex("0003000000000000ffffffff0000018bcfe5687b00000000")
KAFKA_GROUP = bytes.fromhex(
    "00030008636f6e73756d657200000003000572616e67650003612d310000018bcfe5687b000000020003612d310001610006636c69656e74"
    "000a2f3132372e302e302e310000ea60000027100000000777616e74732074000000036f6e650003622d32ffff000000042f3a3a31000493"
    "e00000afc80000000777616e7473207500000000"
)


def subscription(*topics: str, version: int = 3) -> bytes:
    value = ConsumerProtocolSubscription(topics=list(topics), user_data=b"sticky", generation_id=5, rack_id="r")
    return version.to_bytes(2, "big") + encode(value, version)


def wanting(*topics: str) -> tuple[tuple[str, bytes], ...]:
    return (("range", subscription(*topics)),)


# -- records


def test_key_and_new_group_are_written_as_kafka_writes_them() -> None:
    effects = Effects(NOW_MS)
    write_new_group(ClassicGroup("readers", NOW_MS), effects)
    assert effects.records == [(KAFKA_KEY, KAFKA_NEW_GROUP)]


def test_generation_of_kafka_is_read_and_written_again_byte_by_byte() -> None:
    group = ClassicGroup.restored("readers", decode_versioned(GroupMetadataValue, KAFKA_GROUP))
    assert (group.state, group.generation, group.members.leader_id) == (GroupState.STABLE, 3, "a-1")
    assert (group.protocol_type, group.protocol_name, group.state_timestamp_ms) == ("consumer", "range", NOW_MS)
    assert group.members.static_ids == {"a": "a-1"}
    effects = Effects(NOW_MS)
    write_group(group, {member.member_id: member.assignment for member in group.members.values()}, effects)
    assert effects.records == [(KAFKA_KEY, KAFKA_GROUP)]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_groups_of_older_brokers_are_read(version: int) -> None:
    stored = decode_versioned(GroupMetadataValue, KAFKA_GROUP)
    older = decode_versioned(GroupMetadataValue, encode_versioned(stored, version))
    group = ClassicGroup.restored("readers", older)
    timeouts = [member.rebalance_timeout_ms for member in group.members.values()]
    assert timeouts == ([10_000, 45_000] if version == 0 else [60_000, 300_000])
    assert group.state_timestamp_ms == (NOW_MS if version >= 2 else None)


def test_group_whose_leader_is_not_among_its_members_has_another() -> None:
    stored = decode_versioned(GroupMetadataValue, KAFKA_GROUP)
    stored.leader = None
    assert ClassicGroup.restored("readers", stored).members.leader_id == "a-1"


# -- states


@pytest.mark.parametrize("target", GroupState)
def test_group_makes_only_moves_of_the_table(target: GroupState) -> None:
    for state in GroupState:
        group = ClassicGroup("readers", NOW_MS)
        group.state = state
        if target in TRANSITIONS[state]:
            group.move(target, NOW_MS + 1, "test")
            assert (group.state, group.state_timestamp_ms) == (target, NOW_MS + 1)
        else:
            with pytest.raises(IllegalTransition, match=f"readers generation=0: {state.name} -> {target.name}"):
                group.move(target, NOW_MS, "test")


# -- offsets


def rejection(group: ClassicGroup, member: Membership, *, is_transactional: bool = False) -> type[KafkaError] | None:
    try:
        group.check_offset_commit(member, is_transactional=is_transactional, api_version=9)
    except KafkaError as error:
        return type(error)
    return None


def test_anybody_without_a_generation_commits_offsets_to_an_empty_group() -> None:
    group = ClassicGroup("readers", NOW_MS)
    assert rejection(group, Membership()) is None
    assert rejection(group, Membership("m")) is None
    assert rejection(group, Membership("m", 0)) is UnknownMemberId


def test_only_members_of_the_generation_commit_offsets_to_a_group_with_members() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    group = coordinator.group
    assert rejection(group, Membership(member, 1)) is None
    assert rejection(group, Membership(member, 2)) is IllegalGeneration
    assert rejection(group, Membership(member)) is IllegalGeneration
    assert rejection(group, Membership("nobody", 1)) is UnknownMemberId
    assert rejection(group, Membership()) is UnknownMemberId
    assert rejection(group, Membership(), is_transactional=True) is None
    assert rejection(group, Membership(member, 2), is_transactional=True) is IllegalGeneration


def test_offsets_are_committed_while_members_join_but_not_between_join_and_sync() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    coordinator.join(leader)
    assert rejection(coordinator.group, Membership(follower, 1)) is None
    coordinator.join(follower)
    assert rejection(coordinator.group, Membership(follower, 2)) is RebalanceInProgress
    assert rejection(coordinator.group, Membership(follower, 2), is_transactional=True) is None


def test_offsets_count_as_unused_since_the_group_is_empty() -> None:
    simple = ClassicGroup("readers", NOW_MS)
    assert simple.offsets_unused_since_ms(7) == 7
    coordinator = Coordinator()
    (member,) = coordinator.stable(1, protocols=wanting("t"))
    assert coordinator.group.offsets_unused_since_ms(7) == 7
    coordinator.join(member)
    assert coordinator.group.offsets_unused_since_ms(7) is None
    coordinator.leave(leaving(member))
    assert coordinator.group.offsets_unused_since_ms(7) == coordinator.shard.now_ms


def test_group_of_another_kind_keeps_its_offsets_while_it_has_members() -> None:
    coordinator = Coordinator()
    coordinator.enter(protocol_type="connect")
    coordinator.shard.advance(DELAY_MS)
    leader = coordinator.group.members.leader_id
    assert leader is not None
    coordinator.sync(leader, 1, {}, protocol_type="connect")
    assert coordinator.group.state is GroupState.STABLE
    assert coordinator.group.offsets_unused_since_ms(7) is None
    assert not coordinator.group.is_subscribed_to("t")


def test_subscription_is_that_of_all_members_whatever_their_version() -> None:
    coordinator = Coordinator()
    coordinator.enter(protocols=(("range", subscription("t", version=0)),))
    coordinator.enter(protocols=(("range", subscription("u", version=3)),))
    coordinator.shard.advance(DELAY_MS * 2)
    assert coordinator.group.subscribed_topics == frozenset({"t", "u"})
    assert coordinator.group.is_subscribed_to("u")
    assert not coordinator.group.is_subscribed_to("v")


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\x00\x01\x7f\xff\xff\xff"])
def test_consumers_whose_subscription_cannot_be_read_may_want_anything(metadata: bytes) -> None:
    coordinator = Coordinator()
    coordinator.stable(1, protocols=(("range", metadata),))
    assert coordinator.group.subscribed_topics is None
    assert coordinator.group.is_subscribed_to("t")


def test_only_empty_groups_are_deleted() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    with pytest.raises(NonEmptyGroup):
        coordinator.group.check_deletion()
    coordinator.leave(leaving(member))
    coordinator.group.check_deletion()
    coordinator.group.move(GroupState.DEAD, NOW_MS, "test")
    with pytest.raises(GroupIdNotFound):
        coordinator.group.check_deletion()
    with pytest.raises(GroupIdNotFound):
        coordinator.group.check_offset_fetch(Membership())


# -- description


def test_stable_group_is_described_with_metadata_and_assignments() -> None:
    coordinator = Coordinator()
    (member_id,) = coordinator.stable(1, client_id="app")
    described = coordinator.group.described()
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    (member,) = described.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "app", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"wants t", member_id.encode())


def test_group_that_rebalances_is_described_without_metadata() -> None:
    coordinator = Coordinator()
    coordinator.enter()
    described = coordinator.group.described()
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert described.members[0].member_metadata == b""


def test_deleted_group_is_taken_back_by_its_key() -> None:
    effects = Effects(NOW_MS)
    ClassicGroup("readers", NOW_MS).write_tombstones(effects)
    assert effects.records == [(group_key("readers"), None)]


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_sessions_last_as_long_as_they_should_whatever_is_done_to_the_clock(jump_ms: int) -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.stable(2)
    for _ in range(3):
        coordinator.shard.advance(SESSION_MS // 4)
        coordinator.heartbeat(leader, 1)
    coordinator.shard.now_ms += jump_ms
    coordinator.shard.advance(SESSION_MS // 4)
    coordinator.heartbeat(leader, 1)
    assert leader in coordinator.group.members
    coordinator.shard.advance(SESSION_MS // 4)
    assert list(coordinator.group.members) == [leader]
