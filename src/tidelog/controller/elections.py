"""Who leads a partition and who is in sync with it, decided from who is there: pure functions (R35)."""

from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

from tidelog.cluster.image import Partition
from tidelog.types import NO_BROKER, BrokerId

NO_STATE_VERSION = -1
"""The version of a partition whose state is not in the store: it never had a leader."""

NOBODY: frozenset[BrokerId] = frozenset()


class Health(NamedTuple):
    """What is known of the replicas of one partition."""

    online: AbstractSet[BrokerId]
    """Their broker is alive, and the log directory they are in."""
    restarted: AbstractSet[BrokerId] = NOBODY
    """Came back since the partition's state was written: what they had then they may have lost (R39)."""
    leaving: AbstractSet[BrokerId] = NOBODY
    """In controlled shutdown."""


class Decision(NamedTuple):
    partition: Partition
    """As it shall be; its version is the one that must be found in the store."""
    is_unclean: bool = False
    """The leader was not in sync: records that were acknowledged may be lost."""


def repaired(partition: Partition, health: Health, *, unclean_allowed: bool = False) -> Decision | None:
    """What must change after brokers went or came; None if the partition is as well as it can be."""
    if partition.version == NO_STATE_VERSION:
        return _first_leader(partition, health)
    is_in_sync = partition.leader in partition.in_sync_replicas  # I1: or somebody else wrote this
    if is_in_sync and partition.leader in health.online and partition.leader not in health.restarted:
        return _without_failed(partition, health)
    return _offline_election(partition, health, unclean_allowed)


def preferred_leader(partition: Partition, health: Health) -> Decision | None:
    """The first of the assigned replicas, if it is in sync and does not lead already."""
    preferred = partition.replicas[0]
    if preferred == partition.leader or preferred not in partition.in_sync_replicas:
        return None
    if preferred not in health.online - health.leaving - health.restarted:
        return None
    return _changed(partition, preferred, partition.in_sync_replicas)


def any_leader(partition: Partition, health: Health) -> Decision | None:
    """Whoever is there, if nobody leads: somebody asked for it, even at the price of acknowledged records."""
    return repaired(partition, health, unclean_allowed=True) if partition.leader == NO_BROKER else None


def after_leaving(partition: Partition, health: Health) -> Decision | None:
    """Leave the brokers that go, as leaders and as in-sync replicas; None if nobody can take over."""
    staying = tuple(broker for broker in partition.in_sync_replicas if broker not in health.leaving)
    if not staying:
        return None
    if partition.leader not in health.leaving:
        is_unchanged = staying == partition.in_sync_replicas or partition.leader == NO_BROKER
        return None if is_unchanged else _changed(partition, partition.leader, staying)
    leader = _first_of(partition.replicas, (health.online - health.restarted) & set(staying))
    return None if leader is None else _changed(partition, leader, staying)


def _first_leader(partition: Partition, health: Health) -> Decision | None:
    """All replicas that are there are in sync with a log that has no records."""
    alive = tuple(broker for broker in partition.replicas if broker in health.online - health.leaving)
    if not alive:
        return None
    return Decision(replace(partition, leader=alive[0], leader_epoch=0, in_sync_replicas=alive))


def _without_failed(partition: Partition, health: Health) -> Decision | None:
    """The leader goes on with those that are still there. It learns of it by a new leader epoch, as in Kafka."""
    steady = health.online - health.restarted
    in_sync = tuple(broker for broker in partition.in_sync_replicas if broker in steady)
    return None if in_sync == partition.in_sync_replicas else _changed(partition, partition.leader, in_sync)


def _offline_election(partition: Partition, health: Health, unclean_allowed: bool) -> Decision | None:
    candidates = health.online - health.leaving
    steady = candidates - health.restarted
    in_sync = set(partition.in_sync_replicas)
    leader = _first_of(partition.replicas, steady & in_sync)
    if leader is not None:
        return _changed(partition, leader, tuple(each for each in partition.in_sync_replicas if each in steady))
    leader = _first_of(partition.replicas, candidates & in_sync)
    if leader is not None:  # nobody else is left: the restarted one is all there is, and the others fetch from it
        return _changed(partition, leader, (leader,))
    if unclean_allowed:
        leader = _first_of(partition.replicas, steady or candidates)
        if leader is not None:
            return _changed(partition, leader, (leader,), is_unclean=True)
    if partition.leader == NO_BROKER:
        return None
    # The ISR is kept: it says who may lead again (KAFKA-3096).
    return _changed(partition, NO_BROKER, partition.in_sync_replicas)


def _first_of(replicas: tuple[BrokerId, ...], eligible: AbstractSet[BrokerId]) -> BrokerId | None:
    return next((broker for broker in replicas if broker in eligible), None)


def _changed(
    partition: Partition, leader: BrokerId, in_sync_replicas: tuple[BrokerId, ...], *, is_unclean: bool = False
) -> Decision:
    changed = replace(
        partition,
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        in_sync_replicas=in_sync_replicas,
        # Whoever leads is in sync with itself, in whichever incarnation it is.
        in_sync_epochs={each: epoch for each, epoch in partition.in_sync_epochs.items() if each != leader},
    )
    return Decision(changed, is_unclean)
