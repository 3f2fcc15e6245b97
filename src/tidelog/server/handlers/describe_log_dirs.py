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
from tidelog.replication.out_of_sync import out_of_sync
from tidelog.server.dispatch import Call
from tidelog.storage.log_directory import LogDirectory
from tidelog.types import ZERO_UUID, TopicPartition, Uuid

UNKNOWN_SPACE = (-1, -1)


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
    total_bytes, usable_bytes = await _space(directory, call)
    if not directory.is_online:
        # With its id: a controller that asks where logs end must not take this for a broker that cannot tell (R42).
        return DescribeLogDirsResult(
            error_code=KafkaStorageError.code, log_dir=directory.path, directory_id=directory.directory_id or ""
        )
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    topic_ids: dict[str, Uuid] = {}
    for topic_partition, log in call.services.logs.logs.items():
        if log.directory is directory and (wanted is None or topic_partition in wanted):
            topics.setdefault(topic_partition.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=topic_partition.partition,
                    partition_size=log.size_bytes,
                    offset_lag=0,
                    out_of_sync=_out_of_sync(topic_partition, call),
                    fetch_failure=call.services.replicas.fetch_failure(topic_partition),
                    log_end_offset=log.log_end_offset,
                    last_epoch=log.leader_epochs.last_record_epoch(log.log_start_offset, log.log_end_offset),
                )
            )
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


async def _space(directory: LogDirectory, call: Call) -> tuple[int, int]:
    """As Kafka where it is not known. A shortage says nothing about the logs."""
    if directory.is_online:
        try:
            return await call.services.workers.run(directory.space)
        except OSError as error:
            directory.fail(error)
    return UNKNOWN_SPACE


def _out_of_sync(topic_partition: TopicPartition, call: Call) -> list[OutOfSyncReplica]:
    """What the leader knows of replicas that are not in sync with it; nothing where this broker follows."""
    try:
        leader = call.services.replicas.get(*topic_partition).leader
    except KafkaError:
        return []
    return [OutOfSyncReplica(*each) for each in out_of_sync(leader)] if leader else []
