"""Settings of group and transaction coordinators, a part of the broker settings."""

from dataclasses import dataclass

from tidelog.config.setting import INT_MAX, ConfigType, SettingsBase, UpdateMode, setting

ASSIGNORS = ("uniform", "range")
MIGRATION_POLICIES = ("disabled", "downgrade", "upgrade", "bidirectional")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class CoordinatorSettings(SettingsBase):
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        default=100,
        at_least=0,
        doc="How long a leader retries the verification of a transaction while the previous one is still ending.",
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        default=20,
        at_least=1,
        doc="The maximum backoff of a leader that retries the verification of a transaction.",
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        default=ASSIGNORS,
        one_of=ASSIGNORS,
        doc="The server-side assignors of consumer groups; the first is the default.",
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        default=5000, at_least=1, doc="The heartbeat interval of members of consumer groups."
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        default=15_000, at_least=1, doc="The maximum heartbeat interval of a single consumer group."
    )
    group_consumer_max_session_timeout_ms: int = setting(
        default=60_000, at_least=1, doc="The maximum session timeout of a single consumer group."
    )
    group_consumer_max_size: int = setting(
        default=INT_MAX, at_least=1, doc="The maximum number of members of a consumer group."
    )
    group_consumer_migration_policy: str = setting(
        default="bidirectional",
        one_of=MIGRATION_POLICIES,
        doc="Whether a group may change from the classic to the consumer protocol (upgrade) and back (downgrade).",
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        default=5000, at_least=1, doc="The minimum heartbeat interval of a single consumer group."
    )
    group_consumer_min_session_timeout_ms: int = setting(
        default=45_000, at_least=1, doc="The minimum session timeout of a single consumer group."
    )
    group_consumer_session_timeout_ms: int = setting(
        default=45_000, at_least=1, doc="A member of a consumer group without a heartbeat for this long is removed."
    )
    group_initial_rebalance_delay_ms: int = setting(
        default=3000,
        doc="How long the first rebalance of an empty group waits for more members. `tidelog up` sets 0.",
    )
    group_max_session_timeout_ms: int = setting(
        default=1_800_000, doc="The maximum session timeout of members of classic groups."
    )
    group_max_size: int = setting(default=INT_MAX, at_least=1, doc="The maximum number of members of a classic group.")
    group_min_session_timeout_ms: int = setting(
        default=6000, doc="The minimum session timeout of members of classic groups."
    )
    offset_metadata_max_bytes: int = setting(
        default=4096, doc="The maximum length of the metadata of a committed offset."
    )
    offsets_commit_timeout_ms: int = setting(
        default=5000,
        at_least=1,
        doc="How long a group or transaction coordinator waits for its writes to be replicated; then clients get a"
        " retriable error. In Kafka, transactions wait as long as their own timeout.",
    )
    offsets_retention_check_interval_ms: int = setting(
        default=600_000, at_least=1, kind=ConfigType.LONG, doc="Interval of checking for expired committed offsets."
    )
    offsets_retention_minutes: int = setting(
        default=10_080, at_least=1, doc="How long the offsets of a group without members are kept."
    )
    offsets_topic_num_partitions: int = setting(
        default=50, at_least=1, doc="The partitions of `__consumer_offsets` when it is created."
    )
    offsets_topic_replication_factor: int = setting(
        default=3,
        at_least=1,
        kind=ConfigType.SHORT,
        doc="The replication factor of `__consumer_offsets` when it is created. With fewer live brokers there is no"
        " coordinator; but if this is left at the default and there is no ZooKeeper, all live brokers are used.",
    )
    offsets_topic_segment_bytes: int = setting(
        default=104_857_600, at_least=1, doc="The size of segments of `__consumer_offsets` when it is created."
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        default=10_000,
        at_least=1,
        doc="How long to wait before the abort of a timed-out transaction is retried. Each transaction has its own"
        " timer; there is no periodic scan, as in Kafka.",
    )
    transaction_max_timeout_ms: int = setting(
        default=900_000, at_least=1, doc="The maximum transaction timeout of a producer."
    )
    transaction_partition_verification_enable: bool = setting(
        default=True,
        update=UpdateMode.CLUSTER_WIDE,
        doc="Whether a leader verifies with the coordinator that a transaction is ongoing before its first record.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        default=3_600_000, at_least=1, doc="Interval of checking for expired transactional ids."
    )
    transaction_state_log_min_isr: int = setting(
        default=2,
        at_least=1,
        doc="`min.insync.replicas` of `__transaction_state` when it is created; never more than it has replicas.",
    )
    transaction_state_log_num_partitions: int = setting(
        default=50, at_least=1, doc="The partitions of `__transaction_state` when it is created."
    )
    transaction_state_log_replication_factor: int = setting(
        default=3,
        at_least=1,
        kind=ConfigType.SHORT,
        doc="The replicas of `__transaction_state` when it is created, as for offsets.topic.replication.factor.",
    )
    transaction_state_log_segment_bytes: int = setting(
        default=104_857_600, at_least=1, doc="The size of segments of `__transaction_state` when it is created."
    )
    transactional_id_expiration_ms: int = setting(
        default=604_800_000, at_least=1, doc="A transactional id that was not used for this long expires."
    )
