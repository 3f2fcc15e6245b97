"""Table of all broker metrics, from which `/metrics` and its reference page are generated."""

from collections.abc import Callable, Iterator

from tidelog import __version__
from tidelog.kernels import is_compiled
from tidelog.replication.fetcher import FetcherStatistics
from tidelog.replication.out_of_sync import OutOfSync
from tidelog.replication.partition import Partition
from tidelog.replication.traffic import TopicTraffic
from tidelog.server.metrics.client_quotas import CLIENT_QUOTA_METRICS
from tidelog.server.metrics.groups import GROUP_METRICS
from tidelog.server.metrics.log_directories import LOG_DIRECTORY_METRICS
from tidelog.server.metrics.metric import Kind, Metric, Read, Sample
from tidelog.server.metrics.reading import Reading
from tidelog.server.metrics.replication_quotas import REPLICATION_QUOTA_METRICS
from tidelog.server.metrics.requests import REQUEST_METRICS
from tidelog.server.metrics.transactions import TRANSACTION_METRICS

DELAYED_KINDS = ("Produce", "Fetch", "DeleteRecords")
REPLICA_FETCHERS = "Replica"
"""Kafka's client id of the replica fetchers as a whole."""


def one(figure: Callable[[Reading], float]) -> Read:
    return lambda reading: [((), figure(reading))]


def one_for_fetchers(figure: Callable[[Reading], float]) -> Read:
    return lambda reading: [((REPLICA_FETCHERS,), figure(reading))]


def by_topic(figure: Callable[[TopicTraffic], int]) -> Read:
    """As in Kafka: the total without a label, then each topic."""

    def read(reading: Reading) -> Iterator[Sample]:
        yield ("",), figure(reading.total_traffic)
        for topic, traffic in reading.topic_traffic:
            yield (topic,), figure(traffic)

    return read


def by_partition(figure: Callable[[Partition], int]) -> Read:
    def read(reading: Reading) -> Iterator[Sample]:
        for partition in reading.partitions:
            yield partition.topic_partition, figure(partition)

    return read


def by_fetcher(figure: Callable[[FetcherStatistics], int]) -> Read:
    def read(reading: Reading) -> Iterator[Sample]:
        for fetcher in reading.fetchers.fetchers:
            leader = fetcher.leader
            yield (fetcher.client_id, leader.broker_id, leader.host, leader.port), figure(fetcher)

    return read


def by_delayed_kind(reading: Reading) -> Iterator[Sample]:
    sizes = reading.services.purgatory.sizes
    for kind in DELAYED_KINDS:
        yield (kind,), sizes.get(kind, 0)


def by_listener(reading: Reading) -> Iterator[Sample]:
    for listener, count in reading.connections.count_by_listener().items():
        yield (listener,), count


def lags(reading: Reading) -> Iterator[Sample]:
    for fetcher in reading.fetchers.fetchers:
        for (topic, partition), lag in fetcher.lags.items():
            yield (fetcher.client_id, fetcher.leader.broker_id, topic, partition), lag


def by_replica_out_of_sync(figure: Callable[[OutOfSync], float]) -> Read:
    def read(reading: Reading) -> Iterator[Sample]:
        for partition, found in reading.out_of_sync:
            value = figure(found)
            if value >= 0:
                yield (*partition.topic_partition, found.replica), value

    return read


def reasons_out_of_sync(reading: Reading) -> Iterator[Sample]:
    for partition, found in reading.out_of_sync:
        yield (*partition.topic_partition, found.replica, found.rule, found.remedy), 1


def failing_fetches(reading: Reading) -> Iterator[Sample]:
    for topic_partition, reason in reading.fetchers.failed_partitions.items():
        yield (*topic_partition, reason), 1


def elections(reading: Reading) -> Iterator[Sample]:
    yield (), reading.controller.election_rounds
    yield (), reading.controller.election_time_ms


def _unreadable_batches(reading: Reading) -> Iterator[Sample]:
    services = reading.services
    yield ("cleaner",), services.logs.cleaner.statistics().unreadable_batches
    yield ("groups",), services.groups.topic.skipped_batches
    yield ("transactions",), services.transactions.topic.skipped_batches


TOPIC = ("topic",)
PARTITION = ("topic", "partition")
REPLICA = ("topic", "partition", "replica")
FETCHER = ("clientId", "brokerId", "brokerHost", "brokerPort")


def _replicas(name: str) -> str:
    return f"kafka.server:type=ReplicaManager,name={name}"


def _fetchers(name: str) -> str:
    return f"kafka.server:type=ReplicaFetcherManager,name={name}"


def _controller(name: str) -> str:
    return f"kafka.controller:type=KafkaController,name={name}"


def _traffic(name: str) -> str:
    return f"kafka.server:type=BrokerTopicMetrics,name={name}"


def _log(name: str) -> str:
    return f"kafka.log:type=Log,name={name}"


METRICS: tuple[Metric, ...] = (
    # ---- replicas
    Metric(Kind.GAUGE, _replicas("PartitionCount"), "Partitions on this broker.", one(lambda now: len(now.replicas))),
    Metric(
        Kind.GAUGE,
        _replicas("LeaderCount"),
        "Partitions that this broker leads.",
        one(lambda now: now.replicas.leader_count),
    ),
    Metric(
        Kind.GAUGE,
        _replicas("UnderReplicatedPartitions"),
        "Partitions led here of which not all replicas are in sync.",
        one(lambda now: sum(leader.is_under_replicated for leader in now.replicas.leaderships())),
    ),
    Metric(
        Kind.GAUGE,
        _replicas("UnderMinIsrPartitionCount"),
        "Partitions led here that refuse acks=all: fewer in sync than min.insync.replicas.",
        one(lambda now: sum(not leader.has_enough_in_sync for leader in now.replicas.leaderships())),
    ),
    Metric(
        Kind.GAUGE,
        _replicas("AtMinIsrPartitionCount"),
        "Partitions led here that can lose no further replica without refusing acks=all.",
        one(lambda now: sum(leader.is_at_min_isr for leader in now.replicas.leaderships())),
    ),
    Metric(
        Kind.GAUGE,
        _replicas("ReassigningPartitions"),
        "Partitions led here whose replicas are being reassigned.",
        one(lambda now: sum(each.is_leader and each.is_being_reassigned for each in now.replicas)),
    ),
    Metric(
        Kind.GAUGE,
        _replicas("OfflineReplicaCount"),
        "Partitions of this broker whose log directory has failed.",
        one(lambda now: len(now.replicas.offline_partitions)),
    ),
    Metric(
        Kind.COUNTER,
        _replicas("IsrShrinksPerSec"),
        "Changes that took a replica out of the in-sync replicas.",
        one(lambda now: now.replicas.alter_partition_manager.shrinks),
    ),
    Metric(
        Kind.COUNTER,
        _replicas("IsrExpandsPerSec"),
        "Changes that let a replica back into the in-sync replicas.",
        one(lambda now: now.replicas.alter_partition_manager.expands),
    ),
    Metric(
        Kind.COUNTER,
        _replicas("FailedIsrUpdatesPerSec"),
        "Changes of in-sync replicas that lost to a newer state in the store.",
        one(lambda now: now.replicas.alter_partition_manager.failed_updates),
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_replica_out_of_sync",
        "1 for each replica outside the in-sync replicas of a partition led here: the rule that keeps it out, and what"
        " lets it back.",
        reasons_out_of_sync,
        (*REPLICA, "rule", "remedy"),
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_replica_out_of_sync_since_seconds",
        "When that replica left the in-sync replicas, or this leader was elected without it (Unix time).",
        by_replica_out_of_sync(lambda found: found.since_ms / 1000),
        REPLICA,
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_replica_out_of_sync_behind_offsets",
        "How many offsets that replica lacks, where its leader knows it.",
        by_replica_out_of_sync(lambda found: found.behind),
        REPLICA,
    ),
    # ---- fetching from leaders
    Metric(
        Kind.GAUGE,
        "kafka.server:type=FetcherLagMetrics,name=ConsumerLag",
        "How many offsets this follower is behind its leader.",
        lags,
        ("clientId", "brokerId", *PARTITION),
    ),
    Metric(
        Kind.GAUGE,
        _fetchers("MaxLag"),
        "Maximum lag of all followers on this broker.",
        one_for_fetchers(lambda now: now.fetchers.max_lag),
        ("clientId",),
    ),
    Metric(
        Kind.GAUGE,
        _fetchers("MinFetchRate"),
        "Fetches per second of the slowest fetcher since the last scrape.",
        one_for_fetchers(lambda now: now.lowest_fetch_rate),
        ("clientId",),
    ),
    Metric(
        Kind.GAUGE,
        _fetchers("FailedPartitionsCount"),
        "Partitions that do not follow their leader: given up until it changes, or retried since this broker cannot"
        " write them now.",
        one_for_fetchers(lambda now: len(now.fetchers.failed_partitions)),
        ("clientId",),
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_replica_fetch_failed",
        "1 for each of those partitions, with the reason.",
        failing_fetches,
        (*PARTITION, "reason"),
    ),
    Metric(
        Kind.COUNTER,
        "kafka.server:type=FetcherStats,name=RequestsPerSec",
        "Fetches sent to a leader.",
        by_fetcher(lambda fetcher: fetcher.requests),
        FETCHER,
    ),
    Metric(
        Kind.COUNTER,
        "kafka.server:type=FetcherStats,name=BytesPerSec",
        "Bytes of records fetched from a leader.",
        by_fetcher(lambda fetcher: fetcher.bytes),
        FETCHER,
    ),
    # ---- delayed operations
    Metric(
        Kind.GAUGE,
        "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize",
        "Requests that wait: a Produce for its replicas, a Fetch for records.",
        by_delayed_kind,
        ("delayedOperation",),
    ),
    Metric(
        Kind.GAUGE,
        "kafka.server:type=DelayedOperationPurgatory,name=NumDelayedOperations",
        "The same as PurgatorySize: here each delayed operation has one entry.",
        by_delayed_kind,
        ("delayedOperation",),
    ),
    # ---- the controller
    Metric(
        Kind.GAUGE,
        _controller("ActiveControllerCount"),
        "1 on the active controller.",
        one(lambda now: now.controller.active_controller_count),
    ),
    Metric(
        Kind.GAUGE,
        _controller("ActiveBrokerCount"),
        "Registered brokers; like all cluster metrics, 0 on brokers that are not the controller.",
        one(lambda now: now.controller.active_broker_count),
    ),
    Metric(
        Kind.GAUGE,
        _controller("OfflinePartitionsCount"),
        "Partitions of the cluster without a live leader.",
        one(lambda now: now.controller.offline_partitions_count),
    ),
    Metric(
        Kind.GAUGE,
        _controller("PreferredReplicaImbalanceCount"),
        "Partitions of the cluster whose leader is not the preferred replica.",
        one(lambda now: now.controller.preferred_replica_imbalance_count),
    ),
    Metric(
        Kind.GAUGE,
        _controller("GlobalTopicCount"),
        "Topics of the cluster.",
        one(lambda now: now.controller.global_topic_count),
    ),
    Metric(
        Kind.GAUGE,
        _controller("GlobalPartitionCount"),
        "Partitions of the cluster.",
        one(lambda now: now.controller.global_partition_count),
    ),
    Metric(
        Kind.GAUGE,
        _controller("TopicsToDeleteCount"),
        "Topics that are being deleted.",
        one(lambda now: now.controller.topics_to_delete_count),
    ),
    Metric(
        Kind.GAUGE,
        _controller("TopicsIneligibleToDeleteCount"),
        "Of those, the ones that wait for a dead broker.",
        one(lambda now: now.controller.topics_ineligible_to_delete_count),
    ),
    Metric(
        Kind.SUMMARY,
        "kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs",
        "Events of this controller that elected leaders, and how long they took.",
        elections,
    ),
    Metric(
        Kind.COUNTER,
        "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
        "Partitions that got a leader which may lack records.",
        one(lambda now: now.controller.unclean_elections),
    ),
    Metric(
        Kind.GAUGE,
        "kafka.controller:type=ControllerEventManager,name=EventQueueSize",
        "Events that wait for the controller.",
        one(lambda now: now.services.membership.controller.waiting_events),
    ),
    # ---- traffic
    Metric(
        Kind.COUNTER,
        _traffic("BytesInPerSec"),
        "Bytes of records that clients wrote. Without a label: all topics, deleted ones too.",
        by_topic(lambda traffic: traffic.bytes_in),
        TOPIC,
    ),
    Metric(
        Kind.COUNTER,
        _traffic("BytesOutPerSec"),
        "Bytes of records sent to consumers.",
        by_topic(lambda traffic: traffic.bytes_out),
        TOPIC,
    ),
    Metric(
        Kind.COUNTER,
        _traffic("MessagesInPerSec"),
        "Records that clients wrote.",
        by_topic(lambda traffic: traffic.messages_in),
        TOPIC,
    ),
    Metric(
        Kind.COUNTER,
        _traffic("TotalProduceRequestsPerSec"),
        "Appends, each to one partition.",
        by_topic(lambda traffic: traffic.produces),
        TOPIC,
    ),
    Metric(
        Kind.COUNTER,
        _traffic("FailedProduceRequestsPerSec"),
        "Of those, the ones that failed, without errors that clients handle by retrying.",
        by_topic(lambda traffic: traffic.failed_produces),
        TOPIC,
    ),
    Metric(
        Kind.COUNTER,
        _traffic("TotalFetchRequestsPerSec"),
        "Fetches of consumers and followers, each of one partition.",
        by_topic(lambda traffic: traffic.fetches),
        TOPIC,
    ),
    Metric(
        Kind.COUNTER,
        _traffic("FailedFetchRequestsPerSec"),
        "Of those, the ones that failed, without errors that clients handle by retrying.",
        by_topic(lambda traffic: traffic.failed_fetches),
        TOPIC,
    ),
    Metric(
        Kind.COUNTER,
        _traffic("ReplicationBytesInPerSec"),
        "Bytes of records fetched from leaders.",
        one(lambda now: now.replicas.traffic.replication_bytes_in),
    ),
    Metric(
        Kind.COUNTER,
        _traffic("ReplicationBytesOutPerSec"),
        "Bytes of records sent to followers.",
        one(lambda now: now.replicas.traffic.replication_bytes_out),
    ),
    Metric(
        Kind.COUNTER,
        _traffic("ReassignmentBytesInPerSec"),
        "Of the bytes fetched from leaders, those of replicas that reassignments are adding here.",
        one(lambda now: now.replicas.traffic.reassignment_bytes_in),
    ),
    Metric(
        Kind.COUNTER,
        _traffic("ReassignmentBytesOutPerSec"),
        "Of the bytes sent to followers, those for replicas that reassignments are adding.",
        one(lambda now: now.replicas.traffic.reassignment_bytes_out),
    ),
    *CLIENT_QUOTA_METRICS,
    *REPLICATION_QUOTA_METRICS,
    # ---- logs
    Metric(
        Kind.GAUGE,
        _log("Size"),
        "Log size of a partition in bytes.",
        by_partition(lambda partition: partition.log.size_bytes),
        PARTITION,
    ),
    Metric(
        Kind.GAUGE,
        _log("LogStartOffset"),
        "Log start offset of a partition.",
        by_partition(lambda partition: partition.log.log_start_offset),
        PARTITION,
    ),
    Metric(
        Kind.GAUGE,
        _log("LogEndOffset"),
        "Log end offset of a partition: the offset of the next record.",
        by_partition(lambda partition: partition.log.log_end_offset),
        PARTITION,
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_log_high_watermark_offset",
        "High watermark of a partition: records below it are committed.",
        by_partition(lambda partition: partition.log.high_watermark),
        PARTITION,
    ),
    *LOG_DIRECTORY_METRICS,
    # ---- groups
    *GROUP_METRICS,
    # ---- transactions
    *TRANSACTION_METRICS,
    # ---- requests
    *REQUEST_METRICS,
    # ---- connections and sessions
    Metric(
        Kind.GAUGE,
        "kafka.server:type=socket-server-metrics,name=connection-count",
        "Open connections.",
        by_listener,
        ("listener",),
    ),
    Metric(
        Kind.GAUGE,
        "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
        "Fetch sessions of consumers and followers.",
        one(lambda now: now.fetch_sessions.sessions),
    ),
    Metric(
        Kind.GAUGE,
        "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached",
        "Partitions in fetch sessions.",
        one(lambda now: now.fetch_sessions.partitions),
    ),
    Metric(
        Kind.COUNTER,
        "kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec",
        "Fetch sessions that were evicted.",
        one(lambda now: now.fetch_sessions.evictions),
    ),
    # ---- the broker itself
    Metric(
        Kind.COUNTER,
        "tidelog_unreadable_batches_total",
        "Unreadable batches that were skipped: by the cleaner, which keeps them and counts them at each pass, and while"
        " loading the state of groups or transactions.",
        _unreadable_batches,
        ("by",),
    ),
    Metric(
        Kind.COUNTER,
        "tidelog_long_batches_total",
        "Batches of producers that were validated in slices, since they hold too many records for one loop turn.",
        one(lambda now: now.services.long_checks.batches),
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_kernels_compiled",
        "Whether the record kernels are compiled; 0 means that they run interpreted, about 100 times slower.",
        one(lambda now: int(is_compiled)),
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_broker_fenced",
        "1 while this broker's session may have expired: it does not act as leader.",
        one(lambda now: now.services.is_fenced),
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_build_info",
        "1, with the version.",
        lambda now: [((__version__,), 1)],
        ("version",),
    ),
    Metric(
        Kind.COUNTER,
        "process_cpu_seconds_total",
        "CPU time of the process.",
        one(lambda now: now.process.cpu_s),
    ),
    Metric(
        Kind.GAUGE,
        "process_resident_memory_bytes",
        "Memory of the process, pages of files that it shares included.",
        one(lambda now: now.process.resident_bytes),
    ),
    Metric(
        Kind.GAUGE,
        "process_open_fds",
        "Open files and sockets of the process.",
        one(lambda now: now.process.open_files),
    ),
)
