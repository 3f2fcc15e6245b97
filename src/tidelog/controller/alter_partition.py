"""Decision on an ISR that the leader of a partition proposes by AlterPartition (KIP-497), as in Kafka's controller.

Tidelog's leaders write their ISR to the store themselves (R20). Brokers of Apache Kafka in the same cluster ask the
controller to do it for them.
"""

# Core: no clock, no I/O, no await.

from dataclasses import replace
from typing import NamedTuple

from tidelog.cluster.image import PartitionRegistration
from tidelog.controller.elections import Decision, Health
from tidelog.errors import FencedLeaderEpoch, IneligibleReplica, InvalidRequest, InvalidUpdateVersion, NotController
from tidelog.types import BrokerId, ids_text

UNKNOWN_EPOCH = -1


class ProposedIsr(NamedTuple):
    leader_epoch: int
    version: int
    """Of the state that the leader knows."""
    in_sync: tuple[tuple[BrokerId, int], ...]
    """The in-sync replicas in order, each with its broker epoch or UNKNOWN_EPOCH."""


def altered(
    partition: PartitionRegistration, leader: BrokerId, proposed: ProposedIsr, health: Health
) -> Decision | None:
    """The partition with the proposed ISR; None if it has it already. Raises the error for the leader."""
    _check_epochs(partition, proposed)
    in_sync = tuple(each for each, _ in proposed.in_sync)
    if leader != partition.leader or leader not in in_sync:
        raise InvalidRequest(f"Broker {leader} does not lead the partition, or is not in the ISR that it proposes.")
    if not set(in_sync) <= set(partition.replicas):
        raise InvalidRequest(f"The ISR {ids_text(in_sync)} has brokers without a replica of the partition.")
    if in_sync == partition.in_sync_replicas:
        return None  # a repeated request whose first response was lost
    if proposed.version < partition.version:
        raise InvalidUpdateVersion
    joining = [(each, epoch) for each, epoch in proposed.in_sync if each not in partition.in_sync_replicas]
    ineligible = [each for each, epoch in joining if not _is_eligible(each, epoch, health)]
    if ineligible:
        raise IneligibleReplica(f"Brokers {ids_text(ineligible)} are down, shutting down or have restarted.")
    # The recorded incarnation stays for those who were in sync before: only in that one do they have all records (R41).
    epochs = {each: partition.in_sync_epochs.get(each, health.epochs.get(each, UNKNOWN_EPOCH)) for each in in_sync}
    # Kafka's leaders advance the high watermark below min.insync.replicas: who leaves the ISR is not eligible (R42).
    return Decision(
        replace(
            partition,
            in_sync_replicas=in_sync,
            in_sync_epochs=epochs,
            eligible_leader_replicas=(),
            eligible_leader_epochs={},
        )
    )


def _check_epochs(partition: PartitionRegistration, proposed: ProposedIsr) -> None:
    if proposed.leader_epoch > partition.leader_epoch or proposed.version > partition.version:
        raise NotController("The leader knows a newer state than this controller.")
    if proposed.leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpoch


def _is_eligible(replica: BrokerId, epoch: int, health: Health) -> bool:
    return replica in health.candidates and epoch in (UNKNOWN_EPOCH, health.epochs.get(replica))
