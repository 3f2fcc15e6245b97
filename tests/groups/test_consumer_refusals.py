"""Consumer groups while their records cannot be written: nothing is lost, and what was due is tried again."""

import pytest

from tests.groups.consumer_groups import GROUP, REBALANCE_TIMEOUT_MS, Cluster, Coordinator, durable
from tests.groups.test_consumer_migration import ClassicClient
from tidelog.errors import CoordinatorNotAvailable, UnknownMemberId
from tidelog.groups.consumer.group import ConsumerGroup

SESSION_MS = 45_000


@pytest.fixture
def coordinator() -> Coordinator:
    cluster = Cluster()
    cluster.create_topic("a", 4)
    return Coordinator(cluster)


def test_a_lost_member_whose_end_cannot_be_written_is_looked_at_again(coordinator: Coordinator) -> None:
    coordinator.join("m1")
    coordinator.shard.rejection = CoordinatorNotAvailable()
    coordinator.shard.advance(SESSION_MS + 1)
    assert "m1" in coordinator.group.members
    coordinator.shard.rejection = None
    coordinator.shard.advance(SESSION_MS + 1)
    assert coordinator.group.is_empty


def test_a_member_that_could_not_leave_is_gone_with_its_session(coordinator: Coordinator) -> None:
    coordinator.join("m1")
    coordinator.shard.rejection = CoordinatorNotAvailable()
    assert isinstance(coordinator.leave("m1"), CoordinatorNotAvailable)
    assert "m1" in coordinator.group.members
    coordinator.shard.rejection = None
    coordinator.shard.advance(SESSION_MS + 1)
    assert coordinator.group.is_empty


def test_a_member_that_gives_nothing_up_does_not_get_away_with_it(coordinator: Coordinator) -> None:
    coordinator.join("m1")
    coordinator.join("m2")
    coordinator.heartbeat("m1", 1)
    coordinator.shard.rejection = CoordinatorNotAvailable()
    coordinator.shard.advance(REBALANCE_TIMEOUT_MS + 1)
    coordinator.shard.rejection = None
    for _ in range(REBALANCE_TIMEOUT_MS // 1_000 + 1):
        coordinator.heartbeat("m1", 1)
        coordinator.heartbeat("m2", 2)
        coordinator.shard.advance(1_000)
    assert isinstance(coordinator.heartbeat("m1", 1), UnknownMemberId)
    assert list(coordinator.group.members) == ["m2"]


def test_a_group_that_cannot_become_classic_stays_what_it_was(coordinator: Coordinator) -> None:
    coordinator.join("m1")
    coordinator.leave("m1")
    before = durable(coordinator.group)
    coordinator.shard.rejection = CoordinatorNotAvailable()
    joining = ClassicClient(coordinator, "")
    assert isinstance(joining.begin_join().outcome, CoordinatorNotAvailable)
    coordinator.shard.rejection = None
    assert isinstance(coordinator.shard.machine.groups.get(GROUP), ConsumerGroup)
    assert durable(coordinator.group) == before
    coordinator.fail_over()
    assert durable(coordinator.group) == before


def test_a_group_that_cannot_become_classic_again_is_tried_again(coordinator: Coordinator) -> None:
    coordinator.join("m1")
    classic = ClassicClient(coordinator, "")
    classic.join()
    classic.sync()
    coordinator.shard.rejection = CoordinatorNotAvailable()
    assert isinstance(coordinator.leave("m1"), CoordinatorNotAvailable)
    coordinator.shard.rejection = None
    for _ in range(SESSION_MS // 5_000 + 1):
        classic.catch_up()
        coordinator.shard.advance(5_000)
    assert not isinstance(coordinator.shard.machine.groups[GROUP], ConsumerGroup)
