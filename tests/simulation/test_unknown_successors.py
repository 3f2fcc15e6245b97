"""A leader that is cut off from the controller does not know its successor, nor the records that it lacks (R20)."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.server.harness import batch_of, fetch_request, produce_request
from tests.simulation.scenario import (
    PRODUCE_VERSION,
    TOPIC,
    ask,
    create_topic,
    in_sync,
    produce_to,
    replica,
    simulate,
    stored,
    wait_for,
)
from tests.simulation.test_coordinators import GROUP_TOPIC, commit, committed
from tests.simulation.test_transactions import STATE_TOPIC
from tidelog.errors import (
    NO_ERROR,
    MemberIdRequired,
    NotCoordinator,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
)
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.types import BrokerId

BEFORE_TOPIC_IDS = 12
PRODUCER_ID = 77


async def replace_leader_that_is_cut_off(cluster: SimulatedCluster) -> None:
    """Broker 2 leads, is cut off from its peers, and broker 3 is elected. Broker 2 still reaches the store."""
    await create_topic(cluster, [3, 2, 1])
    cluster.kill(3)
    await wait_for(lambda: stored(cluster).leader == 2)
    assert await write(cluster, 2, sequence=0) == NO_ERROR
    await cluster.start(3)
    await wait_for(lambda: in_sync(cluster) == {1, 2, 3})
    cluster.cut_off_from_peers(2)
    await ask(cluster, 1, ElectLeadersRequest(topic_partitions=None, timeout_ms=1000), ElectLeadersResponse)
    await wait_for(lambda: stored(cluster).leader == 3)
    await wait_for(lambda: replica(cluster, 3).leader is not None)
    assert await write(cluster, 3, sequence=1, acks=1) == NO_ERROR


async def write(cluster: SimulatedCluster, broker_id: BrokerId, *, sequence: int, acks: int = -1) -> int:
    batch = batch_of(b"x", producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence)
    response = await ask(cluster, broker_id, produce_request(TOPIC, batch, acks=acks), ProduceResponse, PRODUCE_VERSION)
    return response.responses[0].partition_responses[0].error_code


async def read(cluster: SimulatedCluster, broker_id: BrokerId, offset: int) -> int:
    response = await ask(cluster, broker_id, fetch_request(TOPIC, offset), FetchResponse, BEFORE_TOPIC_IDS)
    return response.responses[0].partitions[0].error_code


def test_a_batch_that_continues_records_of_the_successor_is_not_out_of_order() -> None:
    """A producer that follows old metadata gives the batch up if it is out of order (seed 1401471)."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await replace_leader_that_is_cut_off(cluster)
        assert await write(cluster, 2, sequence=2) == NotLeaderOrFollower.code
        assert await write(cluster, 3, sequence=2, acks=1) == NO_ERROR

    simulate(scenario)


def test_an_offset_of_the_successor_is_not_out_of_range() -> None:
    """A consumer without leader epochs that follows old metadata would start at another offset."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await replace_leader_that_is_cut_off(cluster)
        assert await read(cluster, 2, offset=2) == NotLeaderOrFollower.code

    simulate(scenario)


def test_a_leader_that_knows_of_its_successor_takes_no_records() -> None:
    """They would be truncated; with acks=1 the producer would take them for written."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await replace_leader_that_is_cut_off(cluster)
        assert await read(cluster, 2, offset=2) == NotLeaderOrFollower.code
        assert (await produce_to(cluster, 2, b"lost", acks=1)).error_code == NotLeaderOrFollower.code

    simulate(scenario)


def test_a_rejected_change_of_in_sync_replicas_ends_the_leadership() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await replace_leader_that_is_cut_off(cluster)
        await produce_to(cluster, 2, b"its followers do not fetch this", acks=1)
        await wait_for(lambda: replica(cluster, 2).leader is None)
        assert (await produce_to(cluster, 2, b"lost", acks=1)).error_code == NotLeaderOrFollower.code

    simulate(scenario, replica_lag_time_max_ms=3000)


def test_without_the_store_nothing_is_final() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [2, 1])
        cluster.cut_off_from_store(2)
        assert await write(cluster, 2, sequence=0, acks=1) == NO_ERROR
        assert await write(cluster, 2, sequence=5) == NotLeaderOrFollower.code

    simulate(scenario)


def test_the_leader_of_the_store_answers_as_ever() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [2, 1])
        assert await write(cluster, 2, sequence=0) == NO_ERROR
        assert await write(cluster, 2, sequence=5) == OutOfOrderSequenceNumber.code
        assert await read(cluster, 2, offset=2) == OffsetOutOfRange.code

    simulate(scenario)


def test_an_idle_leader_without_followers_learns_of_its_successor() -> None:
    """At the log end no follower counts as lagging, so it does not find out by a change of the in-sync replicas."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await replace_leader_that_is_cut_off(cluster)
        assert replica(cluster, 2).leader is not None
        await wait_for(lambda: replica(cluster, 2).leader is None, 5)

    simulate(scenario, replica_lag_time_max_ms=2000)


# ---- coordinators


async def until(attempt: Callable[[], Awaitable[bool]]) -> None:
    while not await attempt():  # noqa: ASYNC110
        await asyncio.sleep(0.1)


async def replace_coordinator_that_is_cut_off(
    cluster: SimulatedCluster, topic: str, before: Callable[[], Awaitable[None]]
) -> None:
    """Broker 2 coordinates, is cut off from its peers, and broker 3 takes over. Broker 2 still reaches the store."""
    cluster.kill(3)
    await wait_for(lambda: stored(cluster, topic).leader == 2)
    await cluster.start(3)
    await wait_for(lambda: in_sync(cluster, topic) == {1, 2, 3})
    await before()
    cluster.cut_off_from_peers(2)
    await ask(cluster, 1, ElectLeadersRequest(topic_partitions=None, timeout_ms=1000), ElectLeadersResponse)
    await wait_for(lambda: stored(cluster, topic).leader == 3)


def test_a_coordinator_with_a_successor_returns_no_old_offsets() -> None:
    """A worker that copies exactly once, with partitions of its own choice, would copy records again from there."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3])
        await create_topic(cluster, [3, 2, 1], name=GROUP_TOPIC, cleanup_policy="compact", min_insync_replicas=1)
        await replace_coordinator_that_is_cut_off(cluster, GROUP_TOPIC, lambda: until(lambda: commit(cluster, 2, 5)))
        await until(lambda: commit(cluster, 3, 10))
        assert await committed(cluster, 2) is None
        assert await committed(cluster, 3) == 10

    simulate(scenario, replica_lag_time_max_ms=2000)


class RawTransactions:
    """Requests of a producer without KIP-890: its epoch stays the same in one transaction after the other."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.producer_id = -1
        self.epoch = -1

    async def initialize(self, broker_id: BrokerId) -> bool:
        request = InitProducerIdRequest(transactional_id="copies", transaction_timeout_ms=60_000)
        response = await ask(self.cluster, broker_id, request, InitProducerIdResponse, 4)
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        return response.error_code == NO_ERROR

    async def begin(self, broker_id: BrokerId) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="copies",
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        )
        response = await ask(self.cluster, broker_id, request, AddPartitionsToTxnResponse, 3)
        return response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

    async def commit(self, broker_id: BrokerId) -> int:
        request = EndTxnRequest(
            transactional_id="copies", producer_id=self.producer_id, producer_epoch=self.epoch, committed=True
        )
        return (await ask(self.cluster, broker_id, request, EndTxnResponse, 3)).error_code

    async def has_begun(self, broker_id: BrokerId) -> bool:
        return await self.begin(broker_id) == NO_ERROR

    async def run(self, broker_id: BrokerId) -> None:
        await until(lambda: self.initialize(broker_id))
        await until(lambda: self.has_begun(broker_id))
        assert await self.commit(broker_id) == NO_ERROR
        await asyncio.sleep(1)  # for the markers


async def transactions_with_two_coordinators(cluster: SimulatedCluster) -> RawTransactions:
    """The first transaction was committed by broker 2, which does not know that broker 3 has taken over."""
    await create_topic(cluster, [1, 2, 3])
    await create_topic(cluster, [3, 2, 1], name=STATE_TOPIC, cleanup_policy="compact", min_insync_replicas=1)
    raw = RawTransactions(cluster)
    await replace_coordinator_that_is_cut_off(cluster, STATE_TOPIC, lambda: raw.run(2))
    return raw


def test_a_coordinator_with_a_successor_does_not_take_a_commit_for_that_of_the_last_transaction() -> None:
    """The producer would take the transaction for committed, and it would be aborted when its time is up."""

    async def scenario(cluster: SimulatedCluster) -> None:
        raw = await transactions_with_two_coordinators(cluster)
        await until(lambda: raw.has_begun(3))
        assert await raw.commit(2) == NotCoordinator.code
        assert await raw.commit(3) == NO_ERROR

    simulate(scenario, replica_lag_time_max_ms=2000)


def test_a_coordinator_with_a_successor_fences_nobody() -> None:
    """Producers take that for final."""

    async def scenario(cluster: SimulatedCluster) -> None:
        raw = await transactions_with_two_coordinators(cluster)
        await until(lambda: raw.initialize(3))
        await until(lambda: raw.has_begun(3))
        assert await raw.begin(2) == NotCoordinator.code
        assert await raw.commit(2) == NotCoordinator.code
        assert await raw.commit(3) == NO_ERROR

    simulate(scenario, replica_lag_time_max_ms=2000)


class RawMember:
    """A member of a classic group that sends what it is told to."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.member_id = ""
        self.generation = -1

    async def join(self, broker_id: BrokerId) -> bool:
        request = JoinGroupRequest(
            group_id="group",
            session_timeout_ms=6000,
            rebalance_timeout_ms=6000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = await ask(self.cluster, broker_id, request, JoinGroupResponse, 5)
        if joined.error_code == MemberIdRequired.code:
            self.member_id = joined.member_id
            return await self.join(broker_id)
        self.member_id, self.generation = joined.member_id, joined.generation_id
        return joined.error_code == NO_ERROR and await self._sync(broker_id)

    async def _sync(self, broker_id: BrokerId) -> bool:
        assignment = SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"all")
        request = SyncGroupRequest(
            group_id="group", generation_id=self.generation, member_id=self.member_id, assignments=[assignment]
        )
        return (await ask(self.cluster, broker_id, request, SyncGroupResponse, 3)).error_code == NO_ERROR

    async def heartbeat(self, broker_id: BrokerId) -> int:
        request = HeartbeatRequest(group_id="group", generation_id=self.generation, member_id=self.member_id)
        return (await ask(self.cluster, broker_id, request, HeartbeatResponse, 3)).error_code


def test_a_member_of_a_coordinator_with_a_successor_loses_its_partitions_before_others_get_them() -> None:
    """The successor hears no heartbeat of it, and gives its partitions away when its session is over."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3])
        await create_topic(cluster, [3, 2, 1], name=GROUP_TOPIC, cleanup_policy="compact", min_insync_replicas=1)
        member = RawMember(cluster)
        await replace_coordinator_that_is_cut_off(cluster, GROUP_TOPIC, lambda: until(lambda: member.join(2)))
        async with asyncio.timeout(5):
            while await member.heartbeat(2) == NO_ERROR:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        assert await member.heartbeat(2) == NotCoordinator.code

    simulate(scenario)
