"""Report on the state of a cluster: the verdict, then what is wrong, worst first, then brokers and partitions."""

# Core: no clock, no I/O, no await.

from collections.abc import Callable, Sequence
from enum import IntEnum

from tidelog.cli.local_cluster.view import (
    BrokerState,
    BrokerView,
    ClusterView,
    PartitionView,
    broker_lines,
    is_internal,
    partition_lines,
)
from tidelog.terminal.plurals import plural
from tidelog.types import BrokerId, TopicPartition

NAMES_SHOWN = 5
PARTITIONS_SHOWN = 30
GONE = (BrokerState.DOWN, BrokerState.SILENT, BrokerState.PAUSED)
STATE_TEXTS = {
    BrokerState.DOWN: "is down",
    BrokerState.SILENT: "does not answer",
    BrokerState.PAUSED: "is paused (SIGSTOP)",
    BrokerState.STARTING: "is starting",
    BrokerState.SUSPENDED: "is suspended",
}


class Health(IntEnum):
    """The exit code of `tidelog status`."""

    HEALTHY = 0
    DEGRADED = 1  # everything can be written, but something is missing
    NOT_WRITABLE = 2  # some partition takes no writes with acks=all


Remedy = Callable[[BrokerId], str]
"""What to do about a broker that is gone."""


def health_of(view: ClusterView) -> Health:
    if view.cluster_id is None or any(not each.is_writable for each in view.partitions):
        return Health.NOT_WRITABLE
    has_trouble = (
        view.controller is None
        or any(each.state is not BrokerState.UP for each in view.brokers)
        or any(not each.is_healthy for each in view.partitions)
        or any(view.offline_directories.values())
    )
    return Health.DEGRADED if has_trouble else Health.HEALTHY


def as_text(view: ClusterView, remedy: Remedy | None = None, limit: int | None = PARTITIONS_SHOWN) -> list[str]:
    """`limit`: partitions that are listed at most; None for all, internal ones too."""
    shown = [each for each in view.partitions if limit is None or not is_internal(each.topic_partition.topic)]
    if any(not each.is_healthy for each in shown) and limit is not None:
        shown = [each for each in shown if not each.is_healthy or each.move is not None]
    if limit is not None:
        shown.sort(key=urgency)
    lines = [*verdict_lines(view), *problem_lines(view, remedy), "", *broker_lines(view)]
    if shown:
        listed = shown if limit is None else shown[:limit]
        lines += [
            "",
            *partition_lines(listed if limit is None else [_briefly(each, view) for each in listed], view.at_ms),
        ]
        if len(listed) < len(shown):
            lines.append(f"... and {plural(len(shown) - len(listed), 'partition')} more; --all lists them")
    return lines


def urgency(partition: PartitionView) -> int:
    """Sort key, worst first: no leader, no writes, too few replicas, healthy."""
    if not partition.has_leader:
        return 0
    if not partition.is_writable:
        return 1
    return 3 if partition.is_healthy else 2


def _briefly(partition: PartitionView, view: ClusterView) -> PartitionView:
    """Without the reasons that are in a line above."""
    gone = {each.broker_id for each in view.brokers if each.state in GONE}
    remaining = [each for each in partition.out_of_sync if partition.has_leader and each.replica not in gone]
    return partition._replace(out_of_sync=remaining)


def verdict_lines(view: ClusterView) -> list[str]:
    """One line: the state, and how much there is."""
    if view.cluster_id is None:
        return ["not writable: no broker answers"]
    counts = view.counts
    if not counts.partitions:
        return [f"{_verdict(view)}: no topics yet"]
    troubles = []
    if counts.without_leader:
        troubles.append(f"{counts.without_leader} without a leader")
    below = sum(each.has_leader and each.is_below_minimum for each in view.partitions)
    if below:
        troubles.append(f"{below} below min.insync.replicas")
    if counts.under_replicated:
        troubles.append(f"{counts.under_replicated} under-replicated")
    state = ", ".join(troubles) or "all in sync"
    if counts.moving:
        state += f"; {counts.moving} being moved"
    if counts.led_by_others and not troubles:
        state += f"; {counts.led_by_others} not led by the preferred replica"
    return [f"{_verdict(view)}: {plural(counts.topics, 'topic')}, {plural(counts.partitions, 'partition')}: {state}"]


def _verdict(view: ClusterView) -> str:
    return health_of(view).name.lower().replace("_", " ")


def problem_lines(view: ClusterView, remedy: Remedy | None = None) -> list[str]:
    """Partitions without a leader first, then one line for each broker that is gone, then internal topics."""
    if view.cluster_id is None:
        return []
    return [
        *_leaderless_lines(view),
        *_below_minimum_lines(view),
        *(_broker_line(each, view, remedy) for each in view.brokers if each.state is not BrokerState.UP),
        *([] if view.controller is not None else ["There is no controller: an election is under way."]),
        *_internal_lines(view),
    ]


def _leaderless_lines(view: ClusterView) -> list[str]:
    """One line for all partitions with the same reason."""
    by_reason: dict[str, list[TopicPartition]] = {}
    for each in view.partitions:
        if not each.has_leader and not is_internal(each.topic_partition.topic):
            by_reason.setdefault(_reason(each, view), []).append(each.topic_partition)
    return [
        f"{_names(partitions)} {'has' if len(partitions) == 1 else 'have'} no leader: {reason}."
        for reason, partitions in by_reason.items()
    ]


def _reason(partition: PartitionView, view: ClusterView) -> str:
    """Only replicas of the last in-sync set may lead."""
    states = {each.broker_id: each.state for each in view.brokers}
    if partition.is_leader_silent:
        return f"its leader, broker {partition.leader}, does not answer"
    candidates = list(partition.in_sync) or list(partition.replicas)
    gone = [each for each in candidates if states.get(each, BrokerState.DOWN) in GONE]
    suspended = [each for each in candidates if states.get(each) is BrokerState.SUSPENDED]
    offline = [each for each in candidates if view.offline_directories.get(each)]
    if len(gone) == len(candidates):
        return f"{_brokers(gone)} {'is' if len(gone) == 1 else 'are'} down"
    if suspended:
        return f"{_brokers(suspended)} {'is' if len(suspended) == 1 else 'are'} suspended"
    if offline:
        return f"a disk of {_brokers(offline)} is offline"
    return "an election is under way"


def _below_minimum_lines(view: ClusterView) -> list[str]:
    """Partitions that can be read, but not written with acks=all."""
    found = [each for each in view.partitions if each.has_leader and each.is_below_minimum]
    own = [each for each in found if not is_internal(each.topic_partition.topic)]
    if not own:
        return []
    verb = "refuses" if len(own) == 1 else "refuse"
    needed = max(each.min_in_sync for each in own)
    return [f"{_names([each.topic_partition for each in own])} {verb} acks=all: fewer than {needed} in sync."]


def _broker_line(broker: BrokerView, view: ClusterView, remedy: Remedy | None) -> str:
    """What the absence of a broker costs."""
    name = f"Broker {broker.broker_id} {STATE_TEXTS[broker.state]}"
    hosted = [each for each in view.partitions if broker.broker_id in each.replicas]
    leaderless = sum(not each.has_leader and broker.broker_id in (*each.in_sync, each.leader) for each in hosted)
    missing = sum(broker.broker_id not in each.in_sync for each in hosted)
    parts = [f"{plural(leaderless, 'partition')} without a leader"] if leaderless else []
    parts += [f"{plural(missing, 'replica')} missing"] if missing else []
    cost = f": {', '.join(parts)}" if parts else ""
    do = f" {remedy(broker.broker_id)}" if remedy is not None and broker.state is BrokerState.DOWN else ""
    return f"{name}{cost}.{do}"


def _internal_lines(view: ClusterView) -> list[str]:
    """One line for each internal topic that is not healthy."""
    topics: dict[str, list[PartitionView]] = {}
    for each in view.partitions:
        if is_internal(each.topic_partition.topic):
            topics.setdefault(each.topic_partition.topic, []).append(each)
    lines = []
    for topic, partitions in sorted(topics.items()):
        total = len(partitions)
        leaderless = sum(not each.has_leader for each in partitions)
        below = sum(each.has_leader and each.is_below_minimum for each in partitions)
        behind = sum(each.is_under_replicated for each in partitions)
        if leaderless:
            lines.append(f"{topic}: {leaderless} of {total} partitions have no leader.")
        elif below:
            lines.append(f"{topic}: {below} of {total} partitions refuse acks=all.")
        elif behind:
            lines.append(f"{topic}: {behind} of {total} partitions under-replicated.")
    return lines


def _names(partitions: Sequence[TopicPartition]) -> str:
    shown = ", ".join(map(str, partitions[:NAMES_SHOWN]))
    hidden = len(partitions) - NAMES_SHOWN
    return f"{shown} and {hidden:,} more" if hidden > 0 else shown


def _brokers(ids: Sequence[BrokerId]) -> str:
    return f"broker {ids[0]}" if len(ids) == 1 else f"brokers {', '.join(map(str, ids))}"
