"""Reconciliation of a member with its target assignment (KIP-848): a partition never has two owners.

A member first revokes partitions that are not in its target, and stays in its epoch until it confirms that. Then it
moves to the assignment epoch and gets the free partitions; it gets the others once their owners have revoked them.
"""

from collections.abc import Callable

from tidelog.groups.consumer.members import Assignment, Holdings, Member, MemberState
from tidelog.types import Uuid

OwnerOf = Callable[[Uuid, int], str | None]
"""Member that owns a partition or has not revoked it yet."""


def reconcile(
    member: Member, target_epoch: int, target: Assignment, owned: Assignment | None, owner_of: OwnerOf
) -> Member:
    """The member after one step. `owned`: partitions that it reports; None if it reports none."""
    if member.is_reconciled_to(target_epoch):
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(owned, member.revoking):
        return member
    return _next(member, target_epoch, target, owned, owner_of)


def _next(member: Member, target_epoch: int, target: Assignment, owned: Assignment | None, owner_of: OwnerOf) -> Member:
    kept, surplus = _split(member.assigned, target)
    if surplus and _still_owns(owned, surplus):
        return member._replace(
            previous_epoch=member.epoch, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=surplus
        )
    assigned, is_complete = _assign_free(member.member_id, kept, target, target_epoch, owner_of)
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS
    return member._replace(epoch=target_epoch, previous_epoch=member.epoch, state=state, assigned=assigned, revoking={})


def _split(assigned: Holdings, target: Assignment) -> tuple[Holdings, Holdings]:
    """Partitions to keep and partitions to revoke."""
    kept: dict[Uuid, dict[int, int]] = {}
    surplus: dict[Uuid, dict[int, int]] = {}
    for topic_id, partitions in assigned.items():
        wanted = target.get(topic_id, frozenset())
        for partition, epoch in partitions.items():
            side = kept if partition in wanted else surplus
            side.setdefault(topic_id, {})[partition] = epoch
    return kept, surplus


def _assign_free(
    member_id: str, kept: Holdings, target: Assignment, target_epoch: int, owner_of: OwnerOf
) -> tuple[Holdings, bool]:
    """The member's partitions plus all free ones of its target, and whether the target is reached."""
    assigned = {topic_id: dict(partitions) for topic_id, partitions in kept.items()}
    is_complete = True
    for topic_id, wanted in target.items():
        for partition in sorted(wanted - assigned.get(topic_id, {}).keys()):
            if owner_of(topic_id, partition) in (None, member_id):
                assigned.setdefault(topic_id, {})[partition] = target_epoch
            else:
                is_complete = False
    return assigned, is_complete


def _still_owns(owned: Assignment | None, holdings: Holdings) -> bool:
    if owned is None:
        return True
    return any(not owned.get(topic_id, frozenset()).isdisjoint(held) for topic_id, held in holdings.items())
