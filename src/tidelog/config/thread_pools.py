"""Dynamic Kafka settings of thread pools and buffers that Tidelog does not have: accepted, kept and shown, unused.

Operators change them at run time with `kafka-configs`; scripts that do must not fail here. Settings that promise
something (a rate, a limit, a certificate) are not accepted this way: `kafka_names` has these.
"""

from dataclasses import dataclass

from tidelog.config.quotas import QuotaSettings
from tidelog.config.setting import ConfigType, UpdateMode, setting

_ONE_LOOP = "one event loop per broker serves all connections and requests"
_CLEANER = "one cleaner compacts one log at a time"
_NO_TIERS = "there is no tiered storage"

NO_EFFECT = {
    "background.threads": "background work runs on the event loop and its workers",
    "group.coordinator.cached.buffer.max.bytes": "coordinators keep no buffers between writes",
    "log.cleaner.io.buffer.load.factor": _CLEANER,
    "log.cleaner.io.buffer.size": _CLEANER,
    "log.cleaner.threads": _CLEANER,
    "num.io.threads": _ONE_LOOP,
    "num.network.threads": _ONE_LOOP,
    "num.recovery.threads.per.data.dir": "the workers of the broker load and recover logs",
    "remote.log.index.file.cache.total.size.bytes": _NO_TIERS,
    "remote.log.manager.copier.thread.pool.size": _NO_TIERS,
    "remote.log.manager.expiration.thread.pool.size": _NO_TIERS,
    "remote.log.manager.follower.thread.pool.size": _NO_TIERS,
    "remote.log.reader.threads": _NO_TIERS,
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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class ThreadPoolSettings(QuotaSettings):
    background_threads: int = _unused("background.threads", 10, 1)
    group_coordinator_cached_buffer_max_bytes: int = _unused(
        "group.coordinator.cached.buffer.max.bytes", 1_048_588, 524_288
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        default=0.9,
        update=UpdateMode.CLUSTER_WIDE,
        doc=f"Accepted and shown, without effect: {NO_EFFECT['log.cleaner.io.buffer.load.factor']}.",
    )
    log_cleaner_io_buffer_size: int = _unused("log.cleaner.io.buffer.size", 524_288, 0)
    log_cleaner_threads: int = _unused("log.cleaner.threads", 1, 0)
    num_io_threads: int = _unused("num.io.threads", 8, 1)
    num_network_threads: int = _unused("num.network.threads", 3, 1)
    num_recovery_threads_per_data_dir: int = _unused("num.recovery.threads.per.data.dir", 2, 1)
    remote_log_index_file_cache_total_size_bytes: int = _unused(
        "remote.log.index.file.cache.total.size.bytes", 1_073_741_824, 1, ConfigType.LONG
    )
    remote_log_manager_copier_thread_pool_size: int = _unused("remote.log.manager.copier.thread.pool.size", 10, 1)
    remote_log_manager_expiration_thread_pool_size: int = _unused(
        "remote.log.manager.expiration.thread.pool.size", 10, 1
    )
    remote_log_manager_follower_thread_pool_size: int = _unused("remote.log.manager.follower.thread.pool.size", 2, 1)
    remote_log_reader_threads: int = _unused("remote.log.reader.threads", 10, 1)
