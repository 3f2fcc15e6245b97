"""Metrics of replication throttles, and of records that followers truncated."""

from collections.abc import Callable, Iterator

from tidelog.replication.quota import ReplicationQuota
from tidelog.server.metrics.metric import Kind, Metric, Read, Sample
from tidelog.server.metrics.reading import Reading

QUOTA = ("quota",)
"""leader, follower or alter_log_dirs."""


def _by_quota(figure: Callable[[ReplicationQuota, float], float]) -> Read:
    def read(reading: Reading) -> Iterator[Sample]:
        now_s = reading.services.clock.monotonic()
        for name, quota in reading.services.quotas.by_name():
            yield (name,), figure(quota, now_s)

    return read


def _limits(reading: Reading) -> Iterator[Sample]:
    for name, quota in reading.services.quotas.by_name():
        if quota.is_limited:
            yield (name,), quota.bytes_per_second


def _throttled_partitions(reading: Reading) -> Iterator[Sample]:
    partitions = reading.partitions
    yield ("leader",), sum(each.throttled.as_leader and each.is_leader for each in partitions)
    yield ("follower",), sum(each.throttled.as_follower and not each.is_leader for each in partitions)


def _one(figure: Callable[[Reading], float]) -> Read:
    return lambda reading: [((), figure(reading))]


REPLICATION_QUOTA_METRICS: tuple[Metric, ...] = (
    Metric(
        Kind.COUNTER,
        "kafka.server:type=LeaderReplication,name=byte-rate",
        "Bytes sent to followers of partitions that are throttled on their leader.",
        _one(lambda now: now.services.quotas.leader.total_bytes),
    ),
    Metric(
        Kind.COUNTER,
        "kafka.server:type=FollowerReplication,name=byte-rate",
        "Bytes fetched for replicas that are throttled on their follower.",
        _one(lambda now: now.services.quotas.follower.total_bytes),
    ),
    Metric(
        Kind.COUNTER,
        "kafka.server:type=AlterLogDirsReplication,name=byte-rate",
        "Bytes copied between log directories of this broker.",
        _one(lambda now: now.services.quotas.alter_log_dirs.total_bytes),
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_replication_quota_bytes_per_second",
        "Rate to which throttled replication is limited; absent without a limit.",
        _limits,
        QUOTA,
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_replication_quota_rate_bytes_per_second",
        "Rate that is compared with the limit, over `replication.quota.window.num` windows.",
        _by_quota(lambda quota, now_s: quota.byte_rate(now_s)),
        QUOTA,
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_replication_throttled_partitions",
        "Partitions of this broker that `...replication.throttled.replicas` lists for the role that they have here.",
        _throttled_partitions,
        QUOTA,
    ),
    Metric(
        Kind.COUNTER,
        "tidelog_replication_throttled_fetches_total",
        "How often a partition was left out of a fetch because the quota was exceeded.",
        _by_quota(lambda quota, _: quota.left_out),
        QUOTA,
    ),
    Metric(
        Kind.COUNTER,
        "tidelog_replication_truncated_records_total",
        "Offsets that followers of this broker truncated to match their leader.",
        _one(lambda now: now.replicas.traffic.truncated_records),
    ),
    Metric(
        Kind.COUNTER,
        "tidelog_replication_truncated_committed_records_total",
        "Of those, offsets below the high watermark, acknowledged to producers: lost by an unclean election.",
        _one(lambda now: now.replicas.traffic.truncated_committed_records),
    ),
)
