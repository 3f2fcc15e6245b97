"""A leader that is cut off from the controller does not know its successor, nor the records that it lacks (R20)."""

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
from tidelog.errors import NO_ERROR, NotLeaderOrFollower, OffsetOutOfRange, OutOfOrderSequenceNumber
from tidelog.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.protocol.messages.produce import ProduceResponse
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
