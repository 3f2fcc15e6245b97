"""Replication quotas (Kafka: ReplicationQuotaManager): bytes per second of a broker's throttled replicas (R24)."""

# Core: no clock, no I/O, no await.

from functools import lru_cache
from typing import Final, NamedTuple

from tidelog.config.quotas import ALL_REPLICAS, UNLIMITED, QuotaSettings
from tidelog.config.topic import TopicSettings
from tidelog.types import BrokerId, TopicPartition

CACHED_LISTS: Final = 1024


class ReplicationQuota:
    """Byte rate over the last windows, and its bound. Times are in seconds of one monotonic clock.

    The rate is Kafka's SimpleRate: all bytes of the kept windows, divided by the time since the oldest of them began,
    which counts as one window at least. Readers of the rate may be in another thread: the windows are replaced, never
    changed.
    """

    __slots__ = ("_window_s", "_windows", "_windows_kept", "bytes_per_second", "left_out", "total_bytes")

    def __init__(self, windows_kept: int, window_s: int, bytes_per_second: int = UNLIMITED) -> None:
        self.bytes_per_second = bytes_per_second
        self.total_bytes = 0
        """Bytes of throttled replicas, whether the quota was exceeded or not."""
        self.left_out = 0
        """How often a partition was left out of a fetch."""
        self._windows_kept = windows_kept
        self._window_s = window_s
        self._windows: tuple[tuple[float, int], ...] = ()
        """Start and bytes of each window, oldest first."""

    @property
    def is_limited(self) -> bool:
        return self.bytes_per_second != UNLIMITED

    def record(self, size: int, now_s: float) -> None:
        """Count bytes of a throttled replica. They count even if the quota is exceeded."""
        self.total_bytes += size
        windows = self._live(now_s)
        if windows and now_s - windows[-1][0] < self._window_s:
            start_s, before = windows[-1]
            self._windows = (*windows[:-1], (start_s, before + size))
        else:
            self._windows = (*windows, (now_s, size))

    def byte_rate(self, now_s: float) -> float:
        windows = self._live(now_s)
        return sum(size for _, size in windows) / max(now_s - windows[0][0], self._window_s) if windows else 0.0

    def is_exceeded(self, now_s: float) -> bool:
        return self.is_limited and self.byte_rate(now_s) > self.bytes_per_second

    def wait_s(self, now_s: float) -> float:
        """Time until the quota is no longer exceeded, if nothing more is recorded; 0 if it is not."""
        if not self.is_exceeded(now_s):
            return 0.0
        windows = self._live(now_s)
        first_s = windows[0][0]
        expires_s = first_s + self._window_s * self._windows_kept
        if not self.bytes_per_second:
            return expires_s - now_s
        allowed_s = first_s + max(self._window_s, sum(size for _, size in windows) / self.bytes_per_second)
        return min(allowed_s, expires_s) - now_s

    def _live(self, now_s: float) -> tuple[tuple[float, int], ...]:
        limit_s = now_s - self._window_s * self._windows_kept
        windows = self._windows
        return (
            windows if not windows or windows[0][0] > limit_s else tuple(each for each in windows if each[0] > limit_s)
        )


class ReplicationQuotas:
    """The three replication quotas of one broker."""

    __slots__ = ("alter_log_dirs", "follower", "leader")

    def __init__(self, settings: QuotaSettings) -> None:
        windows, window_s = settings.replication_quota_window_num, settings.replication_quota_window_size_seconds
        self.leader = ReplicationQuota(windows, window_s)
        """What this broker sends to throttled replicas of partitions that it leads."""
        self.follower = ReplicationQuota(windows, window_s)
        """What this broker fetches for throttled replicas of its own."""
        self.alter_log_dirs = ReplicationQuota(
            settings.alter_log_dirs_replication_quota_window_num,
            settings.alter_log_dirs_replication_quota_window_size_seconds,
        )
        """What this broker copies from one of its log directories to another."""
        self.reconfigure(settings)

    def reconfigure(self, settings: QuotaSettings) -> None:
        """Apply new rates; bytes that were recorded before still count."""
        self.leader.bytes_per_second = settings.leader_replication_throttled_rate
        self.follower.bytes_per_second = settings.follower_replication_throttled_rate
        self.alter_log_dirs.bytes_per_second = settings.replica_alter_log_dirs_io_max_bytes_per_second

    def by_name(self) -> tuple[tuple[str, ReplicationQuota], ...]:
        return (("leader", self.leader), ("follower", self.follower), ("alter_log_dirs", self.alter_log_dirs))


class ThrottledRoles(NamedTuple):
    """Roles in which a replica is throttled: its topic lists it for the quota of leaders, or of followers."""

    as_leader: bool
    as_follower: bool


def throttled_roles(settings: TopicSettings, topic_partition: TopicPartition, broker_id: BrokerId) -> ThrottledRoles:
    index = topic_partition.partition
    return ThrottledRoles(
        is_listed(settings.leader_replication_throttled_replicas, index, broker_id),
        is_listed(settings.follower_replication_throttled_replicas, index, broker_id),
    )


def is_listed(replicas: tuple[str, ...], partition: int, broker_id: BrokerId) -> bool:
    """Whether a `...replication.throttled.replicas` list names the partition's replica on this broker."""
    if not replicas:
        return False
    listed = _partitions_on(replicas, broker_id)
    return listed is None or partition in listed


@lru_cache(CACHED_LISTS)
def _partitions_on(replicas: tuple[str, ...], broker_id: BrokerId) -> frozenset[int] | None:
    """Partitions listed for this broker; None is all of them."""
    if ALL_REPLICAS in replicas:
        return None
    pairs = (each.split(":") for each in replicas)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)
