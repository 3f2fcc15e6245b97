"""Metrics of the group coordinator."""

from collections.abc import Callable, Iterator

from tidelog.groups.statistics import GroupCounts
from tidelog.replicated.shard import ShardState
from tidelog.server.metrics.metric import Kind, Metric, Read, Sample
from tidelog.server.metrics.reading import Reading

CLASSIC, CONSUMER = "classic", "consumer"
CONSUMER_GROUP_STATES = ("Empty", "Assigning", "Reconciling", "Stable")
PARTITION_STATES = {ShardState.LOADING: "loading", ShardState.ACTIVE: "active", ShardState.FAILED: "failed"}


def _coordinator(name: str) -> str:
    return f"kafka.server:type=group-coordinator-metrics,name={name}"


def _manager(name: str) -> str:
    return f"kafka.coordinator.group:type=GroupMetadataManager,name={name}"


def _counted(figure: Callable[[GroupCounts], int]) -> Read:
    return lambda reading: [((), figure(reading.services.groups.counts))]


def _classic_groups(*states: str) -> Read:
    return lambda reading: [((), reading.groups.count(CLASSIC, *states))]


def _all_groups(reading: Reading) -> Iterator[Sample]:
    yield (), reading.groups.groups.total()


def _offsets(reading: Reading) -> Iterator[Sample]:
    yield (), reading.groups.offsets


def _by_protocol(reading: Reading) -> Iterator[Sample]:
    for protocol in (CLASSIC, CONSUMER):
        yield (protocol,), reading.groups.count(protocol)


def _consumer_groups_by_state(reading: Reading) -> Iterator[Sample]:
    for state in CONSUMER_GROUP_STATES:
        yield (state.lower(),), reading.groups.count(CONSUMER, state)


def _partitions_by_state(reading: Reading) -> Iterator[Sample]:
    counts = reading.services.groups.topic.count_by_state()
    for state, name in PARTITION_STATES.items():
        yield (name,), counts[state]


def _load_seconds(reading: Reading) -> Iterator[Sample]:
    yield (), reading.services.groups.topic.last_load_s


GROUP_METRICS: tuple[Metric, ...] = (
    Metric(
        Kind.GAUGE,
        _coordinator("group-count"),
        "Groups that this broker coordinates, by the protocol of their members.",
        _by_protocol,
        ("protocol",),
    ),
    Metric(
        Kind.GAUGE,
        _coordinator("consumer-group-count"),
        "Of those, groups of the consumer protocol (KIP-848), by their state.",
        _consumer_groups_by_state,
        ("state",),
    ),
    Metric(Kind.GAUGE, _manager("NumGroups"), "Groups of both protocols.", _all_groups),
    Metric(
        Kind.GAUGE,
        _manager("NumGroupsPreparingRebalance"),
        "Classic groups whose members are joining.",
        _classic_groups("PreparingRebalance"),
    ),
    Metric(
        Kind.GAUGE,
        _manager("NumGroupsCompletingRebalance"),
        "Classic groups that wait for the assignment of their leader.",
        _classic_groups("CompletingRebalance"),
    ),
    Metric(
        Kind.GAUGE,
        _manager("NumGroupsStable"),
        "Classic groups whose members have their assignments.",
        _classic_groups("Stable"),
    ),
    Metric(Kind.GAUGE, _manager("NumGroupsEmpty"), "Classic groups without members.", _classic_groups("Empty")),
    Metric(Kind.GAUGE, _manager("NumOffsets"), "Committed offsets of these groups.", _offsets),
    Metric(
        Kind.COUNTER,
        _coordinator("offset-commit-rate"),
        "Offsets that were committed.",
        _counted(lambda counts: counts.commits),
    ),
    Metric(
        Kind.COUNTER,
        _coordinator("offset-expiration-rate"),
        "Offsets that expired after offsets.retention.minutes.",
        _counted(lambda counts: counts.expirations),
    ),
    Metric(
        Kind.COUNTER,
        _coordinator("offset-deletion-rate"),
        "Offsets that were deleted, alone or with their groups.",
        _counted(lambda counts: counts.deletions),
    ),
    Metric(
        Kind.COUNTER,
        _coordinator("group-completed-rebalance-rate"),
        "Completed rebalances of classic groups.",
        _counted(lambda counts: counts.completed_rebalances),
    ),
    Metric(
        Kind.COUNTER,
        _coordinator("consumer-group-rebalance-rate"),
        "Rebalances of groups of the consumer protocol.",
        _counted(lambda counts: counts.consumer_rebalances),
    ),
    Metric(
        Kind.GAUGE,
        _coordinator("num-partitions"),
        "Partitions of __consumer_offsets that this broker coordinates. Groups of failed partitions cannot be used.",
        _partitions_by_state,
        ("state",),
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_group_coordinator_load_seconds",
        "Duration of the last load of groups after an election.",
        _load_seconds,
    ),
)
