"""Coordinators that die, lose their replicas or are stopped: what a group was answered stays true (R10)."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from tests.simulation.scenario import TOPIC, ask, create_topic, simulate, stored, wait_for
from tidelog.client.network.connection import ConnectionLost
from tidelog.errors import NO_ERROR, CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator
from tidelog.groups.consumer import heartbeats
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from tidelog.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tidelog.replicated.commits import Commits
from tidelog.replicated.shard import Shard, ShardState
from tidelog.replication.leader_confirmation import LeaderConfirmation
from tidelog.replication.partition import Partition
from tidelog.server.internal_topics import RETRY_BACKOFF_S
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.types import BrokerId

GROUP_TOPIC = "__consumer_offsets"
TRY_AGAIN = {CoordinatorLoadInProgress.code, CoordinatorNotAvailable.code, NotCoordinator.code}


async def prepare(cluster: SimulatedCluster) -> None:
    """Broker 1 coordinates all groups; 2 and 3 have its records too."""
    await create_topic(cluster, [1, 2, 3])
    await create_topic(cluster, [1, 2, 3], name=GROUP_TOPIC, cleanup_policy="compact", min_insync_replicas=2)


async def commit(cluster: SimulatedCluster, broker_id: BrokerId, offset: int) -> bool:
    """Whether the broker said that the offset is committed."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(
        group_id="group", topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
    )
    try:
        response = await ask(cluster, broker_id, request, OffsetCommitResponse, 8)
    except ConnectionLost:
        return False
    return response.topics[0].partitions[0].error_code == NO_ERROR


async def committed(cluster: SimulatedCluster, broker_id: BrokerId) -> int | None:
    """The offset that the broker reports; None if it is not the coordinator."""
    request = OffsetFetchRequest(group_id="group", topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])])
    response = await ask(cluster, broker_id, request, OffsetFetchResponse, 7)
    if response.error_code in TRY_AGAIN:
        return None
    assert response.error_code == NO_ERROR
    return response.topics[0].partitions[0].committed_offset


async def coordinator_other_than(cluster: SimulatedCluster, broker_id: BrokerId) -> BrokerId:
    """Once it has loaded what there is."""

    def leader() -> BrokerId:
        return stored(cluster, GROUP_TOPIC).leader

    await wait_for(lambda: leader() not in (-1, broker_id))
    while await committed(cluster, leader()) is None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return leader()


# ---- what is acknowledged survives


async def die_alone(cluster: SimulatedCluster) -> None:
    """Broker 1 takes a commit while nobody can follow it, and dies."""
    await prepare(cluster)
    assert await commit(cluster, 1, 7)
    cluster.cut(1, [2, 3])
    later = asyncio.ensure_future(commit(cluster, 1, 8))
    await asyncio.sleep(1)
    was_acknowledged = later.done() and await later
    cluster.kill(1)
    successor = await coordinator_other_than(cluster, 1)
    assert await committed(cluster, successor) == (8 if was_acknowledged else 7), "an acknowledged commit is lost"
    assert await commit(cluster, successor, 9)
    assert await committed(cluster, successor) == 9
    assert not await later


def test_an_offset_that_was_acknowledged_survives_its_coordinator() -> None:
    simulate(die_alone, controller=2)


@contextmanager
def answers_before_the_commit() -> Iterator[None]:
    with patch.object(Commits, "is_due", lambda self, high_watermark: bool(self._queue)):
        yield


def test_an_answer_that_does_not_wait_for_the_commit_is_noticed() -> None:
    with answers_before_the_commit(), pytest.raises(AssertionError, match="is lost"):
        simulate(die_alone, controller=2)


# ---- assignments that members have received


async def join(cluster: SimulatedCluster, broker_id: BrokerId, member_id: str) -> bool:
    """Whether the coordinator has sent the member its assignment (KIP-848)."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="group",
        member_id=member_id,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    try:
        response = await ask(cluster, broker_id, request, ConsumerGroupHeartbeatResponse, 1)
    except ConnectionLost:
        return False
    return response.error_code == NO_ERROR and response.assignment is not None


async def join_twice_and_die(cluster: SimulatedCluster) -> None:
    """Broker 1 assigns partitions while nobody can follow it; the member asks again, as after a lost answer."""
    await prepare(cluster)
    cluster.cut(1, [2, 3])
    first = asyncio.ensure_future(join(cluster, 1, "member"))
    await asyncio.sleep(0.5)
    again = asyncio.ensure_future(join(cluster, 1, "member"))
    await asyncio.sleep(0.5)
    assert not first.done()
    assert not again.done(), "it received an assignment that the next coordinator will not know"
    cluster.kill(1)
    assert [await first, await again] == [False, False]
    successor = await coordinator_other_than(cluster, 1)
    assert await join(cluster, successor, "another member")


def test_a_member_that_asks_again_does_not_get_an_assignment_that_may_be_undone() -> None:
    simulate(join_twice_and_die, controller=2)


@contextmanager
def heartbeats_show_what_is_not_committed() -> Iterator[None]:
    with patch.object(heartbeats, "_reveals_state", lambda request, response: False):
        yield


def test_an_assignment_that_is_sent_before_it_is_committed_is_noticed() -> None:
    with heartbeats_show_what_is_not_committed(), pytest.raises(AssertionError, match="will not know"):
        simulate(join_twice_and_die, controller=2)


# ---- one coordinator at a time


async def sleep_through_the_succession(cluster: SimulatedCluster) -> None:
    """Broker 1 is stopped, another one takes over, and broker 1 finds an old question when it wakes up."""
    await prepare(cluster)
    assert await commit(cluster, 1, 7)
    connection = await cluster.connect(1)
    cluster.freeze(1)
    request = OffsetFetchRequest(group_id="group", topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])])
    asked = asyncio.ensure_future(connection.ask(request, OffsetFetchResponse, version=7, timeout_s=60))
    successor = await coordinator_other_than(cluster, 1)
    assert await commit(cluster, successor, 9)
    cluster.thaw(1)
    try:
        assert (await asked).error_code in TRY_AGAIN, "a deposed coordinator answered from memory"
    except ConnectionLost:
        pass
    finally:
        connection.close()
    assert await committed(cluster, successor) == 9


def test_a_coordinator_that_was_stopped_does_not_answer_for_its_successor() -> None:
    simulate(sleep_through_the_succession, controller=2)


@contextmanager
def without_a_look_at_the_lease() -> Iterator[None]:
    def is_acting(self: Shard[object]) -> bool:  # type: ignore[type-var]
        return self.state is ShardState.ACTIVE

    async def all_confirmed(self: LeaderConfirmation, partitions: Iterable[Partition]) -> set[Partition]:
        return set(partitions)

    with (
        patch.object(Shard, "is_acting", property(is_acting)),
        patch.object(LeaderConfirmation, "_confirmed", all_confirmed),
    ):
        yield


def test_a_coordinator_that_trusts_its_memory_is_noticed() -> None:
    with without_a_look_at_the_lease(), pytest.raises(AssertionError, match="a deposed coordinator"):
        simulate(sleep_through_the_succession, controller=2)


# ---- the same machine while the leadership stays


async def lose_a_follower(cluster: SimulatedCluster) -> None:
    await prepare(cluster)
    assert await commit(cluster, 1, 7)
    cluster.kill(3)
    await wait_for(lambda: 3 not in stored(cluster, GROUP_TOPIC).in_sync_replicas)
    assert await committed(cluster, 1) == 7, "the coordinator had to begin again"
    assert await commit(cluster, 1, 8)


def test_the_loss_of_a_follower_does_not_trouble_a_coordinator() -> None:
    simulate(lose_a_follower, controller=2)


# ---- everybody stops


async def stop_and_start(cluster: SimulatedCluster) -> None:
    await prepare(cluster)
    assert await commit(cluster, 1, 7)
    await cluster.stop_all()
    await cluster.start_all()
    await wait_for(lambda: stored(cluster, GROUP_TOPIC).leader != -1)
    coordinator = await coordinator_other_than(cluster, -1)
    assert await committed(cluster, coordinator) == 7


def test_offsets_are_there_after_a_restart_of_all_brokers() -> None:
    simulate(stop_and_start, controller=2)


# ---- who coordinates


async def ask_while_a_broker_is_away(cluster: SimulatedCluster) -> None:
    request = FindCoordinatorRequest(coordinator_keys=[f"group{number}" for number in range(20)])
    found = (await ask(cluster, 1, request, FindCoordinatorResponse)).coordinators
    assert {each.node_id for each in found} == {1, 2}
    cluster.kill(2)
    await wait_for(lambda: 2 not in cluster.broker(1)._services.cluster.image.brokers)
    began_s = asyncio.get_running_loop().time()
    again = (await ask(cluster, 1, request, FindCoordinatorResponse)).coordinators
    assert asyncio.get_running_loop().time() - began_s < 0.1
    assert [each.error_code for each in again] == [
        NO_ERROR if each.node_id == 1 else CoordinatorNotAvailable.code for each in found
    ]


def test_a_broker_that_is_away_does_not_hold_up_the_groups_of_others() -> None:
    simulate(ask_while_a_broker_is_away, brokers=2, offsets_topic_replication_factor=1)


async def ask_with_too_few_brokers(cluster: SimulatedCluster) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["group"])
    cluster.kill(3)
    await wait_for(lambda: 3 not in cluster.broker(1)._services.cluster.image.brokers)
    forgotten = await ask(cluster, 1, UnregisterBrokerRequest(broker_id=3), UnregisterBrokerResponse)
    assert forgotten.error_code == NO_ERROR
    (found,) = (await ask(cluster, 1, request, FindCoordinatorResponse)).coordinators
    assert found.error_code == CoordinatorNotAvailable.code
    await cluster.start(3)
    await wait_for(lambda: 3 in cluster.broker(1)._services.cluster.image.brokers)
    await asyncio.sleep(RETRY_BACKOFF_S)
    (found,) = (await ask(cluster, 1, request, FindCoordinatorResponse)).coordinators
    assert found.error_code == NO_ERROR
    assert len(stored(cluster, GROUP_TOPIC).in_sync_replicas) == 3


def test_coordinators_come_with_the_brokers_that_their_topic_needs() -> None:
    simulate(ask_with_too_few_brokers, offsets_topic_replication_factor=3, zookeeper_connect="-")
