"""ConsumerGroupHeartbeat: what members are answered."""

import time
from typing import Any

import pytest

from tests.groups.consumer_groups import (
    GROUP,
    REBALANCE_TIMEOUT_MS,
    Cluster,
    Coordinator,
    assignment_in,
    durable,
    listed,
)
from tidelog.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRegularExpression,
    InvalidRequest,
    KafkaError,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from tidelog.groups.consumer import record_keys
from tidelog.groups.group import Caller, GroupSettings, Membership
from tidelog.protocol.internal.versioned import version_of
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.replicated.machine import Effects
from tidelog.replicated.memory_shard import MemoryReply, WrittenStep


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.create_topic("a", 4)
    return cluster


@pytest.fixture
def coordinator(cluster: Cluster) -> Coordinator:
    return Coordinator(cluster)


def rebalance_to_two(coordinator: Coordinator) -> None:
    """m1 has had everything; m2 has come; m1 has given half of it up."""
    coordinator.join("m1")
    coordinator.join("m2")
    left = assignment_in(coordinator.heartbeat("m1", 1))
    assert left is not None
    coordinator.heartbeat("m1", 1, topic_partitions=listed(left))
    coordinator.heartbeat("m2", 2)
    assert coordinator.group.state_name == "Stable"


# -- joining


def test_the_first_member_gets_everything_at_once(coordinator: Coordinator, cluster: Cluster) -> None:
    response = coordinator.join("m1")
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == ("m1", 1, 5_000)
    assert assignment_in(response) == cluster.partitions_of("a")


def test_a_heartbeat_without_news_is_answered_without_assignment_and_writes_nothing(coordinator: Coordinator) -> None:
    coordinator.join("m1")
    before = len(coordinator.shard.log)
    assert assignment_in(coordinator.heartbeat("m1", 1)) is None
    assert len(coordinator.shard.log) == before


def test_a_full_request_is_answered_with_the_assignment(coordinator: Coordinator, cluster: Cluster) -> None:
    coordinator.join("m1")
    full: dict[str, Any] = {
        "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
        "subscribed_topic_names": ["a"],
        "topic_partitions": [],
    }
    assert assignment_in(coordinator.heartbeat("m1", 1, **full)) == cluster.partitions_of("a")


def test_in_version_0_the_broker_makes_the_member_id(coordinator: Coordinator) -> None:
    response = coordinator.join("", api_version=0)
    assert len(response.member_id) == 22
    assert response.member_id in coordinator.group.members


def test_a_partition_is_given_on_only_when_it_was_given_up(coordinator: Coordinator, cluster: Cluster) -> None:
    coordinator.join("m1")
    joined = coordinator.join("m2")
    assert (assignment_in(joined), joined.member_epoch) == (set(), 2)
    revoking = coordinator.heartbeat("m1", 1)
    kept = assignment_in(revoking)
    assert kept is not None
    assert (len(kept), revoking.member_epoch) == (2, 1)
    assert assignment_in(coordinator.heartbeat("m2", 2)) is None
    assert coordinator.group.state_name == "Reconciling"
    assert coordinator.heartbeat("m1", 1, topic_partitions=listed(kept)).member_epoch == 2
    assert assignment_in(coordinator.heartbeat("m2", 2)) == cluster.partitions_of("a") - kept


def test_a_member_that_still_has_what_it_should_give_up_stays_in_its_epoch(
    coordinator: Coordinator, cluster: Cluster
) -> None:
    coordinator.join("m1")
    coordinator.join("m2")
    coordinator.heartbeat("m1", 1)
    still = coordinator.heartbeat("m1", 1, topic_partitions=listed(cluster.partitions_of("a")))
    assert still.member_epoch == 1
    assert assignment_in(coordinator.heartbeat("m2", 2)) is None


def test_the_previous_epoch_is_accepted_from_who_has_nothing_more(coordinator: Coordinator, cluster: Cluster) -> None:
    rebalance_to_two(coordinator)
    kept = {partition for partition, owner in coordinator.group.owners.items() if owner == "m1"}
    assert coordinator.heartbeat("m1", 1, topic_partitions=listed(kept)).member_epoch == 2
    everything = listed(cluster.partitions_of("a"))
    assert isinstance(coordinator.heartbeat("m1", 1, topic_partitions=everything), FencedMemberEpoch)
    assert isinstance(coordinator.heartbeat("m1", 1), FencedMemberEpoch)


def test_a_member_that_starts_again_learns_what_it_has(coordinator: Coordinator, cluster: Cluster) -> None:
    coordinator.join("m1")
    response = coordinator.join("m1")
    assert (response.member_epoch, assignment_in(response)) == (1, cluster.partitions_of("a"))


def test_a_topic_that_does_not_exist_yet_is_assigned_when_it_does(coordinator: Coordinator, cluster: Cluster) -> None:
    assert assignment_in(coordinator.join("m1", ["later"])) == set()
    cluster.create_topic("later", 2)
    response = coordinator.heartbeat("m1", 1)
    assert (response.member_epoch, assignment_in(response)) == (2, cluster.partitions_of("later"))


def test_new_partitions_are_assigned(coordinator: Coordinator, cluster: Cluster) -> None:
    coordinator.join("m1")
    cluster.grow_topic("a", 6)
    assert assignment_in(coordinator.heartbeat("m1", 1)) == cluster.partitions_of("a")


def test_a_member_that_wants_no_topic_yet_has_joined_all_the_same(coordinator: Coordinator, cluster: Cluster) -> None:
    """Java consumers join like this when they look for topics that match a pattern."""
    assert coordinator.join("m1", []).member_epoch == 1
    assert coordinator.heartbeat("m1", 1).member_epoch == 1
    coordinator.fail_over()
    assert coordinator.group.epoch == 1
    assert assignment_in(coordinator.heartbeat("m1", 1, subscribed_topic_names=["a"])) == cluster.partitions_of("a")


def test_kafka_does_not_write_down_that_a_group_is_in_its_first_epoch(
    coordinator: Coordinator, cluster: Cluster
) -> None:
    coordinator.join("m1", [])
    (written,) = coordinator.shard.log
    assert isinstance(written, WrittenStep)
    kept = [record for record in written.records if version_of(record.key) != record_keys.GROUP]
    coordinator.shard.log = [written._replace(records=tuple(kept))]
    coordinator.fail_over()
    assert coordinator.group.epoch == 1
    assert assignment_in(coordinator.heartbeat("m1", 1, subscribed_topic_names=["a"])) == cluster.partitions_of("a")


def test_a_deleted_topic_is_taken_away(coordinator: Coordinator, cluster: Cluster) -> None:
    coordinator.join("m1")
    cluster.delete_topic("a")
    assert assignment_in(coordinator.heartbeat("m1", 1)) == set()
    assert coordinator.heartbeat("m1", 1, topic_partitions=[]).member_epoch == 2
    assert coordinator.group.owners == {}


def test_topics_of_others_do_not_matter(coordinator: Coordinator, cluster: Cluster) -> None:
    coordinator.join("m1")
    cluster.create_topic("other", 3)
    assert coordinator.heartbeat("m1", 1).member_epoch == 1


def test_topics_that_match_are_found_as_they_appear(coordinator: Coordinator, cluster: Cluster) -> None:
    response = coordinator.join("m1", None, subscribed_topic_regex="a.*")
    assert assignment_in(response) == cluster.partitions_of("a")
    cluster.create_topic("abc", 1)
    cluster.create_topic("xyz", 1)
    assert assignment_in(coordinator.heartbeat("m1", 1)) == cluster.partitions_of("a", "abc")
    assert coordinator.group.is_subscribed_to("abc")
    assert not coordinator.group.is_subscribed_to("xyz")
    changed = coordinator.heartbeat("m1", 2, subscribed_topic_names=["xyz"], subscribed_topic_regex="")
    assert assignment_in(changed) == set()
    assert coordinator.group.regexes == {}


def test_the_assignor_that_most_members_ask_for_is_used(coordinator: Coordinator, cluster: Cluster) -> None:
    cluster.create_topic("b", 3)
    for name in ("m1", "m2"):
        coordinator.join(name, ["a", "b"], server_assignor="range")
    assert coordinator.describe().assignor_name == "range"
    topic_ids = sorted(topic.topic_id for topic in cluster.image.topics.values())
    assert coordinator.group.targets["m1"] == {topic_ids[0]: frozenset({0, 1}), topic_ids[1]: frozenset({0, 1})}


# -- refusals


JOIN: dict[str, Any] = {
    "member_id": "m1",
    "epoch": 0,
    "rebalance_timeout_ms": 1_000,
    "subscribed_topic_names": ["a"],
    "topic_partitions": [],
}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"instance_id": " "}, "InstanceId can't be empty."),
        ({"instance_id": "\0\x1f "}, "InstanceId can't be empty."),
        ({"rack_id": "  "}, "RackId can't be empty."),
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"member_id": "", "epoch": 3}, "MemberId can't be empty."),
        ({"member_id": "", "epoch": -1}, "MemberId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"topic_partitions": [TopicPartitions(topic_id=b"x" * 16, partitions=[1])]},
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"epoch": -2}, "InstanceId can't be null."),
        ({"epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_requests_that_contradict_themselves_are_refused(
    coordinator: Coordinator, wrong: dict[str, Any], message: str
) -> None:
    fields = JOIN | wrong
    outcome = coordinator.heartbeat(fields.pop("member_id"), fields.pop("epoch"), **fields)
    assert isinstance(outcome, InvalidRequest)
    assert outcome.message == message
    assert coordinator.shard.log == []
    assert coordinator.shard.machine.groups == {}


def test_unknown_assignors_and_bad_expressions_are_refused(coordinator: Coordinator) -> None:
    outcome = coordinator.join("m1", server_assignor="mine")
    assert isinstance(outcome, UnsupportedAssignor)
    assert outcome.message == "ServerAssignor mine is not supported. Supported assignors: uniform, range."
    outcome = coordinator.join("m1", subscribed_topic_regex="(")
    assert isinstance(outcome, InvalidRegularExpression)
    assert coordinator.shard.machine.groups == {}


def test_groups_and_members_that_are_not_there(coordinator: Coordinator) -> None:
    assert isinstance(coordinator.heartbeat("m1", 1), GroupIdNotFound)
    assert isinstance(coordinator.leave("m1"), GroupIdNotFound)
    coordinator.join("m1")
    assert isinstance(coordinator.heartbeat("m2", 1), UnknownMemberId)
    assert isinstance(coordinator.leave("m2"), UnknownMemberId)
    assert isinstance(coordinator.heartbeat("m1", 2), FencedMemberEpoch)


def test_a_full_group_takes_nobody_else(cluster: Cluster) -> None:
    coordinator = Coordinator(cluster, GroupSettings(group_consumer_max_size=1))
    coordinator.join("m1")
    assert isinstance(coordinator.join("m2"), GroupMaxSizeReached)
    assert not isinstance(coordinator.join("m1"), KafkaError)
    assert list(coordinator.group.members) == ["m1"]


def test_a_write_that_is_refused_changes_nothing(coordinator: Coordinator, cluster: Cluster) -> None:
    coordinator.join("m1")
    before = dict(durable(coordinator.group))
    coordinator.shard.rejection = GroupIdNotFound()
    assert isinstance(coordinator.join("m2"), GroupIdNotFound)
    cluster.grow_topic("a", 6)
    assert isinstance(coordinator.heartbeat("m1", 1), GroupIdNotFound)
    assert durable(coordinator.group) == before
    coordinator.shard.rejection = None
    assert assignment_in(coordinator.heartbeat("m1", 1)) == cluster.partitions_of("a")


# -- going


def test_who_leaves_is_replaced_at_the_next_heartbeat(coordinator: Coordinator, cluster: Cluster) -> None:
    rebalance_to_two(coordinator)
    assert coordinator.leave("m1").member_epoch == -1
    assert coordinator.group.state_name == "Assigning"
    assert assignment_in(coordinator.heartbeat("m2", 2)) == cluster.partitions_of("a")
    coordinator.leave("m2")
    assert coordinator.group.state_name == "Empty"
    coordinator.fail_over()
    assert coordinator.group.state_name == "Empty"


def test_a_silent_member_is_missed_after_its_session(coordinator: Coordinator) -> None:
    rebalance_to_two(coordinator)
    for _ in range(5):
        coordinator.shard.advance(10_000)
        coordinator.heartbeat("m2", coordinator.group.members["m2"].epoch)
    assert list(coordinator.group.members) == ["m2"]
    assert coordinator.shard.timers.keys() & {("consumer", "session", GROUP, "m1")} == set()


def test_a_member_that_does_not_give_up_in_time_is_thrown_out(coordinator: Coordinator, cluster: Cluster) -> None:
    coordinator.join("m1")
    coordinator.join("m2")
    coordinator.heartbeat("m1", 1)
    coordinator.shard.advance(REBALANCE_TIMEOUT_MS - 1)
    coordinator.heartbeat("m1", 1)
    coordinator.shard.advance(1)
    assert isinstance(coordinator.heartbeat("m1", 1), UnknownMemberId)
    assert assignment_in(coordinator.heartbeat("m2", 2)) == cluster.partitions_of("a")


def test_a_member_that_asks_again_has_the_whole_time_to_give_up(coordinator: Coordinator, cluster: Cluster) -> None:
    """It may have lost the first response: another member would own its partitions before it knows (seed 1701278)."""
    coordinator.join("m1")
    coordinator.join("m2")
    coordinator.heartbeat("m1", 1)
    coordinator.shard.advance(REBALANCE_TIMEOUT_MS - 1)
    everything = listed(cluster.partitions_of("a"))
    full: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_TIMEOUT_MS, "subscribed_topic_names": ["a"]}
    assert len(assignment_in(coordinator.heartbeat("m1", 1, topic_partitions=everything, **full)) or ()) == 2
    coordinator.shard.advance(REBALANCE_TIMEOUT_MS - 1)
    assert coordinator.heartbeat("m1", 1).member_epoch == 1
    coordinator.shard.advance(1)
    assert isinstance(coordinator.heartbeat("m1", 1), UnknownMemberId)


def test_a_new_coordinator_gives_everybody_a_session(coordinator: Coordinator) -> None:
    coordinator.join("m1")
    coordinator.join("m2")
    coordinator.heartbeat("m1", 1)
    coordinator.fail_over()
    assert coordinator.shard.timers.keys() >= {
        ("consumer", "session", GROUP, "m1"),
        ("consumer", "session", GROUP, "m2"),
        ("consumer", "rebalance", GROUP, "m1"),
    }
    coordinator.shard.advance(46_000)
    assert coordinator.group.is_empty


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_is_set_ends_no_session_and_prolongs_none(coordinator: Coordinator, jump_ms: int) -> None:
    coordinator.join("m1")
    coordinator.shard.advance(44_000)
    coordinator.heartbeat("m1", 1)
    coordinator.shard.now_ms += jump_ms
    coordinator.shard.advance(44_000)
    assert "m1" in coordinator.group.members
    coordinator.shard.advance(1_000)
    assert coordinator.group.is_empty


def test_heartbeats_do_not_touch_the_timer(coordinator: Coordinator) -> None:
    coordinator.join("m1")
    due_ms = coordinator.shard.timers["consumer", "session", GROUP, "m1"]
    coordinator.shard.advance(30_000)
    coordinator.heartbeat("m1", 1)
    assert coordinator.shard.timers["consumer", "session", GROUP, "m1"] == due_ms
    coordinator.shard.advance(30_000)
    assert "m1" in coordinator.group.members


def test_a_group_may_have_an_interval_and_a_session_timeout_of_its_own(
    coordinator: Coordinator, cluster: Cluster
) -> None:
    assert coordinator.join("m1").heartbeat_interval_ms == 5000
    cluster.configure_group(GROUP, {"consumer.heartbeat.interval.ms": "6000", "consumer.session.timeout.ms": "60000"})
    assert coordinator.heartbeat("m1", 1).heartbeat_interval_ms == 6000
    coordinator.shard.advance(59_999)
    assert "m1" in coordinator.group.members
    coordinator.shard.advance(1)
    assert coordinator.group.is_empty


def test_a_session_timeout_that_was_taken_back_ends_with_the_next_heartbeat(
    coordinator: Coordinator, cluster: Cluster
) -> None:
    cluster.configure_group(GROUP, {"consumer.session.timeout.ms": "60000"})
    coordinator.join("m1")
    cluster.configure_group(GROUP, {})
    coordinator.heartbeat("m1", 1)
    coordinator.shard.advance(45_000)
    assert coordinator.group.is_empty


def test_settings_of_another_group_do_not_matter(coordinator: Coordinator, cluster: Cluster) -> None:
    cluster.configure_group("other", {"consumer.heartbeat.interval.ms": "6000"})
    assert coordinator.join("m1").heartbeat_interval_ms == 5000


# -- static members


def test_a_static_member_that_will_be_back_keeps_its_partitions(coordinator: Coordinator, cluster: Cluster) -> None:
    coordinator.join("m1", instance_id="i1")
    response = coordinator.heartbeat("m1", -2, instance_id="i1")
    assert response.member_epoch == -2
    assert len(coordinator.group.owners) == 4
    again = coordinator.join("m2", instance_id="i1")
    assert (again.member_epoch, assignment_in(again)) == (1, cluster.partitions_of("a"))
    assert list(coordinator.group.members) == ["m2"]
    assert isinstance(coordinator.heartbeat("m1", 1, instance_id="i1"), FencedInstanceId)


def test_a_static_member_that_stays_away_is_missed(coordinator: Coordinator) -> None:
    coordinator.join("m1", instance_id="i1")
    coordinator.heartbeat("m1", -2, instance_id="i1")
    coordinator.shard.advance(45_000)
    assert coordinator.group.is_empty
    assert isinstance(coordinator.heartbeat("m1", 1, instance_id="i1"), UnknownMemberId)


def test_a_static_member_may_start_again(coordinator: Coordinator, cluster: Cluster) -> None:
    coordinator.join("m1", instance_id="i1")
    again = coordinator.join("m1", instance_id="i1")
    assert (again.member_epoch, assignment_in(again)) == (1, cluster.partitions_of("a"))
    coordinator.heartbeat("m1", -2, instance_id="i1")
    again = coordinator.join("m1", instance_id="i1")
    assert (again.member_epoch, assignment_in(again)) == (1, cluster.partitions_of("a"))


def test_an_instance_that_is_in_use_cannot_be_taken(coordinator: Coordinator) -> None:
    coordinator.join("m1", instance_id="i1")
    assert isinstance(coordinator.join("m2", instance_id="i1"), UnreleasedInstanceId)
    assert list(coordinator.group.members) == ["m1"]


# -- what others ask


def test_offsets_are_committed_in_the_member_epoch(coordinator: Coordinator) -> None:
    coordinator.join("m1")
    group = coordinator.group
    group.check_offset_commit(Membership("m1", 1), is_transactional=False, api_version=9)
    group.check_offset_fetch(Membership("m1", 1))
    group.check_offset_fetch(Membership())
    with pytest.raises(StaleMemberEpoch):
        group.check_offset_commit(Membership("m1", 0), is_transactional=False, api_version=9)
    with pytest.raises(UnsupportedVersion):
        group.check_offset_commit(Membership("m1", 1), is_transactional=False, api_version=8)
    with pytest.raises(UnknownMemberId):
        group.check_offset_commit(Membership(), is_transactional=False, api_version=9)
    with pytest.raises(StaleMemberEpoch):
        group.check_offset_fetch(Membership("m1", 7))
    with pytest.raises(NonEmptyGroup):
        group.check_deletion()


def commit_of(topic_id: bytes, partition: int) -> list[OffsetCommitRequestTopic]:
    wanted = OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)
    return [OffsetCommitRequestTopic(name="a", topic_id=topic_id, partitions=[wanted])]


def test_offsets_stay_of_what_members_read_by_name_or_by_pattern_and_others_expire(cluster: Cluster) -> None:
    for name in ("by-pattern", "left"):
        cluster.create_topic(name, 1)
    settings = GroupSettings(group_initial_rebalance_delay_ms=0, offsets_retention_minutes=20)
    coordinator = Coordinator(cluster, settings)
    places = [
        OffsetCommitRequestTopic(name=name, partitions=[OffsetCommitRequestPartition(0, committed_offset=1)])
        for name in ("a", "by-pattern", "left")
    ]
    commit = OffsetCommitRequest(
        group_id=GROUP, generation_id_or_member_epoch=-1, member_id="", topics=places, retention_time_ms=-1
    )
    reply = MemoryReply()
    coordinator.shard.perform(
        lambda machine, effects: machine.offsets.commit(commit, Caller("client", "/", 9), reply, effects)
    )
    coordinator.join("m1", ["a"])
    epoch = coordinator.join("m2", None, subscribed_topic_regex="by-.*").member_epoch
    for _ in range(62):
        coordinator.heartbeat("m1", coordinator.group.members["m1"].epoch)
        coordinator.heartbeat("m2", epoch)
        coordinator.shard.advance(30_000)
    assert set(coordinator.group.members) == {"m1", "m2"}
    assert set(coordinator.shard.machine.offsets.committed.of_group(GROUP)) == {"a", "by-pattern"}


def test_an_earlier_epoch_will_do_for_what_a_member_has_had_since(coordinator: Coordinator, cluster: Cluster) -> None:
    topic_id = cluster.image.topics["a"].topic_id
    rebalance_to_two(coordinator)

    def commit(member_id: str, epoch: int, partition: int) -> None:
        membership = Membership(member_id, epoch, None, commit_of(topic_id, partition))
        coordinator.group.check_offset_commit(membership, is_transactional=False, api_version=10)

    kept = min(partition for (_, partition), owner in coordinator.group.owners.items() if owner == "m1")
    given = min(partition for (_, partition), owner in coordinator.group.owners.items() if owner == "m2")
    commit("m1", 1, kept)
    commit("m2", 2, given)
    for member_id, epoch, partition in (("m1", 1, given), ("m1", 0, kept), ("m2", 1, given), ("m1", 3, kept)):
        with pytest.raises(StaleMemberEpoch):
            commit(member_id, epoch, partition)


def test_a_group_is_described(coordinator: Coordinator, cluster: Cluster) -> None:
    rebalance_to_two(coordinator)
    group = coordinator.describe()
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (0, "Stable", 2, 2)
    assert group.assignor_name == "uniform"
    first = group.members[0]
    assert (first.member_id, first.member_epoch, first.client_id, first.client_host) == (
        "m1",
        2,
        "client",
        "/127.0.0.1",
    )
    assert (first.subscribed_topic_names, first.member_type) == (["a"], 1)
    assert first.assignment == first.target_assignment
    assert first.assignment is not None
    assert [topic.topic_name for topic in first.assignment.topic_partitions] == ["a"]
    missing = coordinator.describe("nobody")
    assert (missing.error_code, missing.error_message) == (GroupIdNotFound.code, "Group nobody not found.")


def test_what_a_member_has_still_to_give_up_is_described_as_its_own(coordinator: Coordinator) -> None:
    coordinator.join("m1")
    coordinator.join("m2")
    coordinator.heartbeat("m1", 1)
    first = coordinator.describe().members[0]
    assert first.assignment is not None
    assert first.target_assignment is not None
    assert [list(topic.partitions) for topic in first.assignment.topic_partitions] == [[0, 1, 2, 3]]
    assert [len(topic.partitions) for topic in first.target_assignment.topic_partitions] == [2]


def test_an_empty_group_can_be_deleted_with_all_its_records(coordinator: Coordinator) -> None:
    coordinator.join("m1", None, subscribed_topic_regex="a.*")
    coordinator.leave("m1")
    coordinator.shard.perform(lambda machine, effects: machine.groups[GROUP].write_tombstones(effects))
    assert coordinator.shard.machine.groups == {}
    latest: dict[bytes, bytes | None] = {}
    for written in coordinator.shard.log:
        latest |= dict(written.records)  # type: ignore[union-attr]
    assert set(latest.values()) == {None}


def test_a_thousand_members_with_a_thousand_partitions_get_on_quickly() -> None:
    cluster = Cluster()
    for number in range(10):
        cluster.create_topic(f"t{number}", 100)
    topics = list(cluster.image.topics)
    coordinator = Coordinator(cluster)
    started = time.process_time()
    for number in range(1_000):
        coordinator.shard.advance(1)
        coordinator.join(f"m{number}", topics)
    joined = time.process_time()
    for _ in range(3):
        coordinator.shard.advance(1_000)
        for number in range(1_000):
            coordinator.heartbeat(f"m{number}", coordinator.group.members[f"m{number}"].epoch, topic_partitions=[])
    ended = time.process_time()
    assert coordinator.group.state_name == "Stable"
    assert {len(member.assigned) for member in coordinator.group.members.values()} == {1}
    assert joined - started < 5.0
    assert ended - joined < 5.0


# -- assignments that are not committed yet


def begin_to_join(coordinator: Coordinator, member_id: str) -> MemoryReply:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        subscribed_topic_names=["a"],
        topic_partitions=[],
    )
    return coordinator.begin("consumer_heartbeat", request, 1)


def test_assignment_is_given_when_it_is_committed(coordinator: Coordinator) -> None:
    coordinator.shard.is_behind = True
    joining = begin_to_join(coordinator, "m1")
    assert not joining.is_given
    coordinator.shard.commit()
    assert len(assignment_in(joining.outcome) or ()) == 4


def test_assignment_is_not_given_to_a_member_whose_session_has_expired(coordinator: Coordinator) -> None:
    """Its partitions may have another owner by the time of the commit."""
    coordinator.shard.is_behind = True
    joining = begin_to_join(coordinator, "m1")
    coordinator.shard.advance(coordinator.settings.group_consumer_session_timeout_ms + 1)
    assert coordinator.group.is_empty
    coordinator.shard.commit()
    assert isinstance(joining.outcome, UnknownMemberId)


def test_session_begins_again_with_an_assignment_that_was_committed_late(coordinator: Coordinator) -> None:
    """Otherwise its partitions would have another owner before the member can send a heartbeat (seed 303250)."""
    session_ms = coordinator.settings.group_consumer_session_timeout_ms
    coordinator.shard.is_behind = True
    joining = begin_to_join(coordinator, "m1")
    coordinator.shard.advance(session_ms - 1)
    coordinator.shard.commit()
    assert len(assignment_in(joining.outcome) or ()) == 4
    coordinator.shard.advance(session_ms - 1)
    assert list(coordinator.group.members) == ["m1"]
    coordinator.shard.advance(1)
    assert coordinator.group.is_empty


# -- cost


def test_joins_and_leaves_say_nothing_at_info(coordinator: Coordinator, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        rebalance_to_two(coordinator)
        coordinator.leave("m2")
    assert caplog.messages == []


def test_an_expired_session_is_logged_at_info(coordinator: Coordinator, caplog: pytest.LogCaptureFixture) -> None:
    coordinator.join("m1")
    with caplog.at_level("INFO"):
        coordinator.shard.advance(1_000_000)
    assert sum("member left group" in message for message in caplog.messages) == 1


def test_an_idle_heartbeat_is_answered_as_by_the_full_check(coordinator: Coordinator) -> None:
    rebalance_to_two(coordinator)
    coordinator.heartbeat("m1", 2)  # the topics are checked
    heartbeats = coordinator.shard.machine.consumer._heartbeats
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m1", member_epoch=2)
    caller = Caller("client", "/127.0.0.1", 1)
    assert heartbeats._is_idle(coordinator.group, coordinator.group.members["m1"], request, caller)
    answers = []
    for handle in (heartbeats.heartbeat, heartbeats._handle):
        effects, reply = Effects(coordinator.shard.now_ms), MemoryReply()
        handle(request, caller, reply, effects)
        answers.append(([each.outcome for each in effects.responses], effects.records, effects.is_read_of_state))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "fields",
    [{"member_epoch": 0}, {"member_epoch": 1}, {"topic_partitions": []}, {"instance_id": "i"}, {"rack_id": "r"}],
)
def test_a_heartbeat_with_news_is_not_idle(coordinator: Coordinator, fields: dict[str, Any]) -> None:
    rebalance_to_two(coordinator)
    coordinator.heartbeat("m1", 2)
    request = ConsumerGroupHeartbeatRequest(**{"group_id": GROUP, "member_id": "m1", "member_epoch": 2, **fields})
    member, caller = coordinator.group.members["m1"], Caller("client", "/127.0.0.1", 1)
    assert not coordinator.shard.machine.consumer._heartbeats._is_idle(coordinator.group, member, request, caller)


def test_a_new_topic_ends_idleness(coordinator: Coordinator, cluster: Cluster) -> None:
    coordinator.join("m1", topics=("a", "b"))
    coordinator.heartbeat("m1", 1)
    cluster.create_topic("b", 2)
    assert coordinator.heartbeat("m1", 1).member_epoch == 2
