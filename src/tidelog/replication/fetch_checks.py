"""Checks of Fetch requests that come from followers (R39)."""

# Core: no clock, no I/O, no await.

from tidelog.errors import NotLeaderOrFollower, UnknownLeaderEpoch
from tidelog.replication.fetch_reads import FetchParams
from tidelog.replication.leader import PartitionLeader
from tidelog.replication.remote_replica import UNKNOWN_BROKER_EPOCH


def check_follower(leader: PartitionLeader, params: FetchParams, *, is_recorded: bool) -> None:
    """Check that the reader is an assigned replica with its current broker epoch, and record a new epoch."""
    replica_id, replica_epoch = params.replica_id, params.replica_epoch
    follower = leader.followers.get(replica_id)
    if follower is None:
        # As in Kafka: the follower may have an assignment that has not arrived here yet, and retries.
        raise UnknownLeaderEpoch(f"broker {replica_id} is not a replica of this partition")
    if replica_epoch != follower.broker_epoch and replica_epoch != UNKNOWN_BROKER_EPOCH:
        newest = max(follower.broker_epoch, leader.peers.epochs.get(replica_id, UNKNOWN_BROKER_EPOCH))
        if replica_epoch < newest:
            raise NotLeaderOrFollower(f"broker {replica_id} has come back since, as epoch {newest}")
        if is_recorded:
            follower.on_incarnation(replica_epoch)
