"""DescribeCluster: who belongs to the cluster, and which broker is its controller."""

from tidelog.errors import NO_ERROR, InvalidRequest
from tidelog.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tidelog.server.dispatch import Call

BROKERS = 1
"""The kind of endpoints that exist here; 2 would be the controllers of Kafka's own quorum."""


def handle_describe_cluster(request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    image = call.services.cluster.image
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=InvalidRequest.code,
            error_message=f"endpoint type {request.endpoint_type} does not exist here: ask for brokers ({BROKERS})",
            endpoint_type=request.endpoint_type,
            cluster_id=image.cluster_id,
        )
    brokers = []
    for broker in image.brokers.values():
        endpoint = broker.endpoint(call.connection.listener)
        if endpoint is not None:
            brokers.append(
                DescribeClusterBroker(broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            )
    return DescribeClusterResponse(
        error_code=NO_ERROR, cluster_id=image.cluster_id, controller_id=image.controller_id, brokers=brokers
    )
