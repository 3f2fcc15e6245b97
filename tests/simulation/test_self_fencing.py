"""A broker whose lease has run out leads nothing, even before it has heard so."""

import asyncio
from contextlib import suppress

import pytest

from tests.server.harness import batch_of, produce_request
from tests.simulation.scenario import PRODUCE_VERSION, TOPIC, create_topic, leading, produce, simulate, wait_for
from tidelog.client.network.connection import ConnectionLost
from tidelog.errors import NotLeaderOrFollower
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.simulation.cluster import SimulatedCluster


async def sleep_through_an_election(cluster: SimulatedCluster, acks: int) -> None:
    """The frame arrived while broker 1 was stopped: it is handled before any timer of the lease has run."""
    await create_topic(cluster, [1, 2, 3], min_insync_replicas=1)
    await produce(cluster, b"a")
    connection = await cluster.connect(1)
    cluster.freeze(1)
    request = produce_request(TOPIC, batch_of(b"lost"), 0, acks)
    asked = asyncio.ensure_future(connection.ask(request, ProduceResponse, version=PRODUCE_VERSION, timeout_s=60))
    await wait_for(lambda: leading(cluster, 2) is not None)
    cluster.thaw(1)
    with suppress(ConnectionLost):
        response = (await asked).responses[0].partition_responses[0]
        assert response.error_code == NotLeaderOrFollower.code, "acknowledged by a leader that was replaced"
    connection.close()


@pytest.mark.parametrize("acks", [1, -1])
def test_a_leader_that_was_stopped_past_its_lease_takes_nothing(acks: int) -> None:
    simulate(lambda cluster: sleep_through_an_election(cluster, acks), controller=2)
