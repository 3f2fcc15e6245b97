"""Server-side assignors `uniform` and `range` (KIP-848): pure functions of subscriptions and partition counts.

`uniform` gives every member the same number of partitions, as far as subscriptions allow, and moves as few as possible.
`range` splits each topic into ranges in the order of the members, so that equal partitions of co-partitioned topics go
to one member. Both take time proportional to partitions, members and the number of *different* subscriptions, not to
their product.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeAlias

from tidelog.groups.consumer.members import Assignment
from tidelog.types import Uuid

Topics: TypeAlias = frozenset[Uuid]
TopicPartitionId: TypeAlias = tuple[Uuid, int]

MAX_BALANCING_PASSES = 16
"""Limit of balancing passes over all topics. Few are ever needed."""


class Subscriber(NamedTuple):
    member_id: str
    instance_id: str | None
    topics: Topics
    """Existing topics of its subscription. Members with equal subscriptions share one set."""
    current: Assignment
    """Its previous assignment."""


Assignor: TypeAlias = Callable[[Sequence[Subscriber], Mapping[Uuid, int]], dict[str, Assignment]]
"""Function of members and partition counts by topic; the result contains every member."""


def assign_uniform(subscribers: Sequence[Subscriber], partition_counts: Mapping[Uuid, int]) -> dict[str, Assignment]:
    members = sorted(subscribers, key=_order)
    if len({member.topics for member in members}) <= 1:
        shares = _share_equally(members, partition_counts)
    else:
        shares = _Balancing(members, partition_counts).shares()
    return {member_id: _by_topic(share) for member_id, share in shares.items()}


def assign_ranges(subscribers: Sequence[Subscriber], partition_counts: Mapping[Uuid, int]) -> dict[str, Assignment]:
    members_of: dict[Uuid, list[str]] = defaultdict(list)
    shares: dict[str, dict[Uuid, frozenset[int]]] = {}
    for member in sorted(subscribers, key=_order):
        shares[member.member_id] = {}
        for topic_id in member.topics:
            members_of[topic_id].append(member.member_id)
    for topic_id, member_ids in members_of.items():
        quota, extra = divmod(partition_counts[topic_id], len(member_ids))
        start = 0
        for number, member_id in enumerate(member_ids):
            end = start + quota + (number < extra)
            if end == start:
                break
            shares[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return {member_id: dict(share) for member_id, share in shares.items()}


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_ranges}


def _order(member: Subscriber) -> tuple[bool, str, str]:
    """Static members first: their positions do not change when they rejoin with another id."""
    return member.instance_id is None, member.instance_id or "", member.member_id


def _by_topic(share: list[TopicPartitionId]) -> Assignment:
    topics: dict[Uuid, set[int]] = defaultdict(set)
    for topic_id, partition in share:
        topics[topic_id].add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}


def _keep_current(
    members: Sequence[Subscriber], partition_counts: Mapping[Uuid, int]
) -> tuple[dict[str, list[TopicPartitionId]], dict[Uuid, set[int]]]:
    """Partitions that members keep, and partitions without an owner."""
    free = {topic_id: set(range(count)) for topic_id, count in partition_counts.items()}
    shares: dict[str, list[TopicPartitionId]] = {}
    for member in members:
        share = shares[member.member_id] = []
        for topic_id, partitions in member.current.items():
            if topic_id not in member.topics:
                continue
            kept = partitions & free[topic_id]
            free[topic_id] -= kept
            share.extend((topic_id, partition) for partition in sorted(kept))
    return shares, free


def _share_equally(
    members: Sequence[Subscriber], partition_counts: Mapping[Uuid, int]
) -> dict[str, list[TopicPartitionId]]:
    """Assignment for equal subscriptions: numbers of partitions differ by at most one.

    Partitions move only if necessary: members that already have one more keep it.
    """
    if not members:
        return {}
    wanted = {topic_id: partition_counts[topic_id] for topic_id in members[0].topics}
    shares, free = _keep_current(members, wanted)
    quota, extra = divmod(sum(wanted.values()), len(members))
    loose = [(topic_id, partition) for topic_id in sorted(free) for partition in sorted(free[topic_id])]
    room: list[list[TopicPartitionId]] = []
    for share in shares.values():
        if len(share) > quota:
            size = quota + (extra > 0)
            extra -= size - quota
            loose.extend(share[size:])
            del share[size:]
        elif len(share) < quota or extra:
            room.append(share)
    _fill(room, loose, quota)
    return shares


def _fill(room: list[list[TopicPartitionId]], loose: list[TopicPartitionId], quota: int) -> None:
    """Distribute free partitions: first up to the quota, then one more each."""
    heap = [(len(share), number) for number, share in enumerate(room)]
    heapify(heap)
    for partition in loose:
        size, number = heap[0]
        room[number].append(partition)
        heappop(heap)
        if size < quota:
            heappush(heap, (size + 1, number))


class _Balancing:
    """Assignment for different subscriptions: keep, give free partitions to the least loaded, then balance by moves."""

    def __init__(self, members: Sequence[Subscriber], partition_counts: Mapping[Uuid, int]) -> None:
        self._members = members
        self._shares, self._free = _keep_current(members, partition_counts)
        self._loads = [len(self._shares[member.member_id]) for member in members]
        self._least: dict[Topics, list[tuple[int, int]]] = defaultdict(list)
        """By subscription: a heap of (load, member number). Entries with an outdated load are dropped."""
        for number, member in enumerate(members):
            self._least[member.topics].append((self._loads[number], number))
        self._subscriptions: dict[Uuid, list[Topics]] = defaultdict(list)
        for topics, heap in self._least.items():
            heapify(heap)
            for topic_id in topics:
                self._subscriptions[topic_id].append(topics)
        self._owners: dict[Uuid, dict[int, int]] = defaultdict(dict)
        for number, member in enumerate(members):
            for topic_id, partition in self._shares[member.member_id]:
                self._owners[topic_id][partition] = number

    def shares(self) -> dict[str, list[TopicPartitionId]]:
        topic_ids = sorted(self._subscriptions, key=lambda topic_id: (self._width(topic_id), topic_id))
        for topic_id in topic_ids:
            for partition in sorted(self._free[topic_id]):
                self._give(topic_id, partition, self._least_loaded(topic_id))
        for _ in range(MAX_BALANCING_PASSES):
            if not sum(self._even_out(topic_id) for topic_id in topic_ids):
                break
        shares: dict[str, list[TopicPartitionId]] = {member.member_id: [] for member in self._members}
        for topic_id, owners in self._owners.items():
            for partition, number in owners.items():
                shares[self._members[number].member_id].append((topic_id, partition))
        return shares

    def _width(self, topic_id: Uuid) -> int:
        """Number of members that subscribe to the topic: topics with few subscribers are assigned first."""
        return sum(len(self._least[topics]) for topics in self._subscriptions[topic_id])

    def _least_loaded(self, topic_id: Uuid) -> int:
        return min(self._head(topics) for topics in self._subscriptions[topic_id])[1]

    def _head(self, topics: Topics) -> tuple[int, int]:
        heap = self._least[topics]
        while heap[0][0] != self._loads[heap[0][1]]:
            heappop(heap)
        return heap[0]

    def _give(self, topic_id: Uuid, partition: int, number: int) -> None:
        self._owners[topic_id][partition] = number
        self._change_load(number, 1)

    def _change_load(self, number: int, by: int) -> None:
        self._loads[number] += by
        heappush(self._least[self._members[number].topics], (self._loads[number], number))

    def _even_out(self, topic_id: Uuid) -> int:
        """Move partitions of one topic from the most to the least loaded members. Returns the number of moves."""
        owners = self._owners[topic_id]
        most = [(-self._loads[number], partition) for partition, number in owners.items()]
        heapify(most)
        moved = 0
        while most:
            load, partition = heappop(most)
            number = owners[partition]
            if -load != self._loads[number]:
                heappush(most, (-self._loads[number], partition))
                continue
            receiver = self._least_loaded(topic_id)
            if self._loads[number] - self._loads[receiver] < 2:
                break
            self._change_load(number, -1)
            self._give(topic_id, partition, receiver)
            moved += 1
        return moved
