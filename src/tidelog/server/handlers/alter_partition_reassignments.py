"""AlterPartitionReassignments (API key 45): move replicas of partitions to other brokers (KIP-455)."""

from collections import defaultdict
from collections.abc import Mapping

from tidelog.errors import KafkaError
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tidelog.server.dispatch import RequestContext
from tidelog.server.forwarding import forward_unless_controller
from tidelog.server.response_fields import error_fields
from tidelog.types import TopicPartition


def reject_alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    outcomes = {
        TopicPartition(topic.name, partition.partition_index): error
        for topic in request.topics
        for partition in topic.partitions
    }
    return AlterPartitionReassignmentsResponse(**error_fields(error), responses=_results(outcomes))


async def handle_alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    allowed = request.allow_replication_factor_change
    try:
        response = await forward_unless_controller(
            context.services, context.client_id, request, AlterPartitionReassignmentsResponse, request.timeout_ms
        )
        if response is not None:
            return response
        targets = {
            TopicPartition(topic.name, partition.partition_index): partition.replicas
            for topic in request.topics
            for partition in topic.partitions
        }
        outcomes = await context.services.membership.controller.alter_partition_reassignments(
            targets, allow_replication_factor_change=allowed
        )
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(allow_replication_factor_change=allowed, **error_fields(error))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allowed, error_message=None, responses=_results(outcomes)
    )


def _results(outcomes: Mapping[TopicPartition, KafkaError | None]) -> list[ReassignableTopicResponse]:
    results: dict[str, list[ReassignablePartitionResponse]] = defaultdict(list)
    for (topic, index), error in outcomes.items():
        results[topic].append(ReassignablePartitionResponse(partition_index=index, **error_fields(error)))
    return [ReassignableTopicResponse(name=topic, partitions=found) for topic, found in results.items()]
