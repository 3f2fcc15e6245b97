"""Groups under faults: a coordinator that gives partitions away too early, or takes anybody's commits, is noticed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.simulation.broken_coordinators import anybody_commits, partitions_are_given_twice
from tests.simulation.scenario import TOPIC, create_topic, produce, simulate, wait_for
from tidelog.client.admin.group_admin import GroupAdmin
from tidelog.client.consumer.consumer import BEGINNING
from tidelog.client.groups.group_consumer import GroupConsumer, GroupConsumerSettings
from tidelog.client.network.bootstrap import Address
from tidelog.client.routing.cluster import Cluster
from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.chaos import run_seed
from tidelog.simulation.clients import ClientErrors
from tidelog.simulation.cluster import PORT, SimulatedCluster, host_of
from tidelog.simulation.copy_workers import Claims
from tidelog.simulation.processes import Process
from tidelog.simulation.work.groups import (
    COORDINATOR_SETTINGS,
    HEARTBEAT_MS,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    GroupMember,
)
from tidelog.simulation.work.ownership import Ownership, Progress

CLASSIC, CONSUMER = frozenset({"classic_groups"}), frozenset({"consumer_groups"})
GROUP = "group"
SESSION_S = SESSION_TIMEOUT_MS / 1000
SETTINGS: dict[str, Any] = {**COORDINATOR_SETTINGS, "offsets_topic_num_partitions": 1}


@pytest.mark.parametrize("kinds", [CLASSIC, CONSUMER])
@pytest.mark.parametrize("seed", [1, 2])
def test_groups_work_off_their_topic_whatever_happens(kinds: frozenset[str], seed: int) -> None:
    """Links with 20 ms, killed coordinators, members that sleep past their session: no partition has two owners."""
    verdict = run_seed(seed, kinds)
    assert verdict.violations == [], "\n".join(verdict.event_log)


def client(cluster: SimulatedCluster, host: str) -> Cluster:
    """Members draw their ids: each host has its own chance."""
    bootstrap = [Address(host_of(broker_id), PORT) for broker_id in cluster.machines]
    randomness = SeededRandomness(int.from_bytes(host.encode()))
    return Cluster(cluster.network.at(host), bootstrap, randomness, client_id=host)


@asynccontextmanager
async def member(cluster: SimulatedCluster, host: str, *, is_classic: bool) -> AsyncIterator[GroupConsumer]:
    settings = GroupConsumerSettings(
        is_classic=is_classic,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        start_at=BEGINNING,
    )
    async with client(cluster, host) as at_host, GroupConsumer(at_host, GROUP, [TOPIC], settings) as consumer:
        yield consumer


async def poll_until_owning(consumer: GroupConsumer, partitions: int, timeout_s: float = 10.0) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while len(consumer.partitions) < partitions:
                await consumer.poll(0.1)


# ---- partitions that are given away too early


async def join_while_the_owner_is_busy(cluster: SimulatedCluster) -> list[str]:
    """The first member has all and does not poll: it cannot let go of anything, and the second one gets nothing.

    What the judges say: one by the member epochs, the other one by the clock.
    """
    await create_topic(cluster, [1, 2, 3], [2, 3, 1])
    claims, now = Claims(may_restart_generations=False), asyncio.get_running_loop().time
    ownership = Ownership(session_timeout_s=SESSION_S, rebalance_timeout_s=REBALANCE_TIMEOUT_MS / 1000)
    async with member(cluster, "a", is_classic=False) as a:
        await poll_until_owning(a, 2)
        assert len(a.partitions) == 2
        async with member(cluster, "b", is_classic=False) as b:
            await poll_until_owning(b, 1, timeout_s=SESSION_S)
            for each in (a, b):
                claims.note(each)
                # Both send heartbeats all the time, and are answered.
                ownership.on_heartbeat(each.member.member_id, now(), each.partitions)
                ownership.on_owned(each.member.member_id, each.partitions, now())
    return claims.violations + ownership.violations


def test_a_partition_that_is_given_away_too_early_is_noticed_by_its_member_epoch_and_by_the_clock() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        violations = await join_while_the_owner_is_busy(cluster)
        assert [line.split()[0] for line in violations] == ["G1", "two-owners"], violations

    with partitions_are_given_twice():
        simulate(scenario, **SETTINGS)


def test_a_partition_is_not_given_away_before_its_owner_lets_go() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        assert await join_while_the_owner_is_busy(cluster) == []

    simulate(scenario, **SETTINGS)


# ---- commits of members that were replaced


async def commit_after_a_long_sleep(cluster: SimulatedCluster, *, is_classic: bool) -> list[str]:
    """A member reads and is stopped; another one works off all; the first one goes on, and commits what it has."""
    await create_topic(cluster, [1, 2, 3])
    await produce(cluster, b"1")
    process, progress, may_commit, has_read = Process("a"), Progress(), asyncio.Event(), asyncio.Event()

    async def read_and_commit_late() -> None:
        async with member(cluster, "a", is_classic=is_classic) as consumer:
            while not await consumer.poll(0.1):
                pass
            has_read.set()
            await may_commit.wait()
            with suppress(*ClientErrors):
                await consumer.commit()

    living = process.start(read_and_commit_late())
    await has_read.wait()
    process.stop()
    await produce(cluster, b"2")
    async with member(cluster, "b", is_classic=is_classic) as other, client(cluster, "probe") as probe:

        async def look() -> None:
            found = await GroupAdmin(probe).offsets(GROUP)
            progress.on_committed({key: each.offset for key, each in found.items()})

        while set(other.positions.values()) != {2}:
            await other.poll(0.1)
        await other.commit()
        await look()
        may_commit.set()
        process.resume()
        await wait_for(living.done)
        await look()
    return progress.violations


@pytest.mark.parametrize("is_classic", [True, False])
def test_commits_of_members_that_were_replaced_are_noticed(is_classic: bool) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        violations = await commit_after_a_long_sleep(cluster, is_classic=is_classic)
        assert violations == [f"G2 {TOPIC}-0 was committed up to 2, and now to 1"]

    with anybody_commits():
        simulate(scenario, **SETTINGS)


@pytest.mark.parametrize("is_classic", [True, False])
def test_commits_of_members_that_were_replaced_are_refused(is_classic: bool) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        assert await commit_after_a_long_sleep(cluster, is_classic=is_classic) == []

    simulate(scenario, **SETTINGS)


def test_a_second_stop_counts_when_a_heartbeat_between_the_two_is_answered() -> None:
    """Seed 610859: the member acted on an old assignment, and was taken for one that had never stopped."""

    async def scenario(_: SimulatedCluster) -> None:
        member = GroupMember("member-1", seed=1)
        member.on_stopped(10.0)
        member.on_stopped(14.0)
        member.on_heartbeat(sent_at=12.0)
        assert member.stopped_at == 14.0
        member.on_heartbeat(sent_at=15.0)
        assert member.stopped_at is None

    simulate(scenario)
