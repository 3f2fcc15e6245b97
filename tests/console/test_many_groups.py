"""Requests of the console to a cluster with 1,000 groups: a few per broker, however many groups there are."""

import asyncio
from collections import Counter
from collections.abc import Generator, Sequence
from typing import Any, cast

import pytest

from tidelog.cli.client_command import command_network
from tidelog.client import Producer
from tidelog.client.admin.group_admin import GroupAdmin, GroupSummary
from tidelog.client.network.bootstrap import parse_bootstrap
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.routing.cluster import Cluster as ClientCluster
from tidelog.console.group_batches import GroupBatches
from tidelog.console.groups import MAX_AT_ONCE, Groups
from tidelog.console.samples import Samples
from tidelog.errors import NotCoordinator
from tidelog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from tidelog.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from tidelog.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tidelog.runtime.randomness import SystemRandomness
from tidelog.testing import Cluster
from tidelog.types import TopicPartition

GROUPS = 1_000
BROKERS = 3
FIRST = TopicPartition("orders", 0)


class Connection:
    """Answers for every group: one member, offset 5. `g-moved` has another coordinator by now."""

    def __init__(self, asked: Counter[str], offset_fetch_version: int = 9) -> None:
        self._asked = asked
        self._version = offset_fetch_version

    def version_of(self, request_type: type) -> int:
        return self._version

    async def ask(self, request: Any, response_type: type, **_: object) -> object:
        self._asked[type(request).__name__.removesuffix("Request")] += 1
        if response_type is DescribeGroupsResponse:
            members = [DescribedGroupMember(member_id="m")]
            return DescribeGroupsResponse(
                groups=[
                    DescribedGroup(group_id=each, error_code=_error(each), group_state="Stable", members=members)
                    for each in request.groups
                ]
            )
        if response_type is ConsumerGroupDescribeResponse:
            return ConsumerGroupDescribeResponse(groups=[ConsumerGroup(group_id=each) for each in request.group_ids])
        if self._version < 8:
            old = OffsetFetchResponsePartition(partition_index=0, committed_offset=5)
            return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="orders", partitions=[old])])
        new = OffsetFetchResponsePartitions(partition_index=0, committed_offset=5)
        topics = [OffsetFetchResponseTopics(name="orders", partitions=[new])]
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id=each.group_id, topics=topics, error_code=_error(each.group_id))
                for each in request.groups
            ]
        )


def _error(group: str) -> int:
    return NotCoordinator.code if group == "g-moved" else 0


class FakeCluster:
    def __init__(self, version: int = 9, dead: int | None = None) -> None:
        self.asked: Counter[str] = Counter()
        self.connections = self
        self._version = version
        self._dead = dead

    def address_of(self, broker_id: int) -> int:
        return broker_id

    async def to(self, address: int) -> Connection:
        if address == self._dead:
            raise ConnectionLost("it is dead")
        return Connection(self.asked, self._version)


def many(count: int = GROUPS) -> list[GroupSummary]:
    kinds = ("Classic", "Consumer")
    return [GroupSummary(f"g{each}", kinds[each % 2], "Stable", each % BROKERS + 1) for each in range(count)]


def batches_of(cluster: Any) -> GroupBatches:
    return GroupBatches(cluster, timeout_s=1.0)


def test_a_thousand_groups_are_described_with_two_requests_per_broker() -> None:
    cluster = FakeCluster()
    found = asyncio.run(batches_of(cluster).members(many()))
    assert len(found) == GROUPS
    assert found["g0"] == ["m"]
    assert cluster.asked == {"DescribeGroups": BROKERS, "ConsumerGroupDescribe": BROKERS}


def test_offsets_of_a_thousand_groups_are_one_request_per_broker() -> None:
    cluster = FakeCluster()
    found = asyncio.run(batches_of(cluster).offsets(many()))
    assert len(found) == GROUPS
    assert found["g7"] == {FIRST: 5}
    assert cluster.asked == {"OffsetFetch": BROKERS}


def test_old_brokers_are_asked_for_one_group_at_a_time() -> None:
    cluster = FakeCluster(version=5)
    assert asyncio.run(batches_of(cluster).offsets(many(10))) == {f"g{each}": {FIRST: 5} for each in range(10)}
    assert cluster.asked == {"OffsetFetch": 10}


def test_groups_of_a_dead_coordinator_and_those_that_moved_are_missing() -> None:
    groups = [*many(9), GroupSummary("g-moved", "Classic", "Stable", 2)]
    for ask in (GroupBatches.members, GroupBatches.offsets):
        found: dict[str, object] = asyncio.run(ask(batches_of(FakeCluster(dead=1)), groups))  # type: ignore[arg-type]
        assert sorted(found) == ["g1", "g2", "g4", "g5", "g7", "g8"]


def test_lags_of_many_groups_are_sampled_in_turns_so_that_a_page_finds_their_trend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples, turns = Samples(), []
    groups = Groups(cast("Any", FakeCluster()), samples)

    async def lags(names: Sequence[str]) -> dict[str, dict[str, object]]:
        turns.append(list(names))
        samples.add(len(turns), {f"lag/{name}": 2.0 for name in names})
        return {}

    monkeypatch.setattr(groups, "lags", lags)
    assert asyncio.run(groups.sample_lags([])) is None
    chosen = many(2 * MAX_AT_ONCE)
    assert asyncio.run(groups.sample_lags(chosen)) == 2 * MAX_AT_ONCE
    assert asyncio.run(groups.sample_lags(chosen)) == 4 * MAX_AT_ONCE
    assert sorted(turns[1] + turns[2]) == sorted(each.group_id for each in chosen)
    assert asyncio.run(groups.sample_lags(chosen[:1])) == 2  # of groups that are gone nothing is left
    assert turns[3] == [chosen[0].group_id]


# A real cluster


@pytest.fixture(scope="module")
def kafka() -> Generator[Cluster]:
    settings = {"offsets.topic.num.partitions": 4, "group.initial.rebalance.delay.ms": 0}
    with Cluster(brokers=2, settings=settings) as cluster:
        yield cluster


async def fill(kafka: Cluster, client: ClientCluster) -> list[str]:
    """Groups with a lag of 3 on the one topic."""
    async with Producer(kafka.bootstrap_servers) as producer:
        for _ in range(5):
            await producer.send("orders", b"x", partition=0)
    names = [f"group-{number}" for number in range(MAX_AT_ONCE)]
    admin = GroupAdmin(client, timeout_s=60.0)
    await asyncio.gather(*(admin.commit(name, {FIRST: 2}) for name in names))
    return names


def opened(kafka: Cluster) -> ClientCluster:
    return ClientCluster(command_network(None), parse_bootstrap(kafka.bootstrap_servers), SystemRandomness())


def asked(kafka: Cluster, *names: str) -> dict[str, int]:
    return {name: len(kafka.requests(name)) for name in names}


def test_a_refresh_of_the_page_asks_each_broker_once(kafka: Cluster) -> None:
    async def main() -> None:
        async with opened(kafka) as client:
            names = await fill(kafka, client)
            groups = Groups(client, Samples())
            assert {each["id"] for each in await groups.list_groups()} == set(names)
            before = asked(kafka, "OffsetFetch", "ListOffsets", "FindCoordinator", "ListGroups")
            found = await groups.lags(names)
            assert {name: each["lag"] for name, each in found.items()} == dict.fromkeys(names, 3)
            after = asked(kafka, "OffsetFetch", "ListOffsets", "FindCoordinator", "ListGroups")
            new = {name: after[name] - before[name] for name in after}
            assert new["OffsetFetch"] <= 2
            assert new["ListOffsets"] == 1
            assert new["FindCoordinator"] == new["ListGroups"] == 0

    asyncio.run(main())
