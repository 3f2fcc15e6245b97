"""DescribeLogDirs: replicas in the log directories of a broker, with their sizes and free space."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, boolean, int16, int32, int64, string, uuid
from tidelog.protocol.structs import Request, Response, Struct
from tidelog.types import Uuid


class DescribableLogDirTopic(Struct):
    topic: str = string()
    partitions: Sequence[int] = array(int32)


class DescribeLogDirsRequest(Request, key=35, versions="1-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")  # null: all


class OutOfSyncReplica(Struct):
    """Why a replica is not in sync with its leader."""

    replica_id: int = int32()
    rule: str = string()  # the rule that keeps the replica out of the ISR
    since_ms: int = int64()
    behind: int = int64()  # number of missing offsets; -1 if unknown
    remedy: str = string()  # condition under which it rejoins the ISR


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()  # lag behind the high watermark; lag of a future log behind the current log
    is_future_key: bool = boolean()  # being moved here from another directory
    out_of_sync: list[OutOfSyncReplica] = array(OutOfSyncReplica, versions="2+", tag=10000)
    """Specific to Tidelog: set by the leader of the partition. Other clients skip it."""
    fetch_failure: str = string(versions="2+", tag=10001)
    """Specific to Tidelog: why this follower's fetches fail; empty if they do not."""
    # Specific to Tidelog: the controller needs these before it elects a replica that restarted uncleanly (R42).
    log_end_offset: int = int64(versions="2+", default=-1, tag=10002)
    last_epoch: int = int32(versions="2+", default=-1, tag=10003)  # the leader epoch of the last record


class DescribeLogDirsTopic(Struct):
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)
    topic_id: Uuid = uuid(versions="2+", tag=10000)  # specific to Tidelog: topic id of the log


class DescribeLogDirsResult(Struct):
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(versions="4+", default=-1)
    usable_bytes: int = int64(versions="4+", default=-1)
    is_cordoned: bool = boolean(versions="5+")
    directory_id: str = string(
        versions="2+", tag=10000
    )  # Specific to Tidelog: directory.id in meta.properties (KIP-858)
    offline_reason: str = string(versions="2+", tag=10001)
    """Specific to Tidelog: why the directory is offline; empty if it is not."""


class DescribeLogDirsResponse(Response, key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int = int32()
    error_code: int = int16(versions="3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
    suspension: str = string(versions="2+", default="", tag=10000)
    """Specific to Tidelog: why the broker is suspended; empty if it is not. Other clients skip it."""
    stray_logs: list[str] = array(string, versions="2+", tag=10001)
    """Specific to Tidelog: directories of logs that were set aside (R44)."""
