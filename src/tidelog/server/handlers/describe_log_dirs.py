"""DescribeLogDirs: what lies in each log directory, and how much room is left."""

from tidelog.errors import NO_ERROR, KafkaError, KafkaStorageError
from tidelog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    OutOfSyncReplica,
)
from tidelog.server.dispatch import Call
from tidelog.storage.log_directory import LogDirectory
from tidelog.types import TopicPartition


async def handle_describe_log_dirs(request: DescribeLogDirsRequest, call: Call) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results = [await _describe(directory, wanted, call) for directory in call.services.logs.directories]
    return DescribeLogDirsResponse(
        error_code=NO_ERROR,
        results=results,
        suspension=call.services.membership.suspension,
        stray_logs=list(call.services.logs.stray_paths),
    )


async def _describe(directory: LogDirectory, wanted: set[TopicPartition] | None, call: Call) -> DescribeLogDirsResult:
    offline = DescribeLogDirsResult(error_code=KafkaStorageError.code, log_dir=directory.path)
    if not directory.is_online:
        return offline
    try:
        total_bytes, usable_bytes = await call.services.workers.run(directory.space)
    except OSError:
        return offline
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for topic_partition, log in call.services.logs.logs.items():
        if log.directory is directory and (wanted is None or topic_partition in wanted):
            topics.setdefault(topic_partition.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=topic_partition.partition,
                    partition_size=log.size_bytes,
                    offset_lag=0,
                    out_of_sync=_out_of_sync(topic_partition, call),
                    fetch_failure=call.services.replicas.fetch_failure(topic_partition),
                )
            )
    return DescribeLogDirsResult(
        error_code=NO_ERROR,
        log_dir=directory.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )


def _out_of_sync(topic_partition: TopicPartition, call: Call) -> list[OutOfSyncReplica]:
    """What the leader knows of replicas that are not in sync with it; nothing where this broker follows."""
    try:
        leader = call.services.replicas.get(*topic_partition).leader
    except KafkaError:
        return []
    return [OutOfSyncReplica(*each) for each in leader.out_of_sync()] if leader else []
