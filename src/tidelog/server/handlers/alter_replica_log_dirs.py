"""AlterReplicaLogDirs (API key 34): move replicas of this broker to other log directories of it (KIP-113)."""

import logging
from collections import defaultdict

from tidelog.errors import NO_ERROR, KafkaError
from tidelog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from tidelog.server.dispatch import RequestContext
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)


def reject_alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, error: KafkaError
) -> AlterReplicaLogDirsResponse:
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = defaultdict(list)
    for directory in request.dirs:
        for topic in directory.topics:
            results[topic.name] += [
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error.code)
                for index in topic.partitions
            ]
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=topic, partitions=found) for topic, found in results.items()]
    )


async def handle_alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Returns when the moves have begun. DescribeLogDirs shows how far they are."""
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = defaultdict(list)
    targets = [
        (directory.path, TopicPartition(topic.name, index))
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    ]
    outcomes = await context.services.turns.each(targets, lambda target: _alter(context, *target))
    rejected = [(each, error) for (_, each), error in zip(targets, outcomes, strict=True) if error is not None]
    if rejected:
        # The response has no room for reasons.
        first, reason = rejected[0]
        logger.warning("refused to move replicas partitions=%d first=%s reason=%s", len(rejected), first, reason)
    for (_, (topic, index)), error in zip(targets, outcomes, strict=True):
        error_code = NO_ERROR if error is None else error.code
        results[topic].append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error_code))
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=topic, partitions=found) for topic, found in results.items()]
    )


def _alter(context: RequestContext, path: str, topic_partition: TopicPartition) -> KafkaError | None:
    try:
        context.services.alter_log_dirs.alter(topic_partition, path)
    except KafkaError as error:
        return error.as_value()
    return None
