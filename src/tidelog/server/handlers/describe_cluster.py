"""DescribeCluster: who belongs to the cluster, and which broker is its controller."""

from tidelog.errors import NO_ERROR, KafkaError, MismatchedEndpointType, UnsupportedEndpointType
from tidelog.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tidelog.server.dispatch import Call
from tidelog.server.response_fields import CLUSTER_OPERATIONS, error_fields, reachable_brokers

BROKERS = 1
CONTROLLERS = 2
"""Of Kafka's own quorum (KIP-919); here a broker is the controller."""


def handle_describe_cluster(request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(**error_fields(_wrong_endpoint(request.endpoint_type)))
    image = call.services.cluster.image
    response = DescribeClusterResponse(
        error_code=NO_ERROR,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker, endpoint in reachable_brokers(image, call.connection.listener)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _wrong_endpoint(endpoint_type: int) -> KafkaError:
    if endpoint_type == CONTROLLERS:
        return MismatchedEndpointType("this is an endpoint of a broker, not of a controller quorum")
    return UnsupportedEndpointType(f"Unsupported endpoint type {endpoint_type}")
