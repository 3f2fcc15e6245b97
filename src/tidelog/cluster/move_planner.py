"""Plans for moving replicas: balance the brokers, drain some of them, or fill new ones, with few moves.

A plan never has two replicas of a partition on one broker, never gives a rack more replicas of a partition than it
must, and keeps the number of preferred leaders of the brokers even. Replicas on brokers that are down stay where they
are, unless such a broker is drained.
"""

# Core: no clock, no I/O, no await.

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from tidelog.types import BrokerId, TopicPartition

BYTES_TOLERANCE_PERCENT = 5
"""Brokers whose bytes differ by less than this part of the mean are balanced: copying more would not pay."""

Replicas: TypeAlias = tuple[BrokerId, ...]
Plan: TypeAlias = dict[TopicPartition, Replicas]
"""The new replicas of the partitions that change, the preferred leader first."""


class Goal(StrEnum):
    COUNT = "count"  # the same number of replicas on every broker
    BYTES = "bytes"  # the same number of bytes on every broker
    RACK = "rack"  # the replicas of each partition on as many racks as possible


class PartitionLoad(NamedTuple):
    replicas: Replicas
    size_bytes: int = 0


class ClusterLoad(NamedTuple):
    racks: Mapping[BrokerId, str | None]
    """Live brokers."""
    partitions: Mapping[TopicPartition, PartitionLoad]


class CannotPlan(Exception):
    """The message says why, and what to do."""


def plan_moves(
    cluster: ClusterLoad,
    goal: Goal = Goal.COUNT,
    *,
    drained: Collection[BrokerId] = (),
    added: Collection[BrokerId] = (),
    movable: Collection[TopicPartition] | None = None,
) -> Plan:
    """Drained brokers end up without replicas, and nothing else moves. Added brokers get their share, and only they.

    With neither, all live brokers are balanced. Partitions that are not `movable` count, but stay.
    """
    draft = _Draft(cluster, goal, drained, cluster.partitions.keys() if movable is None else movable)
    if drained:
        draft.drain()
    elif goal is Goal.RACK:
        draft.spread_over_racks(added or draft.brokers)
    else:
        draft.balance(added or draft.brokers)
    is_partial = bool(drained or added or goal is Goal.RACK)
    draft.balance_leaders(draft.plan() if is_partial else draft.movable)
    return draft.plan()


class _Draft:
    """Replicas as planned so far, with the load of each broker."""

    def __init__(
        self, cluster: ClusterLoad, goal: Goal, drained: Collection[BrokerId], movable: Iterable[TopicPartition]
    ) -> None:
        self._before = cluster.partitions
        self._drained = frozenset(drained)
        self.brokers = sorted(cluster.racks.keys() - self._drained)
        self.movable = sorted(movable)
        self._replicas = {each: list(load.replicas) for each, load in cluster.partitions.items()}
        self._is_by_bytes = goal is Goal.BYTES
        self._weights = {each: load.size_bytes if self._is_by_bytes else 1 for each, load in cluster.partitions.items()}
        # Rack awareness needs a rack for every broker, as for new partitions.
        self._rack_of = {} if None in cluster.racks.values() else cluster.racks
        self._load: Counter[BrokerId] = Counter(dict.fromkeys(self.brokers, 0))
        self._hosted: dict[BrokerId, set[TopicPartition]] = {each: set() for each in self.brokers}
        for topic_partition, replicas in self._replicas.items():
            for broker in replicas:
                self._load[broker] += self._weights[topic_partition]
                self._hosted.setdefault(broker, set()).add(topic_partition)
        moving = set(self.movable)
        self._movable_by_size = {
            broker: sorted(hosted & moving, key=lambda each: (self._before[each].size_bytes, each))
            for broker, hosted in self._hosted.items()
        }

    def plan(self) -> Plan:
        return {
            each: tuple(replicas)
            for each, replicas in sorted(self._replicas.items())
            if tuple(replicas) != self._before[each].replicas
        }

    def drain(self) -> None:
        """The largest first, so that the small ones even out the rest."""
        leaving = [each for each in self.movable if not self._drained.isdisjoint(self._replicas[each])]
        for topic_partition in sorted(leaving, key=lambda each: -self._before[each].size_bytes):
            for source in sorted(self._drained.intersection(self._replicas[topic_partition])):
                self._move(topic_partition, source, self._target_for(topic_partition, source))

    def _target_for(self, topic_partition: TopicPartition, source: BrokerId) -> BrokerId:
        free = [each for each in self.brokers if each not in self._replicas[topic_partition]]
        if not free:
            count = len(self._replicas[topic_partition])
            raise CannotPlan(
                f"{topic_partition} has {count} replicas, and fewer other brokers are up. Start a new broker first,"
                " or lower the number of replicas with a plan file"
            )
        return min(free, key=lambda each: (self._sharing(topic_partition, source, each), self._load[each], each))

    def spread_over_racks(self, receivers: Collection[BrokerId]) -> None:
        for topic_partition in self.movable:
            while (best := self._best_spread(topic_partition, receivers)) is not None:
                self._move(topic_partition, *best)

    def _best_spread(
        self, topic_partition: TopicPartition, receivers: Collection[BrokerId]
    ) -> tuple[BrokerId, BrokerId] | None:
        replicas = self._replicas[topic_partition]
        now = self._sharing(topic_partition)
        choices = [
            (self._sharing(topic_partition, source, target), self._load[target] - self._load[source], source, target)
            for source in replicas
            for target in receivers
            if source in self._rack_of and target not in replicas
        ]
        best = min(choices, default=None)
        return None if best is None or best[0] >= now else best[2:]

    def balance(self, receivers: Collection[BrokerId]) -> None:
        mean = sum(self._load[each] for each in self.brokers) / max(1, len(self.brokers))
        least_gap = mean * BYTES_TOLERANCE_PERCENT / 100 if self._is_by_bytes else 1
        while (best := self._best_move(receivers, least_gap)) is not None:
            self._move(*best)

    def _best_move(
        self, receivers: Collection[BrokerId], least_gap: float
    ) -> tuple[TopicPartition, BrokerId, BrokerId] | None:
        """From the fullest broker to the emptiest, if anything can go that way."""
        targets = sorted(receivers, key=lambda each: (self._load[each], each))
        for source in sorted(self.brokers, key=lambda each: (-self._load[each], each)):
            for target in targets:
                gap = self._load[source] - self._load[target]
                if gap <= least_gap:
                    break
                chosen = self._best_partition(source, target, gap)
                if chosen is not None:
                    return chosen, source, target
        return None

    def _best_partition(self, source: BrokerId, target: BrokerId, gap: int) -> TopicPartition | None:
        """The one that leaves the smallest gap; of equal ones the smallest, because its bytes must be copied."""
        best, best_gap = None, gap
        for topic_partition in self._movable_by_size[source]:
            left = abs(gap - 2 * self._weights[topic_partition])
            if left >= best_gap or source not in (replicas := self._replicas[topic_partition]) or target in replicas:
                continue
            if self._sharing(topic_partition, source, target) > self._sharing(topic_partition):
                continue
            best, best_gap = topic_partition, left
            if not self._is_by_bytes:
                break  # all weigh the same
        return best

    def _move(self, topic_partition: TopicPartition, source: BrokerId, target: BrokerId) -> None:
        """The target takes the place of the source in the order of the replicas."""
        replicas, weight = self._replicas[topic_partition], self._weights[topic_partition]
        replicas[replicas.index(source)] = target
        self._load[source] -= weight
        self._load[target] += weight
        self._movable_by_size[target].append(topic_partition)

    def _sharing(
        self, topic_partition: TopicPartition, source: BrokerId | None = None, target: BrokerId | None = None
    ) -> int:
        """How much the replicas share racks: the sum of the squares of the replicas in each rack."""
        if not self._rack_of:
            return 0
        replicas = (
            target if each == source and target is not None else each for each in self._replicas[topic_partition]
        )
        # A broker that is down counts as a rack of its own.
        return sum(count * count for count in Counter(self._rack_of.get(each, each) for each in replicas).values())

    def balance_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Change only the order of replicas, and only of these partitions."""
        considered = set(partitions)
        leads: Counter[BrokerId] = Counter(dict.fromkeys(self.brokers, 0))
        led: dict[BrokerId, set[TopicPartition]] = {each: set() for each in self.brokers}
        for topic_partition, replicas in self._replicas.items():
            if replicas and replicas[0] in led:
                leads[replicas[0]] += 1
                if topic_partition in considered:
                    led[replicas[0]].add(topic_partition)
        while (path := self._leadership_path(leads, led)) is not None:
            for topic_partition, source, target in path:
                self._lead(topic_partition, target)
                led[source].remove(topic_partition)
                led[target].add(topic_partition)
            leads[path[0][1]] -= 1
            leads[path[-1][2]] += 1

    def _leadership_path(
        self, leads: Mapping[BrokerId, int], led: Mapping[BrokerId, Collection[TopicPartition]]
    ) -> list[tuple[TopicPartition, BrokerId, BrokerId]] | None:
        """The shortest chain of handovers from a broker that leads too many to one that leads at least two fewer."""
        for start in sorted(self.brokers, key=lambda each: (-leads[each], each)):
            came: dict[BrokerId, tuple[TopicPartition, BrokerId]] = {}
            queue = deque([start])
            while queue:
                broker = queue.popleft()
                if leads[broker] <= leads[start] - 2:
                    return _path_to(broker, start, came)
                for topic_partition in sorted(led[broker]):
                    for target in self._replicas[topic_partition][1:]:
                        if target in led and target != start and target not in came:
                            came[target] = (topic_partition, broker)
                            queue.append(target)
        return None

    def _lead(self, topic_partition: TopicPartition, leader: BrokerId) -> None:
        """The two change places: in the original order of replicas no more differs than must."""
        replicas = self._replicas[topic_partition]
        index = replicas.index(leader)
        replicas[0], replicas[index] = replicas[index], replicas[0]


def _path_to(
    end: BrokerId, start: BrokerId, came: Mapping[BrokerId, tuple[TopicPartition, BrokerId]]
) -> list[tuple[TopicPartition, BrokerId, BrokerId]]:
    path = []
    while end != start:
        topic_partition, source = came[end]
        path.append((topic_partition, source, end))
        end = source
    return path[::-1]
