"""Memory of consumer groups: what their members hold counts on the broker, beside that of classic groups."""

import pytest

from tests.groups.consumer_groups import Cluster, Coordinator
from tidelog.errors import CoordinatorNotAvailable
from tidelog.groups import statistics
from tidelog.groups.consumer.held_bytes import MEMBER_BYTES, NAME_BYTES, PARTITION_BYTES
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

NAMES = [f"n{number:05}" for number in range(100)]
NAMES_BYTES = 100 * (NAME_BYTES + 6)


def held(coordinator: Coordinator) -> int:
    return coordinator.shard.machine.classic.counts.member_bytes


def new_group(coordinator: Coordinator, group_id: str) -> object:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id="m", member_epoch=0, rebalance_timeout_ms=1000, topic_partitions=[],
        subscribed_topic_names=NAMES,
    )  # fmt: skip
    return coordinator.ask("consumer_heartbeat", request, 1)


def test_subscriptions_of_all_groups_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_MEMBER_BYTES", 3 * (NAMES_BYTES + MEMBER_BYTES + 100))
    coordinator = Coordinator(Cluster())
    answers = [new_group(coordinator, f"g{number}") for number in range(5)]
    assert [isinstance(each, ConsumerGroupHeartbeatResponse) for each in answers] == [True] * 3 + [False] * 2
    assert isinstance(answers[-1], CoordinatorNotAvailable), "which clients retry"
    assert sorted(coordinator.shard.machine.groups) == ["g0", "g1", "g2"]
    coordinator.shard.advance(60_000)  # nobody sends a heartbeat
    assert held(coordinator) == 0
    assert isinstance(new_group(coordinator, "g4"), ConsumerGroupHeartbeatResponse)


def test_equal_subscriptions_of_a_group_count_once() -> None:
    coordinator = Coordinator(Cluster())
    coordinator.join("m1", NAMES)
    alone = held(coordinator)
    coordinator.join("m2", NAMES)
    assert alone > NAMES_BYTES
    assert held(coordinator) - alone < 2 * MEMBER_BYTES
    coordinator.leave("m1")
    assert held(coordinator) == alone
    coordinator.leave("m2")
    assert held(coordinator) == 0


def test_members_that_change_nothing_are_never_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.create_topic("a", 4)
    coordinator = Coordinator(cluster)
    joined = coordinator.join("m1")
    monkeypatch.setattr(statistics, "MAX_MEMBER_BYTES", 1)
    assert isinstance(coordinator.heartbeat("m1", joined.member_epoch), ConsumerGroupHeartbeatResponse)
    assert isinstance(coordinator.join("m2"), CoordinatorNotAvailable)
    assert isinstance(coordinator.leave("m1"), ConsumerGroupHeartbeatResponse)
    assert held(coordinator) == 0


def test_assignments_and_what_expressions_match_count() -> None:
    cluster = Cluster()
    coordinator = Coordinator(cluster)
    joined = coordinator.join("m1", None, subscribed_topic_regex="t.*")
    before = held(coordinator)
    for number in range(3):
        cluster.create_topic(f"t{number}", 5)
    coordinator.heartbeat("m1", joined.member_epoch)
    assert held(coordinator) - before == 15 * PARTITION_BYTES + 3 * (NAME_BYTES + 2)
    coordinator.leave("m1")
    assert held(coordinator) == 0


def test_a_reloaded_coordinator_holds_the_same_and_an_unloaded_one_nothing() -> None:
    cluster = Cluster()
    cluster.create_topic("a", 4)
    coordinator = Coordinator(cluster)
    coordinator.join("m1", ["a", *NAMES])
    coordinator.join("m2", None, subscribed_topic_regex="a|b")
    before = held(coordinator)
    coordinator.fail_over()
    assert held(coordinator) == before > 0
    coordinator.shard.perform(lambda machine, effects: machine.on_unloaded(effects))
    assert held(coordinator) == 0
