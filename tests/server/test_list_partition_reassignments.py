"""ListPartitionReassignments, through the wire protocol."""

import pytest

from tests.server.harness import Client, Harness, with_broker
from tests.server.test_forwarding import BROKERS, others, with_cluster
from tidelog.errors import NotController
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopic,
)
from tidelog.server.controller_link import CLIENT_ID_PREFIX
from tidelog.simulation.cluster import SimulatedCluster

OF_ALL = ListPartitionReassignmentsRequest(topics=None)
OF_ONE = ListPartitionReassignmentsRequest(topics=[ListPartitionReassignmentsTopic(name="t", partition_indexes=[0])])


@pytest.mark.parametrize("request_", [OF_ALL, OF_ONE], ids=["all", "one"])
def test_no_replica_is_on_its_way(request_: ListPartitionReassignmentsRequest) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        response = await client.ask(request_, 0, ListPartitionReassignmentsResponse)
        assert response == ListPartitionReassignmentsResponse(error_message=None)

    with_broker(scenario)


def test_it_is_the_controller_that_knows() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        for broker_id in BROKERS:
            connection = await cluster.connect(broker_id)
            assert (await connection.ask(OF_ALL, ListPartitionReassignmentsResponse)).error_code == 0
        passed_on = await cluster.connect(others(cluster)[0], f"{CLIENT_ID_PREFIX}9")
        response = await passed_on.ask(OF_ALL, ListPartitionReassignmentsResponse)
        assert response.error_code == NotController.code

    with_cluster(scenario)
