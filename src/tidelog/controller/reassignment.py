"""Decisions on the reassignment of one partition: start, replace or cancel it, and complete it (R37).

Kafka's names for the sets of replicas: ORS are the original ones, TRS the target. While the reassignment goes on the
partition has both, RS = TRS + ORS; TRS - ORS are being added, ORS - TRS removed.
"""

# Core: no clock, no I/O, no await.

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from tidelog.cluster.image import PartitionRegistration
from tidelog.controller.elections import NO_STATE_VERSION, Decision, Health, effective_min_in_sync
from tidelog.errors import InvalidReplicaAssignment, InvalidReplicationFactor, NoReassignmentInProgress
from tidelog.types import NO_BROKER, BrokerId, ids_text


def validate_target(
    partition: PartitionRegistration,
    target: Sequence[BrokerId],
    live: AbstractSet[BrokerId],
    *,
    allow_replication_factor_change: bool = True,
) -> None:
    """Replicas that are added must be on live brokers; the others may be away. Raises the error for the client."""
    if not target:
        raise InvalidReplicaAssignment("Empty replica list specified in partition reassignment.")
    if len(set(target)) != len(target):
        raise InvalidReplicaAssignment(
            f"Duplicate replica ids in partition reassignment replica list: {ids_text(target)}"
        )
    if min(target) < 0:
        raise InvalidReplicaAssignment(f"Invalid broker id in replica list: {ids_text(target)}")
    away = [each for each in target if each not in live and each not in partition.original_replicas]
    if away:
        raise InvalidReplicaAssignment(
            f"Replica assignment has brokers that are not alive. Replica list: {ids_text(away)},"
            f" live broker list: {ids_text(sorted(live))}"
        )
    factor = len(partition.target_replicas)
    if len(target) != factor and not allow_replication_factor_change:
        raise InvalidReplicationFactor(f"The replication factor is changed from {factor} to {len(target)}")


def reassigned(partition: PartitionRegistration, target: Sequence[BrokerId], health: Health) -> Decision | None:
    """The partition on its way to the target; None if it is on this way already, or there.

    A reassignment that was under way is replaced: what it was adding and is not wanted any more goes at once. Raises
    InvalidReplicaAssignment if it cannot be spared.
    """
    original = partition.original_replicas
    replicas = tuple(dict.fromkeys((*target, *original)))
    if partition.version == NO_STATE_VERSION:
        replicas = original = tuple(target)  # nobody has records yet: there is nothing to wait for
    changed = _with_replicas(
        partition,
        replicas,
        adding=tuple(each for each in replicas if each not in original),
        removing=tuple(each for each in replicas if each not in target),
    )
    if changed == partition:
        return None
    if partition.version == NO_STATE_VERSION:
        return Decision(replace(changed, removed_replicas=()))
    unwanted = set(partition.replicas).difference(replicas)
    if unwanted.isdisjoint((*partition.in_sync_replicas, *partition.eligible_leader_replicas)):
        # A new leader epoch, by which leader and followers learn the new replicas.
        return Decision(replace(changed, leader_epoch=partition.leader_epoch + 1))
    decision = _with_remaining(changed, health)
    if decision is None:
        raise InvalidReplicaAssignment(
            f"The reassignment cannot be cancelled or replaced now: too few other replicas are in sync to do without"
            f" {ids_text(sorted(unwanted))}, which it has added already (min.insync.replicas)."
        )
    return decision


def cancelled(partition: PartitionRegistration, health: Health) -> Decision | None:
    """The partition with its original replicas. Raises NoReassignmentInProgress, InvalidReplicaAssignment."""
    if not partition.is_being_reassigned:
        raise NoReassignmentInProgress
    return reassigned(partition, partition.original_replicas, health)


def completed(partition: PartitionRegistration, health: Health) -> Decision | None:
    """The partition with its target only, led by one of them; None if it is too early.

    Every added replica must be in sync. So must be all others if the target is smaller than the original; else an
    original one that is kept and out of sync anyway does not hold up the rest (KAFKA-19975). In no case fewer than
    min.insync.replicas are left in sync (KAFKA-15665).
    """
    if not partition.is_being_reassigned or partition.leader == NO_BROKER:
        return None
    in_sync = _steady(health) & set(partition.in_sync_replicas)
    target = partition.target_replicas
    is_smaller = len(target) < len(partition.original_replicas)
    if not in_sync >= set(target if is_smaller else partition.adding_replicas):
        return None
    return _with_remaining(_with_replicas(partition, target), health)


def without_removed(partition: PartitionRegistration, deleted: Iterable[BrokerId]) -> Decision | None:
    """Their logs are deleted: nothing is left to remember."""
    left = tuple(each for each in partition.removed_replicas if each not in set(deleted))
    return None if left == partition.removed_replicas else Decision(replace(partition, removed_replicas=left))


def _with_replicas(
    partition: PartitionRegistration,
    replicas: tuple[BrokerId, ...],
    adding: tuple[BrokerId, ...] = (),
    removing: tuple[BrokerId, ...] = (),
) -> PartitionRegistration:
    """The partition with these replicas. Former replicas are added to those to delete; current ones are removed."""
    known = dict.fromkeys((*partition.removed_replicas, *partition.replicas))
    return replace(
        partition,
        replicas=replicas,
        adding_replicas=adding,
        removing_replicas=removing,
        removed_replicas=tuple(each for each in known if each not in replicas),
    )


def _with_remaining(partition: PartitionRegistration, health: Health) -> Decision | None:
    """Leader and in-sync replicas are assigned ones, in a new leader epoch (KAFKA-9672); None if they are too few.

    In one write with the assignment: no replica is ever in the ISR without being assigned. No replica that leaves stays
    eligible (R42): enough others hold all that is committed, or this is refused.
    """
    steady = _steady(health)
    in_sync = tuple(each for each in partition.in_sync_replicas if each in partition.replicas and each in steady)
    leader: BrokerId | None = partition.leader
    if leader not in in_sync:
        candidates = health.candidates & set(in_sync)
        leader = next((each for each in partition.replicas if each in candidates), None)
    if leader is None or len(in_sync) < effective_min_in_sync(partition, health):
        return None
    return Decision(
        replace(
            partition,
            leader=leader,
            leader_epoch=partition.leader_epoch + 1,
            in_sync_replicas=in_sync,
            in_sync_epochs={each: epoch for each, epoch in partition.in_sync_epochs.items() if each in in_sync},
            eligible_leader_replicas=(),
            eligible_leader_epochs={},
        )
    )


def _steady(health: Health) -> AbstractSet[BrokerId]:
    """Alive in the incarnation in which they are in sync (R41)."""
    return health.online - health.restarted
