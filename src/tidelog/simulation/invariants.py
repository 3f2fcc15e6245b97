"""Cluster invariants I1 to I7, checked on the current state of a simulated cluster."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import chain, combinations

from tidelog.cluster import znodes
from tidelog.protocol.record_batch import BatchHeader
from tidelog.replication.partition import Partition
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.history import History
from tidelog.simulation.inspection import (
    Stored,
    batches,
    content,
    held_log,
    is_in_use,
    is_offline,
    is_to_be_deleted,
    registered_broker,
    replica,
    stored_partitions,
)
from tidelog.simulation.replica_audit import ReplicaAudit
from tidelog.simulation.store_audit import StoreAudit
from tidelog.storage.log import Log
from tidelog.types import BrokerId, TopicPartition, Uuid


class InvariantViolated(AssertionError):
    """The message has one line for each violation."""


class Invariants:
    """`check` as often as possible, `check_settled` after all faults are repaired."""

    def __init__(self, cluster: SimulatedCluster, history: History | None = None) -> None:
        self._cluster = cluster
        self.history = History() if history is None else history
        self._audit = StoreAudit(cluster.store_state)
        self.replicas = ReplicaAudit(cluster, self.history, self._audit, self._may_be_elected)
        self._high_watermarks: dict[tuple[BrokerId, int, Uuid, TopicPartition, int], int] = {}
        self.checks = 0

    def check(self) -> None:
        """I1 to I6, as far as a single state shows them."""
        self.checks += 1
        found = [line for each in stored_partitions(self._cluster.store_state) for line in self._of_partition(*each)]
        _raise(self.noted() + found)
        self.replicas.forget_dead()

    def watching(self) -> AbstractContextManager[None]:
        """Context in which every change of a replica is checked when it happens; `noted` has the violations."""
        return self.replicas.watching()

    def noted(self) -> list[str]:
        """Violations found when they happened. Cheap, may be called often."""
        return [*self._audit.violations, *self.replicas.violations, *self.history.contradictions]

    def check_noted(self) -> None:
        _raise(self.noted())

    def _of_partition(self, topic_partition: TopicPartition, stored: Stored) -> Iterator[str]:
        if is_to_be_deleted(self._cluster.store_state, topic_partition.topic):
            return
        replicas = self._replicas(topic_partition, stored)
        yield from self._diverged(topic_partition, replicas)
        yield from self._short_of_acknowledged(topic_partition, stored)
        leader = replicas.get(stored.state.leader)
        if leader is not None and leader.is_leader and leader.leader_epoch == stored.state.leader_epoch:
            if not is_in_use(self._cluster.store_state):
                found = f"broker {stored.state.leader} leads in epoch {leader.leader_epoch}"
                yield f"I6 {topic_partition} {found}, and the store is not in use"
            yield from self._of_leader(topic_partition, stored, leader)

    def _short_of_acknowledged(self, topic_partition: TopicPartition, stored: Stored) -> Iterator[str]:
        """I4: every replica that may be elected has all acknowledged records."""
        end_offset = self.history.ends[topic_partition]
        for member in (*stored.state.in_sync_replicas, *stored.state.eligible_leader_replicas):
            if not end_offset or not self._may_be_elected(member, topic_partition, stored):
                continue
            log = held_log(self._cluster, member, topic_partition)
            held = 0 if log is None else log.log_end_offset
            if held < end_offset:
                yield f"I4 {topic_partition} candidate {member} ends at {held}, {end_offset} was acknowledged"

    def _replicas(self, topic_partition: TopicPartition, stored: Stored) -> dict[BrokerId, Partition]:
        found = {each: replica(self._cluster, each, topic_partition) for each in stored.state.replicas}
        return {broker_id: partition for broker_id, partition in found.items() if partition is not None}

    def _diverged(self, topic_partition: TopicPartition, replicas: dict[BrokerId, Partition]) -> Iterator[str]:
        """I3"""
        for one, other in combinations(sorted(replicas), 2):
            if replicas[one].log.settings.is_compacted:
                continue  # compaction rewrites batches; their records are compared at that time
            found = mismatch(replicas[one].log, replicas[other].log)
            if found is not None:
                yield f"I3 {topic_partition} on brokers {one} and {other}: {found}"

    def _of_leader(self, topic_partition: TopicPartition, stored: Stored, leader: Partition) -> Iterator[str]:
        log, broker_id = leader.log, stored.state.leader
        key = broker_id, self._cluster.machines[broker_id].starts, leader.topic_id, topic_partition, leader.leader_epoch
        previous = self._high_watermarks.get(key, 0)
        self._high_watermarks[key] = max(previous, log.high_watermark)
        if log.high_watermark < previous:
            fall = f"fell from {previous} to {log.high_watermark}"
            yield f"I5 {topic_partition} high watermark of leader {broker_id} {fall}"
        for member in stored.state.in_sync_replicas:
            if member != broker_id and self._may_be_elected(member, topic_partition, stored):
                yield from self._short_of(topic_partition, leader, member)

    def _may_be_elected(self, broker_id: BrokerId, topic_partition: TopicPartition, stored: Stored) -> bool:
        """True if an election needs no log end query: same incarnation, or the next after a clean end (R41, R42)."""
        if is_offline(self._cluster, broker_id, topic_partition):
            return False
        registered = registered_broker(self._cluster.store_state, broker_id)
        if self._cluster.machines[broker_id].broker is None or registered is None:
            return False
        recorded_epoch = stored.state.recorded_epoch(broker_id)
        if recorded_epoch is None:
            return registered.epoch < stored.modified_id
        return recorded_epoch in (registered.epoch, registered.previous_epoch)

    def _short_of(self, topic_partition: TopicPartition, leader: Partition, member: BrokerId) -> Iterator[str]:
        """I2"""
        log = held_log(self._cluster, member, topic_partition)
        end_offset, start_offset = leader.log.high_watermark, leader.log.log_start_offset
        if start_offset == end_offset:
            return
        what = f"I2 {topic_partition} in-sync replica {member} of leader {leader.leader_id} in {leader.leader_epoch}"
        if log is None or log.log_end_offset < end_offset:
            held = "nothing" if log is None else f"up to {log.log_end_offset}"
            yield f"{what} holds {held}, and {end_offset} is committed"
            return
        start_offset = max(start_offset, log.log_start_offset)
        if log.settings.is_compacted:
            return
        if content(leader.log, start_offset, end_offset) != content(log, start_offset, end_offset):
            yield f"{what} holds other records below {end_offset}"

    # ---- at the end

    def check_settled(self) -> None:
        """I4 and I7, after all brokers are up and had time to recover."""
        self.check()
        _raise([line for found in stored_partitions(self._cluster.store_state) for line in self._unsettled(*found)])
        _raise([*self._gave_up(), *self._left_over(), *self._lost()])

    def is_settled(self) -> bool:
        found = stored_partitions(self._cluster.store_state)
        unsettled = (line for each in found for line in self._unsettled(*each))
        return not any(chain(unsettled, self._gave_up(), self._left_over()))

    def _unsettled(self, topic_partition: TopicPartition, stored: Stored) -> Iterator[str]:
        state, replicas = stored.state, self._replicas(topic_partition, stored)
        leader = replicas.get(state.leader)
        if leader is None or leader.leader is None or leader.leader_epoch != state.leader_epoch:
            yield f"I7 {topic_partition} has no live leader: {state}"
            return
        if set(state.in_sync_replicas) != set(state.replicas):
            yield f"I7 {topic_partition} in-sync replicas are {state.in_sync_replicas} of {state.replicas}"
        if self._must_balance_leaders and state.leader != state.replicas[0]:
            yield f"I7 {topic_partition} is led by {state.leader}, not by its preferred replica {state.replicas[0]}"
        for broker_id, partition in replicas.items():
            if not _are_equal(partition.log, leader.log):
                offsets = f"{_offsets(partition.log)}, not {_offsets(leader.log)}"
                yield f"I7 {topic_partition} on broker {broker_id} is {offsets}"

    @property
    def _must_balance_leaders(self) -> bool:
        """R40: with the simulation's settings, every preferred replica must lead in the end."""
        settings = self._cluster.settings
        is_enabled = settings.get("auto_leader_rebalance_enable", True)
        return bool(is_enabled) and settings.get("leader_imbalance_per_broker_percentage") == 0

    def _gave_up(self) -> Iterator[str]:
        for machine in self._cluster.machines.values():
            if machine.broker is None:
                yield f"I7 broker {machine.broker_id} does not run"
                continue
            for topic_partition, reason in machine.broker.fetchers.failed_partitions.items():
                yield f"I7 broker {machine.broker_id} does not fetch {topic_partition}: {reason}"

    def _left_over(self) -> Iterator[str]:
        """Remains of deleted topics."""
        store = self._cluster.store_state
        for topic in sorted(store.children.get(znodes.DELETE_TOPICS, ())):
            yield f"I7 topic {topic} is still to be deleted"
        for broker in self._cluster.running:
            for partition in broker.replicas:
                if store.find(znodes.topic_path(partition.topic_partition.topic)) is None:
                    yield f"I7 broker {broker.broker_id} hosts {partition.topic_partition}, which is deleted"

    def _lost(self) -> Iterator[str]:
        """I4: every acknowledged record exists once, at its offset, even if no consumer read it."""
        for topic_partition, stored in stored_partitions(self._cluster.store_state):
            leader = replica(self._cluster, stored.state.leader, topic_partition)
            assert leader is not None
            yield from self.history.losses(topic_partition, leader.log)


def mismatch(one: Log, other: Log) -> str | None:
    """Log matching: two logs that hold the same (offset, epoch) are equal up to there."""
    start = max(one.log_start_offset, other.log_start_offset)
    end = min(one.log_end_offset, other.log_end_offset)
    if start >= end or content(one, start, end) == content(other, start, end):
        return None
    mine, theirs = batches(one, start, one.log_end_offset), batches(other, start, other.log_end_offset)
    common = next((at for at, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), None)
    if common is None:
        return None
    met = _places(mine[common:]) & _places(theirs[common:])
    if not met:
        return None
    return f"both hold {min(met)} (offset, epoch), and differ from offset {mine[common][0].base_offset} on"


def _places(found: list[tuple[BatchHeader, bytes]]) -> set[tuple[int, int]]:
    return {
        (offset, header.leader_epoch) for header, _ in found for offset in range(header.base_offset, header.end_offset)
    }


def _are_equal(one: Log, other: Log) -> bool:
    """Compares the range that both have: each replica deletes old segments and compacts on its own."""
    end_offset = one.log_end_offset
    if (end_offset, one.high_watermark) != (other.log_end_offset, other.high_watermark):
        return False
    if one is other or one.settings.is_compacted:
        return True
    start_offset = max(one.log_start_offset, other.log_start_offset)
    return content(one, start_offset, end_offset) == content(other, start_offset, end_offset)


def _offsets(log: Log) -> str:
    return f"[{log.log_start_offset}, {log.high_watermark}, {log.log_end_offset}]"


def _raise(violations: list[str]) -> None:
    if violations:
        raise InvariantViolated("\n".join(violations))
