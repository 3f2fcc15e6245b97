"""Replica placement for new partitions: Kafka's rules, as pure functions.

Leaders are assigned round robin. The distance of followers from the leader grows by one with every round, so that
brokers do not always share the same partitions. With racks, brokers are first ordered so that racks alternate, and a
rack gets a second replica only when every rack has one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tidelog.errors import InvalidPartitions, InvalidReplicationFactor
from tidelog.types import BrokerId


class PlacementStart(NamedTuple):
    """First leader and first distance of followers: random for a new topic, fixed when partitions are added."""

    leader_index: int
    follower_shift: int
    first_partition: int = 0


def random_start(broker_count: int, below: Callable[[int], int]) -> PlacementStart:
    return PlacementStart(below(broker_count), below(broker_count))


def start_after(existing: int, first_leader: BrokerId, brokers: Sequence[BrokerId]) -> PlacementStart:
    """Continues after the existing partitions of a topic, given the leader of its first partition."""
    index = next((index for index, broker in enumerate(brokers) if broker >= first_leader), 0)
    return PlacementStart(index, index, existing)


def place_replicas(
    racks: Mapping[BrokerId, str | None],
    partition_count: int,
    replication_factor: int,
    start: PlacementStart,
    absent: Sequence[BrokerId] = (),
) -> list[tuple[BrokerId, ...]]:
    """The replicas of each new partition, the preferred leader first.

    Members of the cluster that are `absent` get replicas only where live brokers do not suffice, and never lead.
    """
    if partition_count <= 0:
        raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
    if replication_factor <= 0:
        raise InvalidReplicationFactor("Replication factor must be larger than 0, or -1 to use the default value.")
    members = len(racks) + len(absent)
    if replication_factor > members:
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of"
            f" {replication_factor} cannot be reached because only {members} broker(s) are registered."
        )
    if not racks:
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): All brokers are currently fenced."
        )
    rack_of = {broker: rack for broker, rack in racks.items() if rack is not None}
    if len(rack_of) < len(racks):  # rack awareness needs a rack for every broker
        rack_of = {}
    brokers = rack_alternated(rack_of) if rack_of else sorted(racks)
    on_live = min(replication_factor, len(brokers))
    lists = _ReplicaLists(brokers, rack_of, on_live)
    return [
        lists.of(*_leader_and_shift(partition, start, len(brokers)))
        + _in_turn(absent, replication_factor - on_live, start.leader_index + partition)
        for partition in range(start.first_partition, start.first_partition + partition_count)
    ]


def _in_turn(brokers: Sequence[BrokerId], count: int, turn: int) -> tuple[BrokerId, ...]:
    if not count:
        return ()
    return tuple(brokers[(turn + number) % len(brokers)] for number in range(count))


def rack_alternated(rack_of: Mapping[BrokerId, str]) -> list[BrokerId]:
    """The brokers in an order in which neighbours are in different racks, as far as possible."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker in sorted(rack_of):
        by_rack.setdefault(rack_of[broker], []).append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(len(queue) for queue in queues)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


class _ReplicaLists:
    """Replicas for each leader and distance, cached: thousands of partitions share a few lists."""

    def __init__(self, brokers: Sequence[BrokerId], rack_of: Mapping[BrokerId, str], replication_factor: int) -> None:
        self._brokers = brokers
        self._rack_of = rack_of
        self._rack_count = len(set(rack_of.values())) or 1
        self._replication_factor = replication_factor
        self._found: dict[tuple[int, int], tuple[BrokerId, ...]] = {}

    def of(self, leader_index: int, shift: int) -> tuple[BrokerId, ...]:
        key = (leader_index, shift * self._rack_count % max(len(self._brokers) - 1, 1))
        replicas = self._found.get(key)
        if replicas is None:
            replicas = self._found[key] = self._choose(*key)
        return replicas

    def _choose(self, leader_index: int, shift: int) -> tuple[BrokerId, ...]:
        brokers, count = self._brokers, len(self._brokers)
        replicas = [brokers[leader_index]]
        step = 0
        while len(replicas) < self._replication_factor:
            candidate = brokers[(leader_index + 1 + (shift + step) % (count - 1)) % count]
            step += 1
            if candidate not in replicas and _may_take(candidate, replicas, self._rack_of, self._rack_count):
                replicas.append(candidate)
        return tuple(replicas)


def _leader_and_shift(partition: int, start: PlacementStart, broker_count: int) -> tuple[int, int]:
    leader_index = (partition + start.leader_index) % broker_count
    return leader_index, start.follower_shift + _rounds_before(partition, start.first_partition, broker_count)


def _rounds_before(partition: int, first_partition: int, broker_count: int) -> int:
    """Number of rounds over the brokers that have started since the first new partition."""
    return partition // broker_count - max(first_partition - 1, 0) // broker_count


def _may_take(
    candidate: BrokerId, replicas: Sequence[BrokerId], rack_of: Mapping[BrokerId, str], rack_count: int
) -> bool:
    if not rack_of:
        return True
    used = {rack_of[broker] for broker in replicas}
    return rack_of[candidate] not in used or len(used) == rack_count
