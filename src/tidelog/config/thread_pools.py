"""Dynamic Kafka settings of parts that Tidelog does not have, such as thread pools: accepted, kept and shown, unused.

Operators change them at run time with `kafka-configs`; scripts that do must not fail here. Settings that promise
something (a rate of connections, a class, a certificate) are not accepted this way: `kafka_names` has these.
"""

from dataclasses import dataclass

from tidelog.config.quotas import QuotaSettings
from tidelog.config.setting import LONG_MAX, ConfigType, UpdateMode, setting

_ONE_LOOP = "one event loop per broker serves all connections and requests"
_CLEANER = "one cleaner compacts one log at a time"
_NO_TIERS = "there is no tiered storage"
_NO_SUCH_GROUPS = "there are no share groups and no streams groups"

NO_EFFECT = {
    "background.threads": "background work runs on the event loop and its workers",
    "follower.fetch.last.tiered.offset.enable": _NO_TIERS,
    "group.consumer.assignment.interval.ms": "groups of 100 members are assigned at once, larger ones once a second",
    "group.coordinator.cached.buffer.max.bytes": "coordinators keep no buffers between writes",
    "group.share.assignment.interval.ms": _NO_SUCH_GROUPS,
    "group.streams.assignment.interval.ms": _NO_SUCH_GROUPS,
    "log.cleaner.io.buffer.load.factor": _CLEANER,
    "log.cleaner.io.buffer.size": _CLEANER,
    "log.cleaner.threads": _CLEANER,
    "log.local.retention.bytes": _NO_TIERS,
    "log.local.retention.ms": _NO_TIERS,
    "log.preallocate": "segments grow as they are written",
    "num.io.threads": _ONE_LOOP,
    "num.network.threads": _ONE_LOOP,
    "num.recovery.threads.per.data.dir": "the workers of the broker load and recover logs",
    "remote.fetch.max.wait.ms": _NO_TIERS,
    "remote.list.offsets.request.timeout.ms": _NO_TIERS,
    "remote.log.index.file.cache.total.size.bytes": _NO_TIERS,
    "remote.log.manager.copier.thread.pool.size": _NO_TIERS,
    "remote.log.manager.copy.max.bytes.per.second": _NO_TIERS,
    "remote.log.manager.expiration.thread.pool.size": _NO_TIERS,
    "remote.log.manager.fetch.max.bytes.per.second": _NO_TIERS,
    "remote.log.manager.follower.thread.pool.size": _NO_TIERS,
    "remote.log.reader.threads": _NO_TIERS,
    "share.coordinator.cached.buffer.max.bytes": _NO_SUCH_GROUPS,
}
"""Why a setting has no effect, by its name."""

THREAD_POOLS = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
"""At run time Kafka lets these at most double or halve; the same holds for those that have an effect here."""

REMOTE_THREAD_POOLS = (
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)


def _unused(name: str, default: int, at_least: int, kind: ConfigType = ConfigType.INT) -> int:
    return setting(
        default=default,
        at_least=at_least,
        kind=kind,
        update=UpdateMode.CLUSTER_WIDE,
        doc=f"Accepted and shown, without effect: {NO_EFFECT[name]}.",
    )


def _unused_flag(name: str) -> bool:
    return setting(
        default=False, update=UpdateMode.CLUSTER_WIDE, doc=f"Accepted and shown, without effect: {NO_EFFECT[name]}."
    )


@dataclass(frozen=True, kw_only=True, slots=True, init=False, eq=False, repr=False)
class ThreadPoolSettings(QuotaSettings):
    background_threads: int = _unused("background.threads", 10, 1)
    follower_fetch_last_tiered_offset_enable: bool = _unused_flag("follower.fetch.last.tiered.offset.enable")
    group_consumer_assignment_interval_ms: int = _unused("group.consumer.assignment.interval.ms", 1000, 0)
    group_coordinator_cached_buffer_max_bytes: int = _unused(
        "group.coordinator.cached.buffer.max.bytes", 1_048_588, 524_288
    )
    group_share_assignment_interval_ms: int = _unused("group.share.assignment.interval.ms", 1000, 0)
    group_streams_assignment_interval_ms: int = _unused("group.streams.assignment.interval.ms", 1000, 0)
    log_cleaner_io_buffer_load_factor: float = setting(
        default=0.9,
        update=UpdateMode.CLUSTER_WIDE,
        doc=f"Accepted and shown, without effect: {NO_EFFECT['log.cleaner.io.buffer.load.factor']}.",
    )
    log_cleaner_io_buffer_size: int = _unused("log.cleaner.io.buffer.size", 524_288, 0)
    log_cleaner_threads: int = _unused("log.cleaner.threads", 1, 0)
    log_local_retention_bytes: int = _unused("log.local.retention.bytes", -2, -2, ConfigType.LONG)
    log_local_retention_ms: int = _unused("log.local.retention.ms", -2, -2, ConfigType.LONG)
    log_preallocate: bool = _unused_flag("log.preallocate")
    num_io_threads: int = _unused("num.io.threads", 8, 1)
    num_network_threads: int = _unused("num.network.threads", 3, 1)
    num_recovery_threads_per_data_dir: int = _unused("num.recovery.threads.per.data.dir", 2, 1)
    remote_fetch_max_wait_ms: int = _unused("remote.fetch.max.wait.ms", 500, 1)
    remote_list_offsets_request_timeout_ms: int = _unused(
        "remote.list.offsets.request.timeout.ms", 30_000, 1, ConfigType.LONG
    )
    remote_log_index_file_cache_total_size_bytes: int = _unused(
        "remote.log.index.file.cache.total.size.bytes", 1_073_741_824, 1, ConfigType.LONG
    )
    remote_log_manager_copier_thread_pool_size: int = _unused("remote.log.manager.copier.thread.pool.size", 10, 1)
    remote_log_manager_copy_max_bytes_per_second: int = _unused(
        "remote.log.manager.copy.max.bytes.per.second", LONG_MAX, 1, ConfigType.LONG
    )
    remote_log_manager_expiration_thread_pool_size: int = _unused(
        "remote.log.manager.expiration.thread.pool.size", 10, 1
    )
    remote_log_manager_fetch_max_bytes_per_second: int = _unused(
        "remote.log.manager.fetch.max.bytes.per.second", LONG_MAX, 1, ConfigType.LONG
    )
    remote_log_manager_follower_thread_pool_size: int = _unused("remote.log.manager.follower.thread.pool.size", 2, 1)
    remote_log_reader_threads: int = _unused("remote.log.reader.threads", 10, 1)
    share_coordinator_cached_buffer_max_bytes: int = _unused(
        "share.coordinator.cached.buffer.max.bytes", 1_048_588, 524_288
    )
