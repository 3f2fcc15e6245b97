"""Broker settings, with Kafka 4.3's names, defaults and bounds where Kafka has them."""

import posixpath
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.config.connection_limits import check_overrides_per_ip
from tidelog.config.listener_settings import ListenerSettings
from tidelog.config.listeners import LOOPBACK, parse_address
from tidelog.config.setting import INT_MAX, LONG_MAX, ConfigType, UpdateMode, setting
from tidelog.config.topic import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    DECOMPRESSED_DEFAULT_BYTES,
    DECOMPRESSED_LIMIT_BYTES,
    TIMESTAMP_TYPES,
)

COORDINATION_FILE = "coordination.sqlite"
GENERATED_ID = -1
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class BrokerSettings(ListenerSettings):
    """Built from keywords by code, or by `config.loading` from a file and flags, with all checks."""

    auto_create_topics_enable: bool = setting(
        default=True, doc="Whether a Metadata request creates a topic that does not exist."
    )
    auto_leader_rebalance_enable: bool = setting(
        default=True, doc="Whether the controller elects preferred leaders when leaders are out of balance."
    )
    broker_heartbeat_interval_ms: int = setting(
        default=2000, at_least=1, doc="How often a broker renews its lease in the coordination store."
    )
    broker_id: int = setting(
        default=GENERATED_ID,
        at_least=-1,
        doc="The id of this broker; -1 uses the one in the log directories, or generates a new one.",
    )
    broker_rack: str | None = setting(default=None, doc="The rack of the broker; replicas are spread over racks.")
    broker_session_timeout_ms: int = setting(
        default=9000, at_least=1, doc="A broker that has not renewed its lease for this long is considered dead."
    )
    compression_gzip_level: int = setting(
        default=-1,
        at_least=1,
        at_most=9,
        also_allowed=-1,
        update=UpdateMode.CLUSTER_WIDE,
        doc="The level when compression.type is gzip; -1 is the library's default.",
    )
    compression_lz4_level: int = setting(
        default=9,
        at_least=1,
        at_most=17,
        update=UpdateMode.CLUSTER_WIDE,
        doc="The level when compression.type is lz4.",
    )
    compression_type: str = setting(
        default="producer",
        one_of=COMPRESSION_TYPES,
        update=UpdateMode.CLUSTER_WIDE,
        doc="Compression of stored batches: as sent by the producer, or always this type.",
    )
    compression_zstd_level: int = setting(
        default=3,
        at_least=-131072,
        at_most=22,
        update=UpdateMode.CLUSTER_WIDE,
        doc="The level when compression.type is zstd.",
    )
    connections_max_idle_ms: int = setting(
        default=600_000, kind=ConfigType.LONG, doc="Idle connections are closed after this time."
    )
    controlled_shutdown_enable: bool = setting(
        default=True, doc="Whether a broker that stops first asks the controller to move its leaders to other brokers."
    )
    controlled_shutdown_max_retries: int = setting(
        default=3, doc="How often a stopping broker repeats the request while it still leads partitions."
    )
    controlled_shutdown_retry_backoff_ms: int = setting(
        default=5000, kind=ConfigType.LONG, doc="How long a stopping broker waits before it repeats the request."
    )
    coordination_store: str | None = setting(
        default=None,
        doc="Specific to Tidelog: the SQLite file with the cluster's metadata. Brokers on one machine that use the same"
        f" file form a cluster. Default: `{COORDINATION_FILE}` in the first log directory.",
    )
    default_replication_factor: int = setting(
        default=1, at_least=1, doc="The replication factor of topics that are created without one."
    )
    delete_topic_enable: bool = setting(default=True, doc="Whether topics can be deleted.")
    fetch_max_bytes: int = setting(
        default=57_671_680, at_least=1024, doc="The maximum size of a fetch response, whatever the request allows."
    )
    leader_imbalance_check_interval_seconds: int = setting(
        default=300,
        at_least=1,
        kind=ConfigType.LONG,
        doc="How often the controller checks the balance of leaders; it also does soon after a replica came back.",
    )
    leader_imbalance_per_broker_percentage: int = setting(
        default=10,
        doc="Percentage of a broker's preferred partitions that others may lead before the controller rebalances.",
    )
    log_cleaner_backoff_ms: int = setting(
        default=15_000,
        at_least=0,
        kind=ConfigType.LONG,
        update=UpdateMode.CLUSTER_WIDE,
        doc="How long the cleaner sleeps when there is nothing to clean.",
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        default=134_217_728,
        kind=ConfigType.LONG,
        update=UpdateMode.CLUSTER_WIDE,
        doc="Memory for the keys of the log that is being compacted.",
    )
    log_cleaner_delete_retention_ms: int = setting(
        default=86_400_000,
        at_least=0,
        kind=ConfigType.LONG,
        update=UpdateMode.CLUSTER_WIDE,
        doc="How long a compacted topic keeps the tombstone of a deleted key.",
    )
    log_cleaner_enable: bool = setting(default=True, doc="Whether compacted topics are compacted.")
    log_cleaner_io_max_bytes_per_second: float = setting(
        default=sys.float_info.max,
        update=UpdateMode.CLUSTER_WIDE,
        doc="Bytes per second that the cleaner reads and writes, on average.",
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        default=LONG_MAX,
        at_least=1,
        kind=ConfigType.LONG,
        update=UpdateMode.CLUSTER_WIDE,
        doc="A record older than this is compacted even if the dirty ratio is low.",
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        default=0.5,
        at_least=0,
        at_most=1,
        update=UpdateMode.CLUSTER_WIDE,
        doc="The share of a compacted log that must be dirty before it is cleaned.",
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        default=0,
        at_least=0,
        kind=ConfigType.LONG,
        update=UpdateMode.CLUSTER_WIDE,
        doc="A record younger than this is not compacted.",
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        default=("delete",),
        one_of=CLEANUP_POLICIES,
        update=UpdateMode.CLUSTER_WIDE,
        doc="Cleanup of old records: delete by age and size, compact by key, or both.",
    )
    log_dir: tuple[str, ...] = setting(
        default=("/tmp/tidelog-logs",), doc="The log directory if log.dirs is not set (Kafka: /tmp/kafka-logs)."
    )
    log_dirs: tuple[str, ...] | None = setting(
        default=None, doc="The log directories; each partition is in one of them."
    )
    log_flush_interval_messages: int = setting(
        default=LONG_MAX,
        at_least=1,
        kind=ConfigType.LONG,
        update=UpdateMode.CLUSTER_WIDE,
        doc="A log is flushed after this many records; by default the operating system decides.",
    )
    log_flush_interval_ms: int | None = setting(
        default=None,
        kind=ConfigType.LONG,
        update=UpdateMode.CLUSTER_WIDE,
        doc="A log is flushed after this time; default: log.flush.scheduler.interval.ms.",
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        default=60_000, at_least=0, doc="Interval of writing recovery-point-offset-checkpoint."
    )
    log_flush_scheduler_interval_ms: int = setting(
        default=LONG_MAX, kind=ConfigType.LONG, doc="Interval of checking whether a log must be flushed."
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        default=60_000, at_least=0, doc="Interval of writing log-start-offset-checkpoint."
    )
    log_index_interval_bytes: int = setting(
        default=4096,
        at_least=0,
        update=UpdateMode.CLUSTER_WIDE,
        doc="Bytes between two entries of the offset index.",
    )
    log_index_size_max_bytes: int = setting(
        default=10_485_760,
        at_least=4,
        update=UpdateMode.CLUSTER_WIDE,
        doc="The size of an index at which its segment is rolled.",
    )
    log_message_timestamp_after_max_ms: int = setting(
        default=3_600_000,
        at_least=0,
        kind=ConfigType.LONG,
        update=UpdateMode.CLUSTER_WIDE,
        doc="How far ahead of the broker's clock a record's own timestamp may be.",
    )
    log_message_timestamp_before_max_ms: int = setting(
        default=LONG_MAX,
        at_least=0,
        kind=ConfigType.LONG,
        update=UpdateMode.CLUSTER_WIDE,
        doc="How far behind the broker's clock a record's own timestamp may be.",
    )
    log_message_timestamp_type: str = setting(
        default="CreateTime",
        one_of=TIMESTAMP_TYPES,
        update=UpdateMode.CLUSTER_WIDE,
        doc="Whether records keep the producer's timestamp or get the time of their append.",
    )
    log_retention_bytes: int = setting(
        default=-1,
        kind=ConfigType.LONG,
        update=UpdateMode.CLUSTER_WIDE,
        doc="Old segments are deleted while a partition is larger than this; -1: no limit.",
    )
    log_retention_check_interval_ms: int = setting(
        default=300_000, at_least=1, kind=ConfigType.LONG, doc="Interval of checking for segments to delete."
    )
    log_retention_hours: int = setting(
        default=168, doc="The age at which segments are deleted, if neither log.retention.ms nor .minutes is set."
    )
    log_retention_minutes: int | None = setting(
        default=None, doc="The age at which segments are deleted, if log.retention.ms is not set."
    )
    log_retention_ms: int | None = setting(
        default=None,
        kind=ConfigType.LONG,
        update=UpdateMode.CLUSTER_WIDE,
        doc="The age at which segments are deleted; -1: no limit.",
    )
    log_roll_hours: int = setting(
        default=168, at_least=1, doc="The age at which a segment is rolled, if log.roll.ms is not set."
    )
    log_roll_jitter_hours: int = setting(
        default=0, at_least=0, doc="How much earlier a segment may be rolled, if log.roll.jitter.ms is not set."
    )
    log_roll_jitter_ms: int | None = setting(
        default=None,
        kind=ConfigType.LONG,
        update=UpdateMode.CLUSTER_WIDE,
        doc="Segments are rolled up to this much earlier, by a different amount for each log.",
    )
    log_roll_ms: int | None = setting(
        default=None,
        kind=ConfigType.LONG,
        update=UpdateMode.CLUSTER_WIDE,
        doc="The age at which a segment is rolled even if it is not full.",
    )
    log_segment_bytes: int = setting(
        default=1_073_741_824,
        at_least=1_048_576,
        update=UpdateMode.CLUSTER_WIDE,
        doc="The size at which a segment is rolled.",
    )
    log_segment_delete_delay_ms: int = setting(
        default=60_000,
        at_least=0,
        kind=ConfigType.LONG,
        update=UpdateMode.CLUSTER_WIDE,
        doc="How long the files of a deleted segment stay on disk.",
    )
    max_connections_per_ip: int = setting(
        default=INT_MAX,
        at_least=0,
        update=UpdateMode.CLUSTER_WIDE,
        doc="The maximum number of connections from one address.",
    )
    max_connections_per_ip_overrides: str = setting(
        default="",
        update=UpdateMode.CLUSTER_WIDE,
        doc="Other limits for some addresses: `address:count,address:count`; names of hosts are not accepted.",
        check=check_overrides_per_ip,
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        default=1000, at_least=0, doc="The maximum number of fetch sessions of consumers and followers."
    )
    message_max_bytes: int = setting(
        default=1_048_588,
        at_least=0,
        update=UpdateMode.CLUSTER_WIDE,
        doc="The maximum size of a record batch, after compression.",
    )
    message_max_decompressed_bytes: int = setting(
        default=DECOMPRESSED_DEFAULT_BYTES,
        at_least=1024,
        at_most=DECOMPRESSED_LIMIT_BYTES,
        update=UpdateMode.CLUSTER_WIDE,
        doc="Specific to Tidelog: the maximum decompressed size of a batch; default for topics.",
    )
    metrics_basic_auth: str | None = setting(
        default=None,
        kind=ConfigType.PASSWORD,
        doc="Specific to Tidelog: `NAME:PASSWORD` that the metrics page asks for (HTTP basic authentication).",
    )
    metrics_listener: str | None = setting(
        default=None,
        doc="Specific to Tidelog: the address `host:port` at which the broker serves Prometheus metrics, as `/metrics`."
        " An empty host means loopback, 0.0.0.0 every interface. Without this setting there are no metrics.",
    )
    metrics_ssl_enable: bool = setting(
        default=False,
        doc="Specific to Tidelog: whether metrics are served over TLS, with the certificate of `ssl.keystore...`.",
    )
    min_insync_replicas: int = setting(
        default=1,
        at_least=1,
        update=UpdateMode.CLUSTER_WIDE,
        doc="A write with acks=all is rejected while fewer replicas than this are in sync.",
    )
    node_id: int = setting(default=GENERATED_ID, at_least=-1, doc="Alias of broker.id.")
    num_partitions: int = setting(
        default=1, at_least=1, doc="The number of partitions of topics that are created without one."
    )
    num_replica_fetchers: int = setting(
        default=1,
        at_least=1,
        update=UpdateMode.CLUSTER_WIDE,
        doc="Fetcher connections to each leader.",
    )
    producer_id_expiration_check_interval_ms: int = setting(
        default=600_000, at_least=1, doc="Interval of checking for expired producer ids."
    )
    producer_id_expiration_ms: int = setting(
        default=86_400_000,
        at_least=1,
        update=UpdateMode.CLUSTER_WIDE,
        doc="A producer id that has not written to a partition for this long expires there.",
    )
    queued_max_request_bytes: int = setting(
        default=104_857_600,
        kind=ConfigType.LONG,
        doc="Maximum bytes of incomplete and pending requests of all connections together. Above it the broker stops"
        " reading such requests until others are done, and closes connections that send nothing meanwhile; other"
        " brokers are exempt. -1: no limit.",
    )
    replica_fetch_backoff_ms: int = setting(
        default=1000,
        at_least=0,
        doc="The maximum backoff of a follower after an error; the first retries are sooner.",
    )
    replica_fetch_max_bytes: int = setting(
        default=1_048_576,
        at_least=0,
        doc="Bytes that a follower fetches per partition; the first batch is returned even if it is larger.",
    )
    replica_fetch_min_bytes: int = setting(default=1, doc="Minimum bytes of a response to a follower's fetch.")
    replica_fetch_response_max_bytes: int = setting(
        default=10_485_760,
        at_least=0,
        doc="Bytes that a follower fetches per request; the first batch is returned even if it is larger.",
    )
    replica_fetch_wait_max_ms: int = setting(
        default=500, doc="How long the leader may delay an empty response to a follower's fetch."
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        default=5000, at_least=1, kind=ConfigType.LONG, doc="Interval of writing replication-offset-checkpoint."
    )
    replica_lag_time_max_ms: int = setting(
        default=30_000,
        at_least=1,
        kind=ConfigType.LONG,
        doc="A follower that has not caught up with its leader for this long is removed from the ISR.",
    )
    replica_selector_class: str | None = setting(
        default=None,
        one_of=(LEADER_SELECTOR, RACK_AWARE_SELECTOR),
        doc="Where consumers read (KIP-392): at the leader, or with RackAwareReplicaSelector in their client.rack.",
    )
    replica_socket_timeout_ms: int = setting(
        default=30_000,
        at_least=1,
        doc="A follower reconnects to a leader that has not answered for this long.",
    )
    reserved_broker_max_id: int = setting(
        default=1000, at_least=0, doc="Generated broker ids start above this one (Kafka 3.9)."
    )
    socket_listen_backlog_size: int = setting(
        default=1024,
        at_least=1,
        doc="Backlog of connections that wait to be accepted; further connections are retried by the client after a"
        " second. Kafka's default of 50 is exceeded when many clients turn to another broker at once.",
    )
    socket_receive_buffer_bytes: int = setting(
        default=102_400, doc="The receive buffer of a connection's socket; -1 is the operating system's default."
    )
    socket_request_max_bytes: int = setting(
        default=104_857_600,
        at_least=1,
        doc="The maximum size of a request; the connection is closed if it is exceeded.",
    )
    socket_send_buffer_bytes: int = setting(
        default=102_400, doc="The send buffer of a connection's socket; -1 is the operating system's default."
    )
    takeover_wait_ms: int = setting(
        default=60_000,
        at_least=0,
        kind=ConfigType.LONG,
        doc="Specific to Tidelog: how long a broker that starts with an empty coordination store waits for other"
        " brokers that held replicas. See `unclean.takeover.enable`.",
    )
    tracing_endpoint: str | None = setting(
        default=None,
        doc="Specific to Tidelog: the URL of an OpenTelemetry collector (OTLP over HTTP, such as"
        " `http://127.0.0.1:4318/v1/traces`), which gets a span for each request. Needs `tidelog[tracing]`. Without"
        " this setting there are no traces.",
    )
    unclean_leader_election_enable: bool = setting(
        default=False,
        update=UpdateMode.CLUSTER_WIDE,
        doc="Whether a replica outside the ISR may become leader, which loses records.",
    )
    unclean_takeover_enable: bool = setting(
        default=False,
        doc="Specific to Tidelog: whether brokers that start with an empty coordination store take over the existing"
        " log directories although some are missing, which may lose records. Set it for one start only.",
    )
    zookeeper_connect: str | None = setting(
        default=None,
        doc="The ZooKeeper servers with the cluster's metadata, `host:port,host:port/chroot` (Kafka 3.9). Default: the"
        " file of `coordination.store`.",
    )
    zookeeper_connection_timeout_ms: int | None = setting(
        default=None,
        doc="How long a starting broker waits for ZooKeeper; default: zookeeper.session.timeout.ms (Kafka 3.9).",
    )
    zookeeper_session_timeout_ms: int = setting(
        default=18_000, doc="A broker that ZooKeeper has not heard from for this long is considered dead (Kafka 3.9)."
    )

    originals: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Values that were set by file or flags, by Kafka's name. DescribeConfigs distinguishes them from defaults."""

    @property
    def log_directories(self) -> tuple[str, ...]:
        return self.log_dirs or self.log_dir

    @property
    def configured_broker_id(self) -> int | None:
        """broker.id or node.id, whichever is set; None if the broker must find its id."""
        return next((given for given in (self.broker_id, self.node_id) if given != GENERATED_ID), None)

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        if not self.metrics_listener:
            return None
        host, port = parse_address(self.metrics_listener)
        return host or LOOPBACK, port

    @property
    def has_metrics_without_host(self) -> bool:
        """True if `metrics.listener` names no host: metrics are then served on the loopback interface."""
        return bool(self.metrics_listener) and not parse_address(self.metrics_listener or "")[0]

    @property
    def session_timeout_ms(self) -> int:
        """After this time without a heartbeat the store considers a broker dead."""
        return self.zookeeper_session_timeout_ms if self.zookeeper_connect else self.broker_session_timeout_ms

    @property
    def coordination_store_path(self) -> str:
        return self.coordination_store or posixpath.join(self.log_directories[0], COORDINATION_FILE)
