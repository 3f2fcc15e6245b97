"""Consumer groups with very many subscriptions: a step does little for each of those that it does not change."""

from collections.abc import Mapping

import pytest

from tests.groups.consumer_groups import Cluster, Coordinator
from tidelog.cluster.image import Topic
from tidelog.groups.consumer import drafts

NAMES = 500


def crowd(members: int, topics: int = 5) -> tuple[Cluster, Coordinator]:
    """Members with names of topics that nobody else wants."""
    cluster = Cluster()
    for number in range(topics):
        cluster.create_topic(f"t{number}", 2)
    coordinator = Coordinator(cluster)
    for number in range(members):
        coordinator.join(f"m{number}", [f"n{number}-{index}" for index in range(NAMES)])
    return cluster, coordinator


def test_a_member_that_joins_meets_only_those_names_of_the_others_that_are_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, coordinator = crowd(10)
    looked_at: list[int] = []
    real = drafts._metadata_hash

    def spy(topics: Mapping[str, Topic], names: set[str]) -> int:
        looked_at.append(len(names))
        return real(topics, names)

    monkeypatch.setattr(drafts, "_metadata_hash", spy)
    coordinator.join("one more", ["t1"])
    assert looked_at == [1]


def test_names_of_topics_that_are_created_later_are_noticed() -> None:
    cluster, coordinator = crowd(3)
    epoch = coordinator.group.epoch
    created = cluster.create_topic("n1-7", 2)
    for member_id in ("m0", "m1", "m2"):
        coordinator.heartbeat(member_id, coordinator.group.members[member_id].epoch)
    assert coordinator.group.epoch == epoch + 1
    assert coordinator.group.targets["m1"] == {created: frozenset({0, 1})}


def test_a_member_that_leaves_takes_its_names_with_it() -> None:
    cluster, coordinator = crowd(3)
    coordinator.leave("m1")
    epoch = coordinator.group.epoch
    cluster.create_topic("n1-7", 2)
    coordinator.heartbeat("m0", coordinator.group.members["m0"].epoch)
    assert coordinator.group.epoch == epoch


def test_expressions_are_resolved_in_several_steps_when_topics_change(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    for number in range(20):
        cluster.create_topic(f"t{number}", 1)
    coordinator = Coordinator(cluster)
    for number in range(20):
        coordinator.join(f"m{number}", None, subscribed_topic_regex=f"t{number}|new-{number}")
    monkeypatch.setattr(drafts, "MAX_RESOLUTION_WORK", 100)
    for number in range(20):
        cluster.create_topic(f"new-{number}", 1)
    resolved = []
    for number in range(20):
        coordinator.heartbeat(f"m{number}", coordinator.group.members[f"m{number}"].epoch)
        resolved.append(sum(len(found.topics) == 2 for found in coordinator.group.regexes.values()))
    assert 0 < resolved[0] < 5
    assert resolved[-1] == 20
    coordinator.heartbeat("m0", coordinator.group.members["m0"].epoch)
    coordinator.heartbeat("m1", coordinator.group.members["m1"].epoch)
    assert coordinator.group.checked_topics is cluster.image.topics
