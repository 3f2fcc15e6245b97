"""Timeline: the latest events of the cluster, in sentences, found by comparing snapshots."""

# Core: no clock, no I/O, no await.

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from tidelog.console.snapshot import BrokerState, PartitionState, Snapshot
from tidelog.types import BrokerId, TopicPartition

MAX_EVENTS = 5_000
MAX_AGE_MS = 3_600_000
MAX_SINGLE_EVENTS = 12
"""Of one kind between two snapshots; more are summed up in one sentence."""


class Kind(StrEnum):
    BROKER = "broker"
    BROKER_UP = "broker up"
    CONTROLLER = "controller"
    ELECTION = "election"
    LEADERLESS = "leaderless"
    SHRINK = "shrink"
    EXPAND = "expand"
    MOVE = "move"
    TOPIC = "topic"
    REBALANCE = "rebalance"
    GROUP = "group"
    CHANGE = "change"  # made with this console


class Event(NamedTuple):
    number: int
    at_ms: int
    kind: Kind
    text: str
    topic: str | None = None
    partition: int | None = None


class Finding(NamedTuple):
    kind: Kind
    text: str
    where: TopicPartition | None = None


class Timeline:
    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._last = 0

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def add(self, at_ms: int, findings: Iterable[Finding]) -> list[Event]:
        while self._events and self._events[0].at_ms < at_ms - MAX_AGE_MS:
            self._events.popleft()
        added = []
        for kind, text, where in findings:
            self._last += 1
            topic, partition = where or (None, None)
            added.append(Event(self._last, at_ms, kind, text, topic, partition))
        self._events.extend(added)
        return added

    def observe(self, before: Snapshot, after: Snapshot) -> list[Event]:
        """The events that led from one snapshot to the next. The first snapshot of all has none."""
        if before.cluster_id is None or before.cluster_id != after.cluster_id:
            return []
        return self.add(after.at_ms, _events(before, after))

    def note(self, at_ms: int, kind: Kind, text: str) -> list[Event]:
        return self.add(at_ms, [Finding(kind, text)])


def _events(before: Snapshot, after: Snapshot) -> Iterator[Finding]:
    yield from _broker_events(before, after)
    if before.controller != after.controller:
        yield Finding(Kind.CONTROLLER, f"Controller: {_broker(before.controller)} -> {_broker(after.controller)}.")
    yield from _topic_events(before, after)
    found = [
        event
        for where, partition in after.partitions.items()
        if (earlier := before.partitions.get(where)) is not None and earlier != partition
        for event in _partition_events(where, earlier, partition)
    ]
    for kind in Kind:
        of_kind = [event for event in found if event.kind is kind]
        yield from of_kind if len(of_kind) <= MAX_SINGLE_EVENTS else [_summary(kind, of_kind)]


def _broker_events(before: Snapshot, after: Snapshot) -> Iterator[Finding]:
    if before.brokers == after.brokers:
        return
    led = Counter(partition.leader for partition in before.partitions.values())
    for broker_id, broker in after.brokers.items():
        earlier = before.brokers.get(broker_id, BrokerState(None, None, None))
        if broker.is_up and not earlier.is_up:
            yield Finding(Kind.BROKER_UP, f"Broker {broker_id} is up at {broker.host}:{broker.port}.")
        elif earlier.is_up and not broker.is_up:
            count = _count(led[broker_id], "partition")
            yield Finding(Kind.BROKER, f"Broker {broker_id} is gone. It led {count}.")


def _topic_events(before: Snapshot, after: Snapshot) -> Iterator[Finding]:
    for topic in sorted(after.topics - before.topics):
        yield Finding(Kind.TOPIC, f"Topic {topic} was created.")
    for topic in sorted(before.topics - after.topics):
        yield Finding(Kind.TOPIC, f"Topic {topic} was deleted.")


def _partition_events(where: TopicPartition, before: PartitionState, after: PartitionState) -> Iterator[Finding]:
    if before.leader != after.leader and after.leader is None:
        yield Finding(Kind.LEADERLESS, f"{where} has no leader: it can be neither read nor written.", where)
    elif before.leader != after.leader:
        epoch = after.leader_epoch
        yield Finding(Kind.ELECTION, f"{where}: leader {_name(before.leader)} -> {after.leader}, epoch {epoch}.", where)
    left = [replica for replica in before.in_sync if replica not in after.in_sync and replica in after.replicas]
    joined = [replica for replica in after.in_sync if replica not in before.in_sync]
    if left:
        yield Finding(Kind.SHRINK, f"{where}: {_brokers(left)} fell out of sync.", where)
    if joined:
        yield Finding(Kind.EXPAND, f"{where}: {_brokers(joined)} back in sync.", where)
    if set(before.replicas) != set(after.replicas):
        old, new = (",".join(map(str, replicas)) for replicas in (before.replicas, after.replicas))
        yield Finding(Kind.MOVE, f"{where}: replicas {old} -> {new}.", where)


_SUMMARIES = {
    Kind.ELECTION: "{} changed leader.",
    Kind.LEADERLESS: "{} lost their leader: they can be neither read nor written.",
    Kind.SHRINK: "{} lost in-sync replicas.",
    Kind.EXPAND: "{} got in-sync replicas back.",
    Kind.MOVE: "{} changed replicas.",
}


def _summary(kind: Kind, found: list[Finding]) -> Finding:
    return Finding(kind, _SUMMARIES[kind].format(_count(len(found), "partition")))


def _broker(broker_id: BrokerId | None) -> str:
    return "none" if broker_id is None else f"broker {broker_id}"


def _name(broker_id: BrokerId | None) -> str:
    return "none" if broker_id is None else str(broker_id)


def _brokers(ids: list[BrokerId]) -> str:
    return f"replica {ids[0]}" if len(ids) == 1 else f"replicas {', '.join(map(str, ids))}"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
