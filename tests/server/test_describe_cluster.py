"""DescribeCluster, through the wire protocol."""

import pytest

from tests.server.harness import Client, Harness, with_broker
from tidelog.errors import KafkaError, MismatchedEndpointType, UnsupportedEndpointType
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse


@pytest.mark.parametrize("version", [0, 1, 2])
def test_brokers_and_controller(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        response = await client.ask(DescribeClusterRequest(), version, DescribeClusterResponse)
        assert (response.error_code, response.controller_id, response.endpoint_type) == (0, 0, 1)
        assert response.cluster_id
        assert [(broker.broker_id, broker.host, broker.port, broker.rack) for broker in response.brokers] == [
            (0, "127.0.0.1", 9092, "east")
        ]
        assert response.cluster_authorized_operations == -(2**31)
        asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
        response = await client.ask(asked, version, DescribeClusterResponse)
        assert response.cluster_authorized_operations == 8096

    with_broker(scenario, broker_rack="east")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [(2, MismatchedEndpointType), (0, UnsupportedEndpointType), (3, UnsupportedEndpointType)],
)
def test_other_endpoints_are_refused(version: int, endpoint_type: int, error: type[KafkaError]) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        request = DescribeClusterRequest(endpoint_type=endpoint_type)
        response = await client.ask(request, version, DescribeClusterResponse)
        assert (response.error_code, response.brokers) == (error.code, [])
        assert response.error_message

    with_broker(scenario)
