"""OffsetForLeaderEpoch: where an epoch ended in the leader's log, so that others can find where they part (R27)."""

from tidelog.errors import NO_ERROR, KafkaError
from tidelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from tidelog.server.dispatch import Call


def handle_offset_for_leader_epoch(request: OffsetForLeaderEpochRequest, call: Call) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_end_of_epoch(topic.topic, wanted, call) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _end_of_epoch(topic: str, wanted: OffsetForLeaderPartition, call: Call) -> EpochEndOffset:
    try:
        partition = call.services.partition(topic, wanted.partition)
        partition.require_leader(wanted.current_leader_epoch)
        epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)
    return EpochEndOffset(partition=wanted.partition, error_code=NO_ERROR, leader_epoch=epoch, end_offset=end_offset)
