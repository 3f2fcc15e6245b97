"""Fetch: read record batches of partitions, as a consumer or as a follower."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, int8, int16, int32, int64, nested, record_batches, string, uuid
from tidelog.protocol.structs import Request, Response, Struct
from tidelog.runtime.disk import FileSlice
from tidelog.types import Buffer, Uuid

RACKS_FROM_VERSION = 11
"""Consumers name their rack, and may read from followers (KIP-392)."""

TOPIC_IDS_FROM_VERSION = 13
"""Topics have ids instead of names (KIP-516)."""


class ReplicaState(Struct):
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)  # the broker epoch of the follower (KIP-903)


class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(versions="9+", default=-1)
    fetch_offset: int = int64()
    # Lets the leader report to a follower that its log diverged (KIP-595).
    last_fetched_epoch: int = int32(versions="12+", default=-1)
    log_start_offset: int = int64(versions="5+", default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: Uuid = uuid(versions="17+", tag=0)
    high_watermark: int = int64(versions="18+", default=2**63 - 1, tag=1)  # log start offset of the follower


class FetchTopic(Struct):
    topic: str = string(versions="0-12")
    topic_id: Uuid = uuid(versions="13+")
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string(versions="7-12")
    topic_id: Uuid = uuid(versions="13+")
    partitions: Sequence[int] = array(int32)


class FetchRequest(Request, key=1, versions="4-18", flexible="12+"):
    cluster_id: str | None = string(versions="12+", nullable="12+", tag=0)
    replica_id: int = int32(versions="0-14", default=-1)  # -1 for consumers; from 15 on in `replica_state`
    replica_state: ReplicaState | None = nested(ReplicaState, versions="15+", tag=1)  # None for consumers
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2**31 - 1)  # limit of the response; the first batch is sent even if it is larger
    isolation_level: int = int8()
    session_id: int = int32(versions="7+")
    session_epoch: int = int32(versions="7+", default=-1)  # -1: no session; 0: a new one (KIP-227)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, versions="7+")
    rack_id: str = string(versions="11+")


class EpochEndOffset(Struct):
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64(versions="5+", default=-1)
    diverging_epoch: EpochEndOffset | None = nested(EpochEndOffset, versions="12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, versions="12+", tag=1)
    snapshot_id: SnapshotId | None = nested(SnapshotId, versions="12+", tag=2)  # of the metadata log only
    # Null for read_uncommitted consumers.
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable="0+")
    preferred_read_replica: int = int32(versions="11+", default=-1)  # where to fetch instead (KIP-392)
    # Kafka answers with empty records, never with null.
    records: Buffer | FileSlice | None = record_batches(nullable="0+")


class FetchableTopicResponse(Struct):
    topic: str = string(versions="0-12")
    topic_id: Uuid = uuid(versions="13+")
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+")


class FetchResponse(Response, key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: int = int32()
    error_code: int = int16(versions="7+")
    session_id: int = int32(versions="7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, versions="16+", tag=0)
