"""OffsetForLeaderEpoch (API key 23): returns the end offset of an epoch in the leader's log, for truncation (R27)."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import NO_ERROR, KafkaError, TopicAuthorizationFailed
from tidelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from tidelog.server.dispatch import RequestContext
from tidelog.types import BrokerId


def handle_offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Of brokers with ClusterAction, of clients with Describe on the topic (KIP-320)."""
    denied = (
        context.denied(Operation.DESCRIBE, ResourceType.TOPIC, (topic.topic for topic in request.topics))
        if context.is_denied(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, is_logged=False)
        else ()
    )
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=requested.partition, error_code=TopicAuthorizationFailed.code)
                    if topic.topic in denied
                    else _end_of_epoch(request.replica_id, topic.topic, requested, context)
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _end_of_epoch(
    replica_id: BrokerId, topic: str, requested: OffsetForLeaderPartition, context: RequestContext
) -> EpochEndOffset:
    try:
        if replica_id >= 0:
            context.require_inter_broker_listener()
        partition = context.services.partition(topic, requested.partition)
        partition.require_leader(requested.current_leader_epoch)
        epoch, end_offset = partition.log.end_offset_for_epoch(requested.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=requested.partition, error_code=error.code)
    return EpochEndOffset(partition=requested.partition, error_code=NO_ERROR, leader_epoch=epoch, end_offset=end_offset)
