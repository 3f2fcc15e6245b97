"""The settings of group and transaction coordinators: the part of a broker's settings that they read."""

from dataclasses import dataclass

from tidelog.config.setting import INT_MAX, ConfigType, Declaring, UpdateMode, setting

ASSIGNORS = ("uniform", "range")
MIGRATION_POLICIES = ("disabled", "downgrade", "upgrade", "bidirectional")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class CoordinatorSettings(Declaring):
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        default=100,
        at_least=0,
        doc="How long a leader asks again whether a transaction may write while its predecessor is still ending.",
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        default=20,
        at_least=1,
        doc="The longest wait of a leader before it asks again whether a transaction may write; the first are shorter.",
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        default=ASSIGNORS,
        one_of=ASSIGNORS,
        doc="How the coordinator can assign partitions to the members of consumer groups; the first is the default.",
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        default=5000, at_least=1, doc="How often members of consumer groups are told to send heartbeats."
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        default=15_000, at_least=1, doc="The longest heartbeat interval that one consumer group may be given."
    )
    group_consumer_max_session_timeout_ms: int = setting(
        default=60_000, at_least=1, doc="The longest session timeout that one consumer group may be given."
    )
    group_consumer_max_size: int = setting(
        default=INT_MAX, at_least=1, doc="The most members that a consumer group can have."
    )
    group_consumer_migration_policy: str = setting(
        default="bidirectional",
        one_of=MIGRATION_POLICIES,
        doc="Whether a group may change from the classic to the consumer protocol (upgrade) and back (downgrade).",
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        default=5000, at_least=1, doc="The shortest heartbeat interval that one consumer group may be given."
    )
    group_consumer_min_session_timeout_ms: int = setting(
        default=45_000, at_least=1, doc="The shortest session timeout that one consumer group may be given."
    )
    group_consumer_session_timeout_ms: int = setting(
        default=45_000, at_least=1, doc="A member of a consumer group that is silent for this long is removed."
    )
    group_initial_rebalance_delay_ms: int = setting(
        default=3000,
        doc="How long the first rebalance of an empty group waits for more members. `tidelog up` sets 0.",
    )
    group_max_session_timeout_ms: int = setting(
        default=1_800_000, doc="The longest session timeout that a member of a classic group may ask for."
    )
    group_max_size: int = setting(default=INT_MAX, at_least=1, doc="The most members that a classic group can have.")
    group_min_session_timeout_ms: int = setting(
        default=6000, doc="The shortest session timeout that a member of a classic group may ask for."
    )
    offset_metadata_max_bytes: int = setting(
        default=4096, doc="The longest note that a consumer may leave with a committed offset."
    )
    offsets_commit_timeout_ms: int = setting(
        default=5000,
        at_least=1,
        doc="How long a coordinator of groups or of transactions waits for the replicas of what it wrote; then its"
        " clients are told to try again. In Kafka transactions wait for as long as their own timeout says.",
    )
    offsets_retention_check_interval_ms: int = setting(
        default=600_000, at_least=1, kind=ConfigType.LONG, doc="How often to look for committed offsets that are stale."
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
        doc="The replicas of `__consumer_offsets` when it is created. With fewer live brokers there is no coordinator"
        " until there are enough; unless it is left to the default and there is no ZooKeeper: then all that live.",
    )
    offsets_topic_segment_bytes: int = setting(
        default=104_857_600, at_least=1, doc="The size of segments of `__consumer_offsets` when it is created."
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        default=10_000,
        at_least=1,
        doc="How long to wait before a transaction that has taken too long, and could not be aborted, is tried again."
        " Each has a timer of its own: nobody looks for them at intervals, as in Kafka.",
    )
    transaction_max_timeout_ms: int = setting(
        default=900_000, at_least=1, doc="The longest timeout that a producer may give its transactions."
    )
    transaction_partition_verification_enable: bool = setting(
        default=True,
        update=UpdateMode.CLUSTER_WIDE,
        doc="Whether a leader asks the coordinator if a transaction goes on before it takes its first record.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        default=3_600_000, at_least=1, doc="How often to look for transactional ids that can be forgotten."
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
        default=604_800_000, at_least=1, doc="A transactional id that was not used for this long is forgotten."
    )
