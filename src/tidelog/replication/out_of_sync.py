"""Out-of-sync reports for operators: why a replica is not in the ISR, since when, and what brings it back."""

# Core: no clock, no I/O, no await.

from typing import NamedTuple

from tidelog.replication.leader import PartitionLeader
from tidelog.replication.remote_replica import UNKNOWN_OFFSET, RemoteReplica
from tidelog.types import BrokerId

DROPPED_BY_THE_CONTROLLER = "removed by the controller: its broker was down or shutting down, or its disk offline"
LED_BEFORE = "leader before this one: its broker was down or shutting down, or its disk offline"


class OutOfSync(NamedTuple):
    """Why a replica is not among the in-sync replicas."""

    replica: BrokerId
    rule: str
    """The rule by which it left."""
    since_ms: int
    """When it left the ISR, or when this leader was elected without it. Wall time in reports."""
    behind: int
    """Lag in offsets as the leader knows it; -1 if the replica has not fetched from this leader."""
    remedy: str
    """What brings it back into the ISR."""

    def __str__(self) -> str:
        """The key=value part of a log line."""
        behind = "unknown" if self.behind < 0 else self.behind
        return f"replica={self.replica} behind={behind} reason={self.rule} remedy={self.remedy}"


def out_of_sync(leader: PartitionLeader, wall_offset_ms: int = 0) -> list[OutOfSync]:
    """A report for each replica outside the ISR. `wall_offset_ms`: wall time minus monotonic time."""
    return [
        OutOfSync(
            replica,
            follower.left_because,
            follower.out_since_ms + wall_offset_ms,
            _behind(leader, follower),
            _remedy(leader, follower),
        )
        for replica, follower in leader.followers.items()
        if replica not in leader.in_sync_replicas
    ]


def inherit_reasons(leader: PartitionLeader, earlier: PartitionLeader) -> None:
    """Keep the reasons of the previous leader epoch, which this broker led, too."""
    for replica, follower in leader.followers.items():
        previous = earlier.followers.get(replica)
        if replica in leader.in_sync_replicas or previous is None:
            continue
        follower.inherited_end_offset = previous.last_end_offset
        if replica in earlier.in_sync_replicas:
            follower.left_because = DROPPED_BY_THE_CONTROLLER
        else:
            follower.left_because, follower.out_since_ms = previous.left_because, previous.out_since_ms


def record_previous_leader(leader: PartitionLeader, leader_before: BrokerId) -> None:
    """Note that the replica was the leader before, if another broker led the partition."""
    follower = leader.followers.get(leader_before)
    if follower is not None and leader_before not in leader.in_sync_replicas:
        follower.left_because = LED_BEFORE


def _behind(leader: PartitionLeader, follower: RemoteReplica) -> int:
    end_offset = follower.last_end_offset
    return -1 if end_offset == UNKNOWN_OFFSET else max(0, leader.log_end_offset - end_offset)


def _remedy(leader: PartitionLeader, follower: RemoteReplica) -> str:
    """Contains no offsets, because it is also a metric label."""
    broker_id = follower.broker_id
    if broker_id not in leader.peers.epochs:
        return f"broker {broker_id} is down, start it"
    if not follower.has_fetched:
        return f"broker {broker_id} has not fetched from this leader yet"
    if not leader.is_isr_eligible(follower):
        return f"broker {broker_id} restarted and must fetch again"
    if follower.log_end_offset >= leader.joining_offset:
        return "it has caught up and is being added"
    if not leader.has_enough_in_sync:
        return "it must reach the log end, because the ISR is below min.insync.replicas"
    if leader.epoch_start_offset > leader.high_watermark:
        return "it must reach the start of this leader epoch"
    return "it must reach the high watermark"
