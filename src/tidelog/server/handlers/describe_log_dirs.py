"""DescribeLogDirs (API key 35): lists the replicas of each log directory, with sizes and free space.

Tagged fields add what operators and the controller need: out-of-sync replicas, log ends, stray logs.
"""

from tidelog.errors import NO_ERROR, KafkaError, KafkaStorageError
from tidelog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    OutOfSyncReplica,
)
from tidelog.replication.out_of_sync import out_of_sync
from tidelog.server.dispatch import RequestContext
from tidelog.storage.log import Log
from tidelog.storage.log_directory import LogDirectory
from tidelog.types import ZERO_UUID, TopicPartition, Uuid

UNKNOWN_SPACE = (-1, -1)
UNKNOWN_LAG = -1


async def handle_describe_log_dirs(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    requested = None
    if request.topics is not None:
        requested = {TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results = [await _describe(directory, requested, context) for directory in context.services.logs.directories]
    return DescribeLogDirsResponse(
        error_code=NO_ERROR,
        results=results,
        suspension=context.services.membership.suspension,
        stray_logs=list(context.services.logs.stray_paths),
    )


async def _describe(
    directory: LogDirectory, requested: set[TopicPartition] | None, context: RequestContext
) -> DescribeLogDirsResult:
    total_bytes, usable_bytes = await _space(directory, context)
    if not directory.is_online:
        # With the id: else the controller would read this as a broker that does not report log ends (R42).
        return DescribeLogDirsResult(
            error_code=KafkaStorageError.code,
            log_dir=directory.path,
            directory_id=directory.directory_id or "",
            offline_reason=str(directory.error or "unknown"),
        )
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    topic_ids: dict[str, Uuid] = {}
    logs = context.services.logs
    for topic_partition, log in [*logs.logs.items(), *logs.future.logs.items()]:
        if log.directory is directory and (requested is None or topic_partition in requested):
            describe_one = _describe_future if log.is_future else _describe_current
            topics.setdefault(topic_partition.topic, []).append(describe_one(log, context))
            topic_ids[topic_partition.topic] = log.topic_id or ZERO_UUID
    return DescribeLogDirsResult(
        error_code=NO_ERROR,
        log_dir=directory.path,
        topics=[
            DescribeLogDirsTopic(name=name, partitions=partitions, topic_id=topic_ids[name])
            for name, partitions in topics.items()
        ],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        directory_id=directory.directory_id or "",
    )


def _describe_current(log: Log, context: RequestContext) -> DescribeLogDirsPartition:
    topic_partition = log.topic_partition
    return DescribeLogDirsPartition(
        partition_index=topic_partition.partition,
        partition_size=log.size_bytes,
        offset_lag=0,
        out_of_sync=_out_of_sync(topic_partition, context),
        fetch_failure=context.services.replicas.fetch_failure(topic_partition),
        log_end_offset=log.log_end_offset,
        last_epoch=log.last_record_epoch,
    )


def _describe_future(log: Log, context: RequestContext) -> DescribeLogDirsPartition:
    """Without log end and epoch, which a controller would take for those of the replica (R42)."""
    current = context.services.logs.get(log.topic_partition)
    return DescribeLogDirsPartition(
        partition_index=log.topic_partition.partition,
        partition_size=log.size_bytes,
        offset_lag=UNKNOWN_LAG if current is None else max(current.log_end_offset - log.log_end_offset, 0),
        is_future_key=True,
    )


async def _space(directory: LogDirectory, context: RequestContext) -> tuple[int, int]:
    """Total and usable bytes; -1 where unknown, as in Kafka."""
    if directory.is_online:
        try:
            return await context.services.workers.run(directory.space)
        except OSError as error:
            directory.fail(error)
    return UNKNOWN_SPACE


def _out_of_sync(topic_partition: TopicPartition, context: RequestContext) -> list[OutOfSyncReplica]:
    """Out-of-sync replicas of a partition that this broker leads; empty if it does not lead it."""
    replicas = context.services.replicas
    try:
        leader = replicas.get(*topic_partition).leader
    except KafkaError:
        return []
    return [OutOfSyncReplica(*each) for each in out_of_sync(leader, replicas.wall_offset_ms)] if leader else []
