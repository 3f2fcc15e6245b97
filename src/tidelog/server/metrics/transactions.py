"""Metrics of transactions: those that this broker coordinates, and those that partitions on it are part of."""

from collections.abc import Callable, Iterator

from tidelog.replication.partition import Partition
from tidelog.server.metrics.metric import Kind, Metric, Read, Sample
from tidelog.server.metrics.reading import Reading
from tidelog.transactions.markers import MarkerSender
from tidelog.transactions.states import TransactionState
from tidelog.transactions.statistics import TransactionCounts

LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000
"""As in Kafka: how long after transaction.max.timeout.ms a transaction must have ended everywhere."""

WRITTEN_STATES = [state for state in TransactionState if state < TransactionState.DEAD]


def _by_state(reading: Reading) -> Iterator[Sample]:
    counts = reading.services.transactions.count_by_state()
    for state in WRITTEN_STATES:
        yield (state.label,), counts[state]


def _counted(figure: Callable[[TransactionCounts], int]) -> Read:
    return lambda reading: [((), figure(reading.services.transactions.counts))]


def _of_markers(figure: Callable[[MarkerSender], float]) -> Read:
    return lambda reading: [((), figure(reading.services.markers))]


def _verification_failures(reading: Reading) -> Iterator[Sample]:
    yield (), reading.services.verifier.failures


def _producers(reading: Reading) -> Iterator[Sample]:
    yield (), sum(len(partition.log.producers.by_id) for partition in reading.partitions)


def _late(reading: Reading) -> Iterator[Sample]:
    longest_ms = reading.services.cluster.settings.transaction_max_timeout_ms + LATE_TRANSACTION_BUFFER_MS
    since_ms = reading.services.clock.now_ms() - longest_ms
    yield (), sum(_has_transaction_from_before(partition, since_ms) for partition in reading.partitions)


def _has_transaction_from_before(partition: Partition, time_ms: int) -> bool:
    if partition.leader is None:
        return False
    timestamp = partition.log.producers.oldest_transaction_timestamp
    return timestamp is not None and 0 <= timestamp < time_ms


def _load_seconds(reading: Reading) -> Iterator[Sample]:
    yield (), reading.services.transactions.topic.last_load_s


TRANSACTION_METRICS: tuple[Metric, ...] = (
    Metric(
        Kind.GAUGE,
        "tidelog_transactional_ids",
        "Transactional ids that this broker coordinates, by the state of their transaction.",
        _by_state,
        ("state",),
    ),
    Metric(
        Kind.COUNTER,
        "tidelog_transactions_committed_total",
        "Transactions, and groups of them, that were committed.",
        _counted(lambda counts: counts.commits),
    ),
    Metric(
        Kind.COUNTER,
        "tidelog_transactions_aborted_total",
        "Transactions, and groups of them, that were aborted.",
        _counted(lambda counts: counts.aborts),
    ),
    Metric(
        Kind.COUNTER,
        "tidelog_transactions_timed_out_total",
        "Of those, the ones that were aborted since they took too long.",
        _counted(lambda counts: counts.timeouts),
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_transaction_markers_pending",
        "Partitions that have not been told yet how a transaction ended.",
        _of_markers(lambda markers: markers.pending_count),
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_transaction_markers_oldest_seconds",
        "For how long the one that waits longest has waited. Readers of committed records wait as well.",
        _of_markers(lambda markers: markers.oldest_age_s),
    ),
    Metric(
        Kind.GAUGE,
        "kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name=UnknownDestinationQueueSize",
        "Of those, partitions without a leader.",
        _of_markers(lambda markers: markers.unknown_destination_count),
    ),
    Metric(
        Kind.COUNTER,
        "tidelog_transaction_verification_failures_total",
        "Partitions led here that were not confirmed as part of a transaction; VerificationFailureRate in Kafka.",
        _verification_failures,
    ),
    Metric(
        Kind.GAUGE,
        "kafka.server:type=ReplicaManager,name=PartitionsWithLateTransactionsCount",
        "Partitions led here with a transaction that should have ended long ago: `tidelog transaction abort` ends it.",
        _late,
    ),
    Metric(
        Kind.GAUGE,
        "kafka.server:type=ReplicaManager,name=ProducerIdCount",
        "Producers that the partitions of this broker remember.",
        _producers,
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_transaction_coordinator_load_seconds",
        "How long it took to load the transactions that this broker took over last.",
        _load_seconds,
    ),
)
