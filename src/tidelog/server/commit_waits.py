"""Waits for acks=all appends: an append is committed when the high watermark has passed it (R14)."""

from tidelog.errors import KafkaError, NotEnoughReplicasAfterAppend, NotLeaderOrFollower, RequestTimedOut
from tidelog.replication.leader import PartitionLeader
from tidelog.replication.partition import Partition


class CommitWait:
    """One append that is not committed yet. Must be created in the same step as the append."""

    __slots__ = ("end_offset", "leading_since_epoch", "partition")

    def __init__(self, partition: Partition, end_offset: int) -> None:
        self.partition = partition
        assert partition.leader is not None, "created in the step of the append (R14)"
        self.leading_since_epoch = partition.leader.leading_since_epoch
        self.end_offset = end_offset

    @property
    def is_committed(self) -> bool:
        return self.partition.log.high_watermark >= self.end_offset

    def is_over(self) -> bool:
        if self.partition.log.high_watermark >= self.end_offset:
            return True
        leader = self.partition.leader
        return leader is None or not self._is_of(leader) or not leader.has_enough_in_sync

    def _is_of(self, leader: PartitionLeader) -> bool:
        """A leader that keeps leading in a higher epoch (a follower died, say) still has the records."""
        return leader.leading_since_epoch == self.leading_since_epoch

    def failure(self) -> KafkaError | None:
        leader = self.partition.leader
        if leader is None or not self._is_of(leader):
            return NotLeaderOrFollower(
                f"the leader of {self.partition.topic_partition} changed before the records were committed"
            )
        try:
            leader.require_enough_in_sync()
        except KafkaError as error:
            return NotEnoughReplicasAfterAppend(error.message)
        if self.partition.log.high_watermark < self.end_offset:
            return RequestTimedOut("the in-sync replicas did not confirm the write in time")
        return None
