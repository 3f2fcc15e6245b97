"""Reasons why replicas are not in sync, for people: since when, by which rule, and what lets them back."""

# Core: no clock, no I/O, no await.

from typing import NamedTuple

from tidelog.replication.leader import PartitionLeader
from tidelog.replication.remote_replica import UNKNOWN_OFFSET, RemoteReplica
from tidelog.types import BrokerId

DROPPED_BY_THE_CONTROLLER = "dropped by the controller: its broker was gone, or going"
LED_BEFORE = "led until this leader was elected: its broker was gone, or going"


class OutOfSync(NamedTuple):
    """Why a replica is not among the in-sync replicas."""

    replica: BrokerId
    rule: str
    """Which rule keeps it out."""
    since_ms: int
    """When it left, or when this leader took office without it."""
    behind: int
    """How many offsets it lacks, as far as the leader knows; -1: it has not heard of the replica yet."""
    remedy: str
    """What lets it back."""

    def __str__(self) -> str:
        """As log lines end."""
        behind = "unknown" if self.behind < 0 else self.behind
        return f"replica={self.replica} behind={behind} reason={self.rule} remedy={self.remedy}"


def out_of_sync(leader: PartitionLeader) -> list[OutOfSync]:
    """Why each replica that is not in sync is not, and what lets it back."""
    return [
        OutOfSync(
            replica, follower.left_because, follower.out_since_ms, _behind(leader, follower), _remedy(leader, follower)
        )
        for replica, follower in leader.followers.items()
        if replica not in leader.in_sync_replicas
    ]


def inherit_reasons(leader: PartitionLeader, earlier: PartitionLeader) -> None:
    """This broker led the partition in the epoch before, too: keep what is known of those out of sync."""
    for replica, follower in leader.followers.items():
        known = earlier.followers.get(replica)
        if replica in leader.in_sync_replicas or known is None:
            continue
        follower.inherited_end_offset = known.known_end_offset
        if replica in earlier.in_sync_replicas:
            follower.left_because = DROPPED_BY_THE_CONTROLLER
        else:
            follower.left_because, follower.out_since_ms = known.left_because, known.out_since_ms


def note_leader_before(leader: PartitionLeader, leader_before: BrokerId) -> None:
    """Another broker led the partition before."""
    follower = leader.followers.get(leader_before)
    if follower is not None and leader_before not in leader.in_sync_replicas:
        follower.left_because = LED_BEFORE


def _behind(leader: PartitionLeader, follower: RemoteReplica) -> int:
    end_offset = follower.known_end_offset
    return -1 if end_offset == UNKNOWN_OFFSET else max(0, leader.log_end_offset - end_offset)


def _remedy(leader: PartitionLeader, follower: RemoteReplica) -> str:
    """Without figures: it is a label of a metric, too."""
    broker_id = follower.broker_id
    if broker_id not in leader.peers.epochs:
        return f"start broker {broker_id}, which is not registered"
    if not follower.has_fetched:
        return f"broker {broker_id} has not fetched from this leader yet"
    if not leader.is_isr_eligible(follower):
        return f"broker {broker_id} has come back and must fetch again"
    if follower.log_end_offset >= leader.joining_offset:
        return "it has caught up and is being added"
    if not leader.has_enough_in_sync:
        return "it must reach the end of the log, for fewer than min.insync.replicas are in sync"
    if leader.epoch_start_offset > leader.high_watermark:
        return "it must reach the start of this leader epoch"
    return "it must reach the high watermark"
