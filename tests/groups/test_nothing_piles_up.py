"""Groups keep what they need to know, and nothing of what was once said."""

from typing import Any

import pytest

from tests.groups import classic_groups
from tests.groups.consumer_groups import GROUP, Cluster, Coordinator
from tidelog.groups.consumer.regular_expressions import TopicPattern
from tidelog.replicated.machine import Effects
from tidelog.replicated.memory_shard import MemoryReply


def size_of(thing: Any) -> int:
    """All that its collections hold, however deep."""
    if isinstance(thing, dict):
        return len(thing) + sum(size_of(value) for value in thing.values())
    if isinstance(thing, (list, set, frozenset, tuple)):
        return len(thing)
    if type(thing).__module__.startswith("tidelog.groups") and hasattr(thing, "__dict__"):
        return sum(size_of(value) for value in vars(thing).values())
    return 0


def test_a_member_may_change_its_mind_as_often_as_it_likes() -> None:
    coordinator = Coordinator(Cluster())
    coordinator.join("m1", ["t0"])
    sizes = []
    for number in range(1, 100):
        epoch = coordinator.group.members["m1"].epoch
        coordinator.heartbeat("m1", epoch, subscribed_topic_names=[f"t{number}"], topic_partitions=[])
        sizes.append(size_of(coordinator.group))
    assert len(set(sizes)) == 1


def test_expressions_that_nobody_uses_are_forgotten() -> None:
    coordinator = Coordinator(Cluster())
    coordinator.join("m1", None, subscribed_topic_regex="t0.*")
    sizes = []
    for number in range(1, 50):
        epoch = coordinator.group.members["m1"].epoch
        coordinator.heartbeat("m1", epoch, subscribed_topic_regex=f"t{number}.*", topic_partitions=[])
        sizes.append(size_of(coordinator.group))
    assert len(set(sizes)) == 1


def test_a_classic_member_may_bring_other_protocols_each_time() -> None:
    coordinator = classic_groups.Coordinator()
    (member_id,) = coordinator.stable(1)
    sizes = []
    for number in range(50):
        coordinator.join(member_id, protocols=(("range", b""), (f"assignor-{number}", b"")))
        coordinator.assign(member_id)
        sizes.append(size_of(coordinator.group))
    assert len(set(sizes)) == 1


def test_groups_that_are_deleted_leave_nothing_behind() -> None:
    cluster = Cluster()
    cluster.create_topic("a", 4)
    coordinator = Coordinator(cluster)
    empty = size_of(coordinator.shard.machine)
    for round_ in range(3):
        for name in ("m1", "m2", "m3"):
            coordinator.join(name)
        for name in ("m1", "m2") if round_ % 2 else ("m1", "m2", "m3"):
            coordinator.leave(name)
        coordinator.shard.advance(100_000)

        def delete(machine: Any, effects: Effects) -> None:
            machine.delete(GROUP, MemoryReply(), effects)

        coordinator.shard.perform(delete)
        assert not coordinator.shard.machine.groups
        assert size_of(coordinator.shard.machine) == empty
        assert [key for key in coordinator.shard.timers if GROUP in key] == []  # type: ignore[operator]


def test_an_expression_is_matched_again_only_when_topics_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.create_topic("a", 1)
    coordinator = Coordinator(cluster)
    coordinator.join("first")
    matched: list[str] = []
    matching = TopicPattern.matching

    def counted(pattern: TopicPattern, names: Any) -> frozenset[str]:
        matched.append(pattern.expression)
        return matching(pattern, names)

    monkeypatch.setattr(TopicPattern, "matching", counted)
    expressions = [f"a|b{number}" for number in range(20)]
    for number, expression in enumerate(expressions):
        coordinator.join(f"m{number}", None, subscribed_topic_regex=expression)
    assert sorted(matched) == sorted(expressions)
    matched.clear()
    cluster.create_topic("b7", 1)
    for number in range(20):
        coordinator.heartbeat(f"m{number}", coordinator.group.members[f"m{number}"].epoch)
    assert sorted(matched) == sorted(expressions)
    assert coordinator.group.regexes["a|b7"].topics == {"a", "b7"}
