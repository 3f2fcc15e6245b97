"""Invariant of coordinators (G3): the state in memory equals the state that a successor loads from the records."""

from collections.abc import Iterator
from typing import Any

from tidelog.groups.classic.group import ClassicGroup
from tidelog.groups.classic.states import GroupState
from tidelog.groups.consumer.group import ConsumerGroup
from tidelog.groups.group import Group
from tidelog.groups.machine import GroupMachine
from tidelog.protocol.record_batch import split_batches
from tidelog.replicated.entries import replay_batch
from tidelog.replicated.machine import StateMachine
from tidelog.replicated.shard import Shard
from tidelog.server.broker import Broker
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.inspection import content
from tidelog.transactions.machine import TransactionMachine

IN_BETWEEN = "in between"
"""State of a classic group during a rebalance."""


def differences(cluster: SimulatedCluster) -> Iterator[str]:
    """Differences between each active state machine and a new one loaded from the log of its partition."""
    for broker in cluster.running:
        for shard, fresh in _shards(broker):
            live, loaded = _facts(shard.machine), _facts(_loaded(shard, fresh))
            for what in sorted(live.keys() | loaded.keys(), key=str):
                if live.get(what) == IN_BETWEEN:  # a rebalance is not in the log until it completes
                    continue
                if live.get(what) != loaded.get(what):
                    where = f"{shard.partition.topic_partition} on broker {broker.broker_id}"
                    yield f"G3 {where}: {what} is {live.get(what)}, its records say {loaded.get(what)}"


def acting(cluster: SimulatedCluster) -> Iterator[Shard[Any]]:
    for broker in cluster.running:
        for shard, _ in _shards(broker):
            yield shard


def _shards(broker: Broker) -> Iterator[tuple[Shard[Any], StateMachine]]:
    """Active shards, each with an empty state machine."""
    services = broker._services
    for topic in (services.groups.topic, services.transactions.topic):
        for index, shard in topic._shards.items():
            if shard.is_acting:
                yield shard, topic._make(index)


def _loaded(shard: Shard[Any], machine: StateMachine) -> StateMachine:
    log = shard.partition.log
    for header, batch in split_batches(memoryview(content(log, log.log_start_offset, log.log_end_offset))):
        replay_batch(machine, header, batch)
    return machine


def _facts(machine: StateMachine) -> dict[Any, Any]:
    if isinstance(machine, TransactionMachine):
        return dict(machine.state_manager.by_id)
    assert isinstance(machine, GroupMachine)
    committed = machine.offsets.committed
    facts: dict[Any, Any] = {("group", group.group_id): _group_facts(group) for group in machine.groups.values()}
    for group_id in machine.groups:
        facts["offsets", group_id] = {topic: dict(found) for topic, found in committed.of_group(group_id).items()}
        facts["pending", group_id] = sorted(committed.pending_values(group_id))
    return facts


def _group_facts(group: Group) -> object:
    if isinstance(group, ConsumerGroup):
        return (
            group.epoch,
            group.assignment_epoch,
            group.members,
            {member_id: target for member_id, target in group.targets.items() if target},
            group.owners,
            group.static_members,
        )
    assert isinstance(group, ClassicGroup)
    if group.state not in (GroupState.STABLE, GroupState.EMPTY):
        return IN_BETWEEN
    members = {member_id: (each.assignment, each.client_id) for member_id, each in group.members.items()}
    return group.generation, group.protocol_type, group.protocol_name, group.members.leader_id, members
