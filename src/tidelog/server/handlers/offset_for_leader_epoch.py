"""OffsetForLeaderEpoch (API key 23): returns the end offset of an epoch in the leader's log, for truncation (R27)."""

from tidelog.errors import NO_ERROR, KafkaError
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
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _end_of_epoch(request.replica_id, topic.topic, requested, context) for requested in topic.partitions
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
