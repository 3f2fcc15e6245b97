"""Metrics of the transaction coordinator, and of transactions in the partitions of this broker."""

from collections.abc import Callable, Iterator

from tidelog.replication.partition import Partition
from tidelog.server.metrics.metric import Kind, Metric, Read, Sample
from tidelog.server.metrics.reading import Reading
from tidelog.transactions.markers import MarkerSender
from tidelog.transactions.states import TransactionState
from tidelog.transactions.statistics import TransactionCounts

LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000
"""As in Kafka: grace after transaction.max.timeout.ms, after which an open transaction counts as late."""

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
        "Of those, the ones that exceeded their timeout.",
        _counted(lambda counts: counts.timeouts),
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_transaction_markers_pending",
        "Transaction markers that are not written yet, one per partition.",
        _of_markers(lambda markers: markers.pending_count),
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_transaction_markers_oldest_seconds",
        "Age of the oldest of these markers. Read-committed consumers wait for it.",
        _of_markers(lambda markers: markers.oldest_age_s),
    ),
    Metric(
        Kind.GAUGE,
        "kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name=UnknownDestinationQueueSize",
        "Of those, markers of partitions without a leader.",
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
        "Producer ids in the producer state of the partitions of this broker.",
        _producers,
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_transaction_coordinator_load_seconds",
        "Duration of the last load of transactions after an election.",
        _load_seconds,
    ),
)
