"""Summary statistics of the audit: sizes, records, times, codecs and hot keys, by topic and by broker."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelog.audit.audit_run import AuditResult, by_partition, representative
from tidelog.audit.batch_table import timeline_of
from tidelog.audit.hot_keys import KeyCounts, merged
from tidelog.audit.replica_facts import LogDir, Replica, SegmentFacts, Timeline
from tidelog.protocol.compression import Codec

TIMELINE_BUCKETS = 60


@dataclass(frozen=True)
class HotKey:
    topic: str
    key: bytes
    count: int
    share: float
    """Share of the topic's records."""


@dataclass(frozen=True)
class TopicSummary:
    """Records, times and codecs count one replica of each partition; sizes count all replicas."""

    name: str
    partitions: int
    replicas: int
    size_bytes: int
    one_replica_bytes: int
    records: int
    batches: int
    batches_by_codec: dict[str, int]
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    keys: KeyCounts | None
    hot_keys: Sequence[HotKey]

    @property
    def compression_ratio(self) -> float | None:
        """Ratio of the bytes of keys and values to bytes on disk; None if keys were not counted."""
        if self.keys is None or not self.keys.payload_bytes or not self.one_replica_bytes:
            return None
        return self.keys.payload_bytes / self.one_replica_bytes


@dataclass(frozen=True)
class LogDirSummary:
    log_dir: LogDir
    replicas: int
    segments: int
    size_bytes: int


@dataclass(frozen=True)
class Summary:
    topics: Sequence[TopicSummary]
    log_dirs: Sequence[LogDirSummary]
    timeline: Timeline | None
    hot_keys: Sequence[HotKey]
    partitions: int
    replicas: int
    segments: int
    batches: int
    size_bytes: int


def summarise(audit: AuditResult, hot_keys: int) -> Summary:
    partitions = by_partition(audit.replicas)
    by_topic: dict[str, list[list[Replica]]] = defaultdict(list)
    for topic_partition, replicas in partitions.items():
        by_topic[topic_partition.topic].append(replicas)
    topics = [_topic(name, found, hot_keys) for name, found in by_topic.items()]
    hottest = sorted((key for topic in topics for key in topic.hot_keys), key=lambda key: -key.count)
    segments = [segment for replica in audit.replicas for segment in replica.segments]
    return Summary(
        sorted(topics, key=lambda topic: -topic.size_bytes),
        [_log_dir(log_dir, audit.replicas) for log_dir in audit.log_dirs],
        merge_timelines(
            segment.timeline for found in partitions.values() for segment in representative(found).segments
        ),
        hottest[:hot_keys],
        len(partitions),
        len(audit.replicas),
        len(segments),
        sum(segment.batch_count for segment in segments),
        sum(segment.size_bytes for segment in segments),
    )


def _topic(name: str, partitions: Sequence[Sequence[Replica]], hot_keys: int) -> TopicSummary:
    segments = [segment for replicas in partitions for segment in representative(replicas).segments]
    times = [segment for segment in segments if segment.first_timestamp_ms >= 0]
    counted = [segment.keys for segment in segments if segment.keys is not None]
    keys = merged(counted) if counted else None
    return TopicSummary(
        name,
        len(partitions),
        sum(len(replicas) for replicas in partitions),
        sum(segment.size_bytes for replicas in partitions for replica in replicas for segment in replica.segments),
        sum(segment.size_bytes for segment in segments),
        sum(segment.record_count for segment in segments),
        sum(segment.batch_count for segment in segments),
        _codecs(segments),
        min((segment.first_timestamp_ms for segment in times), default=None),
        max((segment.last_timestamp_ms for segment in times), default=None),
        keys,
        _hot_keys(name, keys, hot_keys) if keys else (),
    )


def _hot_keys(topic: str, keys: KeyCounts, number: int) -> list[HotKey]:
    """A key that occurs once is not hot."""
    records = max(1, keys.record_count)
    return [HotKey(topic, key, count, count / records) for key, count in keys.top(number) if count > 1]


def _codecs(segments: Iterable[SegmentFacts]) -> dict[str, int]:
    known = {int(codec): codec.setting for codec in Codec}
    batches: dict[str, int] = defaultdict(int)
    for segment in segments:
        for codec, used in segment.codecs.items():
            batches[known.get(codec, f"codec {codec}")] += used.batches
    return dict(sorted(batches.items()))


def _log_dir(log_dir: LogDir, replicas: Sequence[Replica]) -> LogDirSummary:
    own = [replica for replica in replicas if replica.log_dir.path == log_dir.path]
    segments = [segment for replica in own for segment in replica.segments]
    return LogDirSummary(log_dir, len(own), len(segments), sum(segment.size_bytes for segment in segments))


def merge_timelines(parts: Iterable[Timeline | None]) -> Timeline | None:
    """Sum the timelines. The bytes of a bucket count at its middle."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    start_ms = min(part.start_ms for part in known)
    end_ms = max(part.start_ms + part.bucket_ms * len(part.bucket_bytes) for part in known)
    sizes = (
        (part.start_ms + number * part.bucket_ms + part.bucket_ms // 2, size)
        for part in known
        for number, size in enumerate(part.bucket_bytes)
    )
    return timeline_of(start_ms, end_ms, sizes, TIMELINE_BUCKETS)
