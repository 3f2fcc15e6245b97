"""ListPartitionReassignments (API key 46): partitions that are being reassigned (KIP-455)."""

from collections import defaultdict

from tidelog.controller.context import ControllerContext
from tidelog.errors import KafkaError
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tidelog.server.dispatch import RequestContext
from tidelog.server.forwarding import forward_unless_controller
from tidelog.server.response_fields import error_fields
from tidelog.types import TopicPartition


async def handle_list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    try:
        response = await forward_unless_controller(
            context.services, context.client_id, request, ListPartitionReassignmentsResponse, request.timeout_ms
        )
    except KafkaError as error:
        return ListPartitionReassignmentsResponse(**error_fields(error))
    if response is not None:
        return response
    return ListPartitionReassignmentsResponse(
        error_message=None, topics=_listed(request, context.services.membership.controller.context)
    )


def _listed(request: ListPartitionReassignmentsRequest, context: ControllerContext) -> list[OngoingTopicReassignment]:
    """Those that are named and are being reassigned; what is not there at all is left out, as in Kafka."""
    found = context.reassigning()
    if request.topics is not None:
        named = {TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
        found = [each for each in found if each in named]
    listed: dict[str, list[OngoingPartitionReassignment]] = defaultdict(list)
    for each in found:
        partition = context.partition(each)
        listed[each.topic].append(
            OngoingPartitionReassignment(
                partition_index=each.partition,
                replicas=partition.replicas,
                adding_replicas=partition.adding_replicas,
                removing_replicas=partition.removing_replicas,
            )
        )
    return [OngoingTopicReassignment(name=topic, partitions=partitions) for topic, partitions in listed.items()]
