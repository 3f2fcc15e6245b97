"""ListPartitionReassignments (API key 46): always empty, as our controller does not reassign partitions.

In a mixed cluster the request is forwarded to Kafka's controller, which may.
"""

from tidelog.errors import KafkaError
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tidelog.server.dispatch import RequestContext
from tidelog.server.forwarding import forward_unless_controller
from tidelog.server.response_fields import error_fields


async def handle_list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    try:
        answer = await forward_unless_controller(
            context.services, context.client_id, request, ListPartitionReassignmentsResponse, request.timeout_ms
        )
    except KafkaError as error:
        return ListPartitionReassignmentsResponse(**error_fields(error))
    return answer or ListPartitionReassignmentsResponse()
