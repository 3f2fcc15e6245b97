"""DescribeCluster (API key 60): lists the live brokers, on request also members that are down, and the controller."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import NO_ERROR, KafkaError, MismatchedEndpointType, UnsupportedEndpointType
from tidelog.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import error_fields, reachable_brokers

BROKERS = 1
CONTROLLERS = 2
"""Endpoints of a KRaft controller quorum (KIP-919). Here a broker is the controller."""
NO_HOST, NO_PORT = "", -1
"""Of a member that is down: its address goes with its registration. As in Kafka's Node.noNode()."""


async def handle_describe_cluster(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(**error_fields(_wrong_endpoint(request.endpoint_type)))
    image = context.services.cluster.image
    response = DescribeClusterResponse(
        error_code=NO_ERROR,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker, endpoint in reachable_brokers(image.brokers.values(), context.session.listener)
        ],
    )
    if request.include_fenced_brokers:
        try:
            absent = await context.services.membership.absent_members()
        except KafkaError as error:
            return DescribeClusterResponse(**error_fields(error))
        response.brokers += [
            DescribeClusterBroker(broker_id=each, host=NO_HOST, port=NO_PORT, rack=None, is_fenced=True)
            for each in absent
        ]
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = (
            0
            if context.is_denied(Operation.DESCRIBE, ResourceType.CLUSTER)
            else context.authorized_operations(ResourceType.CLUSTER)
        )
    return response


def _wrong_endpoint(endpoint_type: int) -> KafkaError:
    if endpoint_type == CONTROLLERS:
        return MismatchedEndpointType("this endpoint belongs to a broker, not to a controller quorum")
    return UnsupportedEndpointType(f"Unsupported endpoint type {endpoint_type}")
