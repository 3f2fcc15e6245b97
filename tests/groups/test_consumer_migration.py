"""Members of both protocols in one group, while it changes from one to the other and back."""

from typing import Any

import pytest

from tests.groups.consumer_groups import GROUP, Cluster, Coordinator, assignment_in, durable, listed
from tidelog.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from tidelog.groups.classic.group import ClassicGroup
from tidelog.groups.consumer import embedded
from tidelog.groups.consumer.group import ConsumerGroup
from tidelog.groups.group import GroupSettings
from tidelog.protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tidelog.protocol.internal.versioned import encode_versioned
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.replicated.memory_shard import MemoryReply


class ClassicClient:
    """A cooperative consumer: it says what it has when it joins, and keeps what it is assigned again."""

    def __init__(self, coordinator: Coordinator, name: str, instance_id: str | None = None) -> None:
        self.coordinator = coordinator
        self.member_id = name
        self.instance_id = instance_id
        self.generation = -1
        self.owned: dict[str, list[int]] = {}
        self.topics = ["a"]

    def begin_join(self) -> MemoryReply:
        owned = [TopicPartition(topic=topic, partitions=partitions) for topic, partitions in self.owned.items()]
        subscription = ConsumerProtocolSubscription(topics=self.topics, owned_partitions=owned)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="cooperative", metadata=encode_versioned(subscription, 1))],
        )
        return self.coordinator.begin("join", request, 9)

    def on_joined(self, outcome: Any) -> Any:
        if not isinstance(outcome, KafkaError):
            self.member_id = outcome.member_id
            if outcome.error_code == 0:
                self.generation = outcome.generation_id
        return outcome

    def join(self) -> Any:
        outcome = self.on_joined(self.begin_join().outcome)
        if getattr(outcome, "error_code", 0) == MemberIdRequired.code:
            outcome = self.on_joined(self.begin_join().outcome)
        return outcome

    def begin_sync(self, assignments: dict[str, bytes] | None = None) -> MemoryReply:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="cooperative",
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
        )
        return self.coordinator.begin("sync", request, 5)

    def sync(self, assignments: dict[str, bytes] | None = None) -> Any:
        outcome: Any = self.begin_sync(assignments).outcome
        if not isinstance(outcome, KafkaError):
            assigned = embedded.assignment_of(outcome.assignment).assigned_partitions
            self.owned = {entry.topic: list(entry.partitions) for entry in assigned}
        return outcome

    def heartbeat(self) -> int:
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member_id)
        outcome: Any = self.coordinator.ask("heartbeat", request, 4)
        return outcome.code if isinstance(outcome, KafkaError) else outcome.error_code

    def leave(self) -> Any:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        outcome: Any = self.coordinator.ask("leave", LeaveGroupRequest(group_id=GROUP, members=[identity]), 5)
        return outcome.members[0].error_code

    def catch_up(self) -> None:
        """As long as it must join again, it does."""
        for _ in range(5):
            if self.heartbeat() == 0:
                return
            self.join()
            self.sync()
        raise AssertionError("it never gets there")


def assigned(*partitions: int, topic: str = "a", user_data: bytes | None = None) -> bytes:
    listed = [TopicPartition(topic=topic, partitions=list(partitions))]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=listed, user_data=user_data), 1)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.create_topic("a", 4)
    return cluster


@pytest.fixture
def coordinator(cluster: Cluster) -> Coordinator:
    return Coordinator(cluster)


def classic_group_of_one(coordinator: Coordinator) -> ClassicClient:
    client = ClassicClient(coordinator, "")
    client.join()
    client.sync({client.member_id: assigned(0, 1, 2, 3)})
    assert client.owned == {"a": [0, 1, 2, 3]}
    return client


def migrated(coordinator: Coordinator) -> ClassicClient:
    """A classic member and a new one share the topic."""
    client = classic_group_of_one(coordinator)
    assert not isinstance(coordinator.join("m2"), KafkaError)
    client.catch_up()
    coordinator.heartbeat("m2", coordinator.group.members["m2"].epoch)
    client.catch_up()
    assert coordinator.group.state_name == "Stable"
    return client


# -- to the new protocol


def test_a_classic_member_goes_on_beside_a_new_one(coordinator: Coordinator) -> None:
    client = classic_group_of_one(coordinator)
    response = coordinator.join("m2")
    assert (assignment_in(response), response.member_epoch) == (set(), 2)
    assert client.heartbeat() == RebalanceInProgress.code
    client.join()
    assert client.generation == 1, "it has something to give up first"
    client.sync()
    assert len(client.owned["a"]) == 2
    assert assignment_in(coordinator.heartbeat("m2", 2)) is None
    assert client.heartbeat() == RebalanceInProgress.code
    client.join()
    client.sync()
    assert client.generation == 2
    assert client.heartbeat() == 0
    theirs = assignment_in(coordinator.heartbeat("m2", 2))
    assert theirs is not None
    assert {index for _, index in theirs} == {0, 1, 2, 3} - set(client.owned["a"])
    assert coordinator.group.state_name == "Stable"


def test_the_group_is_the_same_for_a_new_coordinator(coordinator: Coordinator) -> None:
    client = migrated(coordinator)
    before = durable(coordinator.group)
    coordinator.fail_over()
    assert durable(coordinator.group) == before
    assert client.heartbeat() == 0


def test_a_member_may_change_its_own_protocol(coordinator: Coordinator, cluster: Cluster) -> None:
    client = classic_group_of_one(coordinator)
    assert client.leave() == 0
    assert assignment_in(coordinator.join("m2")) == cluster.partitions_of("a")
    assert isinstance(coordinator.group, ConsumerGroup)


def test_who_waits_in_the_classic_group_must_join_again(cluster: Cluster) -> None:
    coordinator = Coordinator(cluster, GroupSettings(group_initial_rebalance_delay_ms=3_000))
    client = ClassicClient(coordinator, "")
    client.on_joined(client.begin_join().outcome)
    waiting = client.begin_join()
    assert not waiting.is_given
    coordinator.join("m2")
    assert isinstance(waiting.outcome, RebalanceInProgress)
    client.join()
    client.sync()
    assert client.generation >= 1


def test_a_classic_member_is_missed_after_its_own_session(coordinator: Coordinator) -> None:
    client = migrated(coordinator)
    coordinator.shard.advance(9_999)
    assert client.heartbeat() == 0
    coordinator.shard.advance(10_000)
    assert list(coordinator.group.members) == ["m2"]


def test_a_classic_member_that_does_not_join_again_in_time_is_thrown_out(coordinator: Coordinator) -> None:
    client = migrated(coordinator)
    coordinator.join("m3")
    for _ in range(4):
        assert client.heartbeat() == RebalanceInProgress.code
        coordinator.shard.advance(5_000)
    assert client.heartbeat() == UnknownMemberId.code


def test_a_classic_member_that_does_not_sync_in_time_is_thrown_out(coordinator: Coordinator) -> None:
    client = migrated(coordinator)
    coordinator.join("m3")
    client.join()
    for _ in range(2):
        coordinator.shard.advance(9_999)
        client.heartbeat()
    coordinator.shard.advance(2)
    assert client.heartbeat() == UnknownMemberId.code


def test_a_classic_member_has_a_session_from_the_commit_of_its_assignment_on(coordinator: Coordinator) -> None:
    client = migrated(coordinator)
    coordinator.shard.is_behind = True
    syncing = client.begin_sync()
    coordinator.shard.advance(9_999)
    assert not syncing.is_given
    coordinator.shard.commit()
    assert not isinstance(syncing.outcome, KafkaError)
    coordinator.shard.advance(9_999)
    assert client.member_id in coordinator.group.members
    coordinator.shard.advance(1)
    assert client.member_id not in coordinator.group.members


def test_a_classic_member_gets_no_assignment_after_its_session(coordinator: Coordinator) -> None:
    client = migrated(coordinator)
    coordinator.shard.is_behind = True
    syncing = client.begin_sync()
    coordinator.shard.advance(10_000)
    assert list(coordinator.group.members) == ["m2"]
    coordinator.shard.commit()
    assert isinstance(syncing.outcome, UnknownMemberId)


def test_classic_requests_are_checked(coordinator: Coordinator) -> None:
    client = migrated(coordinator)
    client.generation += 1
    assert client.heartbeat() == IllegalGeneration.code
    assert isinstance(client.sync(), IllegalGeneration)
    client.generation -= 1
    stranger = ClassicClient(coordinator, "m2")
    assert stranger.heartbeat() == UnknownMemberId.code
    assert stranger.leave() == UnknownMemberId.code


@pytest.mark.parametrize(("kind", "name"), [("consumer", "range"), ("connect", "cooperative")])
def test_a_classic_sync_names_what_the_join_agreed_on(coordinator: Coordinator, kind: str, name: str) -> None:
    client = migrated(coordinator)
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=client.generation,
        member_id=client.member_id,
        protocol_type=kind,
        protocol_name=name,
    )
    assert isinstance(coordinator.ask("sync", request, 5), InconsistentGroupProtocol)


def test_a_classic_member_whose_group_has_moved_on_learns_it_from_its_sync(coordinator: Coordinator) -> None:
    client = migrated(coordinator)
    coordinator.join("m3")
    assert isinstance(client.sync(), RebalanceInProgress)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group_consumer_migration_policy": "downgrade"}, "online upgrade is disabled."),
        ({"group_consumer_migration_policy": "disabled"}, "online upgrade is disabled."),
        ({"group_consumer_max_size": 0}, "the group size exceeds the consumer group maximum size."),
    ],
)
def test_a_group_stays_classic_where_settings_say_so(cluster: Cluster, settings: dict[str, Any], message: str) -> None:
    coordinator = Coordinator(cluster, GroupSettings(group_initial_rebalance_delay_ms=0, **settings))
    client = classic_group_of_one(coordinator)
    outcome = coordinator.join("m2")
    assert isinstance(outcome, GroupIdNotFound)
    assert outcome.message.endswith(message)
    assert client.heartbeat() == 0


def test_a_group_that_is_not_of_consumers_stays_classic(coordinator: Coordinator) -> None:
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id="",
        protocol_type="connect",
        protocols=[JoinGroupRequestProtocol(name="sessioned", metadata=b"")],
    )
    joined: Any = coordinator.ask("join", request, 3)
    sync = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=joined.member_id)
    coordinator.ask("sync", sync, 3)
    outcome = coordinator.join("m2")
    assert isinstance(outcome, GroupIdNotFound)
    assert outcome.message.endswith("the group does not use the consumer embedded protocol.")


def test_a_group_with_an_assignor_of_its_own_stays_classic(coordinator: Coordinator) -> None:
    client = ClassicClient(coordinator, "")
    client.join()
    client.sync({client.member_id: assigned(0, user_data=b"state")})
    assert isinstance(coordinator.join("m2"), GroupIdNotFound)
    assert client.heartbeat() == 0


def test_a_consumer_group_takes_no_classic_members_where_migration_is_disabled(cluster: Cluster) -> None:
    coordinator = Coordinator(cluster, GroupSettings(group_consumer_migration_policy="disabled"))
    coordinator.join("m1")
    assert isinstance(ClassicClient(coordinator, "").join(), InconsistentGroupProtocol)
    assert list(coordinator.group.members) == ["m1"]


# -- back to the classic protocol


def test_when_the_last_new_member_leaves_the_group_is_classic_again(coordinator: Coordinator) -> None:
    client = migrated(coordinator)
    coordinator.leave("m2")
    coordinator.shard.advance(0)
    group = coordinator.shard.machine.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert client.heartbeat() == RebalanceInProgress.code
    outcome = client.join()
    assert (outcome.leader, len(outcome.members)) == (client.member_id, 1)
    client.sync({client.member_id: assigned(0, 1, 2, 3)})
    assert client.owned == {"a": [0, 1, 2, 3]}
    assert client.heartbeat() == 0
    coordinator.fail_over()
    assert isinstance(coordinator.shard.machine.groups[GROUP], ClassicGroup)
    assert client.heartbeat() == 0


@pytest.mark.parametrize("settings", [{"group_consumer_migration_policy": "upgrade"}, {"group_max_size": 0}])
def test_the_group_stays_new_where_settings_say_so(cluster: Cluster, settings: dict[str, Any]) -> None:
    coordinator = Coordinator(cluster)
    client = migrated(coordinator)
    coordinator.settings = GroupSettings(group_initial_rebalance_delay_ms=0, **settings)
    coordinator.leave("m2")
    client.catch_up()
    assert sorted(client.owned["a"]) == [0, 1, 2, 3]
    assert isinstance(coordinator.group, ConsumerGroup)


def test_an_empty_group_is_what_its_next_member_makes_of_it(coordinator: Coordinator, cluster: Cluster) -> None:
    coordinator.join("m1")
    coordinator.leave("m1")
    client = ClassicClient(coordinator, "")
    client.join()
    client.sync({client.member_id: assigned(0, 1)})
    assert client.owned == {"a": [0, 1]}
    coordinator.fail_over()
    assert client.heartbeat() == 0
    client.leave()
    assert assignment_in(coordinator.join("m2")) == cluster.partitions_of("a")
    coordinator.fail_over()
    assert list(coordinator.group.members) == ["m2"]


def test_a_refused_classic_join_leaves_an_empty_group_as_it_was(coordinator: Coordinator) -> None:
    coordinator.join("m1")
    coordinator.leave("m1")
    coordinator.settings = GroupSettings(group_min_session_timeout_ms=30_000)
    assert isinstance(ClassicClient(coordinator, "").join(), KafkaError)
    assert isinstance(coordinator.group, ConsumerGroup)


def test_a_static_member_that_comes_back_with_the_old_protocol_brings_it_back(coordinator: Coordinator) -> None:
    coordinator.join("m1", instance_id="i1")
    client = ClassicClient(coordinator, "", "i1")
    client.join()
    coordinator.shard.advance(0)
    group = coordinator.shard.machine.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert list(group.members) == [client.member_id]


def test_a_static_classic_member_becomes_a_new_one(coordinator: Coordinator, cluster: Cluster) -> None:
    client = ClassicClient(coordinator, "", "i1")
    client.join()
    client.sync({client.member_id: assigned(0, 1, 2, 3)})
    response = coordinator.join("m2", instance_id="i1")
    assert assignment_in(response) == cluster.partitions_of("a")
    assert list(coordinator.group.members) == ["m2"]
    assert coordinator.heartbeat("m2", response.member_epoch, topic_partitions=listed(cluster.partitions_of("a")))
