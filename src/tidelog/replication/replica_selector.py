"""Replica selector (KIP-392): the replica that a consumer should read from, chosen by the leader (R23)."""

# Core: no clock, no I/O, no await.

from collections.abc import Set as AbstractSet

from tidelog.replication.leader import PartitionLeader
from tidelog.replication.remote_replica import RemoteReplica
from tidelog.types import BrokerId


def preferred_read_replica(
    leader: PartitionLeader, same_rack: AbstractSet[BrokerId], fetch_offset: int
) -> BrokerId | None:
    """Kafka's RackAwareReplicaSelector: the most caught-up replica in the consumer's rack. None is the leader.

    Only replicas that are alive, in sync and have the offset: a consumer at a replica that lags would fall behind, and
    the leader would send it there again and again.
    """
    if leader.broker_id in same_rack:
        return None
    candidates = [
        follower
        for follower in leader.followers.values()
        if follower.broker_id in same_rack and _can_serve(leader, follower, fetch_offset)
    ]
    best = max(candidates, key=_rank, default=None)
    return None if best is None else best.broker_id


def _can_serve(leader: PartitionLeader, follower: RemoteReplica, fetch_offset: int) -> bool:
    return (
        follower.broker_id in leader.in_sync_replicas
        and follower.has_fetched
        and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
        and leader.is_isr_eligible(follower)
    )


def _rank(follower: RemoteReplica) -> tuple[int, int, BrokerId]:
    return follower.log_end_offset, follower.caught_up_ms, follower.broker_id
