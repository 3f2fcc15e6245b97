"""The leader's core: who is in sync with this partition, and what is therefore committed."""

from tidelog.errors import NotEnoughReplicas
from tidelog.types import BrokerId


class PartitionLeader:
    """Decides; does no I/O and knows no clock."""

    __slots__ = ("broker_id", "in_sync_replicas", "leader_epoch")

    def __init__(self, broker_id: BrokerId, leader_epoch: int, in_sync_replicas: frozenset[BrokerId]) -> None:
        assert broker_id in in_sync_replicas, "the leader is in sync with itself (I1)"
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.in_sync_replicas = in_sync_replicas

    def on_append(self, log_end_offset: int) -> int:
        """The high watermark after an append: everything that every in-sync replica has.

        Until followers report where they stand, the leader is alone in sync.
        """
        return log_end_offset

    def require_enough_in_sync(self, minimum: int) -> None:
        """R13: an acks=all write is refused before the append where it could not count as safe."""
        if len(self.in_sync_replicas) < minimum:
            raise NotEnoughReplicas(
                f"{len(self.in_sync_replicas)} in-sync replicas, min.insync.replicas asks for {minimum}"
            )
