"""AlterReplicaLogDirs (API key 34): move replicas of this broker to other log directories of it (KIP-113)."""

import logging
from collections import defaultdict
from collections.abc import Iterator

from tidelog.errors import NO_ERROR, KafkaError, ReplicaNotAvailable, UnknownTopicOrPartition
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
    """Returns when the moves have begun. DescribeLogDirs shows how far they are.

    A partition that is named more than once goes to the last directory, as in Kafka.
    """
    results: dict[str, dict[int, AlterReplicaLogDirPartitionResult]] = defaultdict(dict)
    rejected: list[tuple[TopicPartition, KafkaError]] = []

    def alter(target: tuple[str, TopicPartition]) -> None:
        path, topic_partition = target
        error = _alter(context, path, topic_partition)
        if error is not None:
            rejected.append((topic_partition, error))
        error_code = NO_ERROR if error is None else error.code
        topic, index = topic_partition
        results[topic][index] = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error_code)

    await context.services.turns.each(_targets(request), alter)
    if rejected:
        # The response has no room for reasons.
        first, reason = rejected[0]
        logger.warning("refused to move replicas partitions=%d first=%s reason=%s", len(rejected), first, reason)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=topic, partitions=list(found.values()))
            for topic, found in results.items()
        ]
    )


def _targets(request: AlterReplicaLogDirsRequest) -> Iterator[tuple[str, TopicPartition]]:
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                yield directory.path, TopicPartition(topic.name, index)


def _alter(context: RequestContext, path: str, topic_partition: TopicPartition) -> KafkaError | None:
    """The error for the client. Where no broker has the partition it is unknown; its log will be in that directory."""
    try:
        context.services.alter_log_dirs.alter(topic_partition, path)
    except ReplicaNotAvailable as error:
        if context.services.cluster.image.partition(topic_partition) is None:
            return UnknownTopicOrPartition(f"{topic_partition} does not exist")
        return error.as_value()
    except KafkaError as error:
        return error.as_value()
    return None
