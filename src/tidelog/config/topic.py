"""Topic settings, with Kafka 4.3's names, defaults and bounds."""

from dataclasses import dataclass

from tidelog.config.quotas import check_throttled_replicas
from tidelog.config.setting import LONG_MAX, ConfigType, SettingsBase, setting
from tidelog.errors import InvalidConfig

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES = ("compact", "delete")

DECOMPRESSED_DEFAULT_BYTES = 64 * 1024 * 1024
DECOMPRESSED_LIMIT_BYTES = 128 * 1024 * 1024
"""Limit of Tidelog's own readers: a topic must not accept records that they cannot read."""

UNSUPPORTED_KAFKA_NAMES = frozenset(
    {
        "internal.segment.bytes",
        "local.retention.bytes",
        "local.retention.ms",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)
"""Not supported: a topic that sets one of these is rejected."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class TopicSettings(SettingsBase):
    """Built from keywords by code; from text, with all checks, by `config.resolution`."""

    cleanup_policy: tuple[str, ...] = setting(
        default=("delete",),
        one_of=CLEANUP_POLICIES,
        broker_names=("log.cleanup.policy",),
        doc="What happens to old records: delete them by age and size, compact them by key, or both.",
    )
    compression_gzip_level: int = setting(
        default=-1,
        at_least=1,
        at_most=9,
        also_allowed=-1,
        broker_names=("compression.gzip.level",),
        doc="The level when compression.type is gzip; -1 is the library's own choice.",
    )
    compression_lz4_level: int = setting(
        default=9,
        at_least=1,
        at_most=17,
        broker_names=("compression.lz4.level",),
        doc="The level when compression.type is lz4.",
    )
    compression_type: str = setting(
        default="producer",
        one_of=COMPRESSION_TYPES,
        broker_names=("compression.type",),
        doc="Compression of stored batches: as sent by the producer, or always this type.",
    )
    compression_zstd_level: int = setting(
        default=3,
        at_least=-131072,
        at_most=22,
        broker_names=("compression.zstd.level",),
        doc="The level when compression.type is zstd.",
    )
    delete_retention_ms: int = setting(
        default=86_400_000,
        at_least=0,
        kind=ConfigType.LONG,
        broker_names=("log.cleaner.delete.retention.ms",),
        doc="How long a compacted topic keeps the tombstone of a deleted key, for slow readers.",
    )
    file_delete_delay_ms: int = setting(
        default=60_000,
        at_least=0,
        kind=ConfigType.LONG,
        broker_names=("log.segment.delete.delay.ms",),
        doc="How long the files of a deleted segment stay on disk.",
    )
    flush_messages: int = setting(
        default=LONG_MAX,
        at_least=1,
        kind=ConfigType.LONG,
        broker_names=("log.flush.interval.messages",),
        doc="The log is flushed after this many records; by default the operating system decides.",
    )
    flush_ms: int = setting(
        default=LONG_MAX,
        at_least=0,
        kind=ConfigType.LONG,
        broker_names=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        doc="The log is flushed after this time; by default the operating system decides.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        default=(),
        check=check_throttled_replicas,
        doc="Replicas whose fetches are limited by `follower.replication.throttled.rate`: `PARTITION:BROKER,...`, or"
        " `*` for all.",
    )
    index_interval_bytes: int = setting(
        default=4096,
        at_least=0,
        broker_names=("log.index.interval.bytes",),
        doc="Bytes between two entries of the offset index.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        default=(),
        check=check_throttled_replicas,
        doc="Replicas of leaders whose responses to out-of-sync followers are limited by"
        " `leader.replication.throttled.rate`: `PARTITION:BROKER,...`, or `*` for all.",
    )
    max_compaction_lag_ms: int = setting(
        default=LONG_MAX,
        at_least=1,
        kind=ConfigType.LONG,
        broker_names=("log.cleaner.max.compaction.lag.ms",),
        doc="A record older than this is compacted even if the dirty ratio is low.",
    )
    max_decompressed_message_bytes: int = setting(
        default=DECOMPRESSED_DEFAULT_BYTES,
        at_least=1024,
        at_most=DECOMPRESSED_LIMIT_BYTES,
        broker_names=("message.max.decompressed.bytes",),
        doc="Specific to Tidelog: the maximum decompressed size of a batch. A batch that exceeds it is rejected: a few"
        " hundred bytes can decompress to gigabytes, in the broker and in its readers.",
    )
    max_message_bytes: int = setting(
        default=1_048_588,
        at_least=0,
        broker_names=("message.max.bytes",),
        doc="The maximum size of a record batch, after compression.",
    )
    message_timestamp_after_max_ms: int = setting(
        default=3_600_000,
        at_least=0,
        kind=ConfigType.LONG,
        broker_names=("log.message.timestamp.after.max.ms",),
        doc="How far ahead of the broker's clock a record's own timestamp may be.",
    )
    message_timestamp_before_max_ms: int = setting(
        default=LONG_MAX,
        at_least=0,
        kind=ConfigType.LONG,
        broker_names=("log.message.timestamp.before.max.ms",),
        doc="How far behind the broker's clock a record's own timestamp may be.",
    )
    message_timestamp_type: str = setting(
        default="CreateTime",
        one_of=TIMESTAMP_TYPES,
        broker_names=("log.message.timestamp.type",),
        doc="Whether records keep the producer's timestamp or get the time of their append.",
    )
    min_cleanable_dirty_ratio: float = setting(
        default=0.5,
        at_least=0,
        at_most=1,
        broker_names=("log.cleaner.min.cleanable.ratio",),
        doc="The share of a compacted log that must be dirty before it is cleaned.",
    )
    min_compaction_lag_ms: int = setting(
        default=0,
        at_least=0,
        kind=ConfigType.LONG,
        broker_names=("log.cleaner.min.compaction.lag.ms",),
        doc="A record younger than this is not compacted.",
    )
    min_insync_replicas: int = setting(
        default=1,
        at_least=1,
        broker_names=("min.insync.replicas",),
        doc="A write with acks=all is rejected while fewer replicas than this are in sync.",
    )
    retention_bytes: int = setting(
        default=-1,
        kind=ConfigType.LONG,
        broker_names=("log.retention.bytes",),
        doc="Old segments are deleted while a partition is larger than this; -1: no limit.",
    )
    retention_ms: int = setting(
        default=604_800_000,
        at_least=-1,
        kind=ConfigType.LONG,
        broker_names=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        doc="Segments whose newest record is older than this are deleted; -1: no limit.",
    )
    segment_bytes: int = setting(
        default=1_073_741_824,
        at_least=1_048_576,
        broker_names=("log.segment.bytes",),
        doc="The size at which a segment is rolled.",
    )
    segment_index_bytes: int = setting(
        default=10_485_760,
        at_least=4,
        broker_names=("log.index.size.max.bytes",),
        doc="The size of an index at which its segment is rolled.",
    )
    segment_jitter_ms: int = setting(
        default=0,
        at_least=0,
        kind=ConfigType.LONG,
        broker_names=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        doc="Segments are rolled up to this much earlier, by a different amount for each log, so that not all roll"
        " at once.",
    )
    segment_ms: int = setting(
        default=604_800_000,
        at_least=1,
        kind=ConfigType.LONG,
        broker_names=("log.roll.ms", "log.roll.hours"),
        doc="The age at which a segment is rolled even if it is not full.",
    )
    unclean_leader_election_enable: bool = setting(
        default=False,
        broker_names=("unclean.leader.election.enable",),
        doc="Whether a replica outside the ISR may become leader, which loses records.",
    )

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """True if retention by time and size applies."""
        return "delete" in self.cleanup_policy


def check_topic_settings(settings: TopicSettings) -> None:
    """Checks that involve several settings."""
    if settings.min_compaction_lag_ms > settings.max_compaction_lag_ms:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({settings.min_compaction_lag_ms})"
            f" > max.compaction.lag.ms ({settings.max_compaction_lag_ms})"
        )
