"""AlterReplicaLogDirs (API key 34): move replicas of this broker to other log directories of it (KIP-113)."""

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
    for (_, (topic, index)), error_code in zip(targets, outcomes, strict=True):
        results[topic].append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error_code))
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=topic, partitions=found) for topic, found in results.items()]
    )


def _alter(context: RequestContext, path: str, topic_partition: TopicPartition) -> int:
    try:
        context.services.alter_log_dirs.alter(topic_partition, path)
    except KafkaError as error:
        return error.code
    return NO_ERROR
