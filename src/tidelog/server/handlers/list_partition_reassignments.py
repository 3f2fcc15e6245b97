"""ListPartitionReassignments: none, as no controller of ours moves replicas; in a mixed cluster Kafka's may."""

from tidelog.errors import KafkaError
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tidelog.server.dispatch import Call
from tidelog.server.forwarding import forward_unless_controller
from tidelog.server.response_fields import error_fields


async def handle_list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, call: Call
) -> ListPartitionReassignmentsResponse:
    try:
        answer = await forward_unless_controller(
            call.services, call.client_id, request, ListPartitionReassignmentsResponse, request.timeout_ms
        )
    except KafkaError as error:
        return ListPartitionReassignmentsResponse(**error_fields(error))
    return answer or ListPartitionReassignmentsResponse()
