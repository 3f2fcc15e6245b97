"""Rebalances of groups on the timeline, also those that are shorter than the console looks."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.console.large_cluster import LargeCluster
from tidelog.client.admin.group_admin import GroupAdmin, GroupSummary
from tidelog.console.broker_metrics import BrokerMetrics
from tidelog.console.group_batches import GroupBatches
from tidelog.console.group_events import MAX_DESCRIBED, GroupWatch
from tidelog.console.observer import Observer
from tidelog.console.samples import Latencies
from tidelog.console.timeline import Finding


def texts(found: list[Finding]) -> list[str]:
    return [each.text for each in found]


def watch(**states: str) -> GroupWatch:
    made = GroupWatch()
    assert made.on_states(states) == []
    return made


def test_a_rebalance_is_seen_by_the_state() -> None:
    groups = watch(shop="Stable")
    assert texts(groups.on_states({"shop": "PreparingRebalance"})) == ["Group shop is rebalancing."]
    assert texts(groups.on_states({"shop": "CompletingRebalance"})) == []
    assert texts(groups.on_states({"shop": "Stable"})) == ["Group shop is stable again."]
    assert texts(groups.on_states({"shop": "Empty"})) == ["Group shop has no members any more."]
    assert texts(groups.on_states({})) == ["Group shop was deleted."]


def test_a_short_rebalance_is_seen_by_the_members() -> None:
    groups = watch(shop="Stable")
    assert groups.on_members({"shop": ["a", "b"]}) == []
    assert texts(groups.on_members({"shop": ["b", "c", "d"]})) == [
        "Group shop rebalanced: 2 members joined, 1 member left, 3 now."
    ]
    assert groups.on_members({"shop": ["d", "c", "b"]}) == []


def test_a_thousand_groups_take_turns() -> None:
    groups = watch(**{f"g{number:04}": "Stable" for number in range(1000)})
    turns = [groups.next_to_describe() for _ in range(1000 // MAX_DESCRIBED)]
    assert all(len(turn) == MAX_DESCRIBED for turn in turns)
    assert len({group for turn in turns for group in turn}) == 1000


def test_many_changes_at_once_are_one_sentence() -> None:
    groups = watch(**{f"g{number:04}": "Stable" for number in range(1000)})
    (found,) = groups.on_states({f"g{number:04}": "PreparingRebalance" for number in range(1000)})
    assert found.text == "1000 groups changed, such as: Group g0000 is rebalancing."


def test_the_observer_puts_rebalances_on_the_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    members = ["a"]

    async def list_groups(admin: GroupAdmin) -> list[GroupSummary]:
        return [GroupSummary("shop", "classic", "Stable", 1)]

    async def described(batches: GroupBatches, groups: Sequence[GroupSummary]) -> dict[str, list[str]]:
        return {group.group_id: list(members) for group in groups}

    monkeypatch.setattr(GroupAdmin, "list_groups", list_groups)
    monkeypatch.setattr(GroupBatches, "members", described)
    cluster: Any = LargeCluster()

    async def main() -> list[str]:
        observer = Observer(cluster, BrokerMetrics())
        await observer.watch_groups()
        members.append("b")
        await observer.watch_groups()
        return [f"{event.kind}: {event.text}" for event in observer.timeline]

    assert asyncio.run(main()) == ["rebalance: Group shop rebalanced: 1 member joined, 2 now."]


def test_percentiles_are_those_of_the_last_minute() -> None:
    latencies = Latencies()
    assert latencies.percentiles(0) == {}
    latencies.add(0, 99.0)
    for number in range(100):
        latencies.add(60_000, number / 1000)
    assert latencies.percentiles(60_000) == {"p50": 50.0, "p99": 99.0}
