"""One hosted partition: its log, its role, and who waits for it to move."""

from tidelog.errors import FencedLeaderEpoch, NotLeaderOrFollower, OffsetOutOfRange, PolicyViolation, UnknownLeaderEpoch
from tidelog.replication.leader import PartitionLeader
from tidelog.runtime.purgatory import Purgatory, Watchers
from tidelog.storage.log import AppendResult, Log
from tidelog.storage.validation import AppendOrigin
from tidelog.types import TopicPartition, Uuid

READ_COMMITTED = 1
ACKS_ALL = -1


class Partition:
    """Every state change is one synchronous step; nothing in here waits."""

    __slots__ = ("_purgatory", "leader", "log", "topic_id", "topic_partition", "watchers")

    def __init__(self, topic_partition: TopicPartition, topic_id: Uuid, log: Log, purgatory: Purgatory) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader: PartitionLeader | None = None
        self.watchers = Watchers()
        self._purgatory = purgatory

    def become_leader(self, leader: PartitionLeader) -> None:
        """R8: record where the epoch starts, before the first append (R3)."""
        if self.leader is None or self.leader.leader_epoch < leader.leader_epoch:
            self.log.leader_epochs.assign(leader.leader_epoch, self.log.log_end_offset)
        self.leader = leader
        self._raise_high_watermark(leader.on_append(self.log.log_end_offset))

    def resign(self) -> None:
        """R9: those who wait must look for another leader."""
        self.leader = None
        self._purgatory.changed(self.watchers)

    def require_leader(self, current_leader_epoch: int = -1) -> PartitionLeader:
        """R16: only the leader answers, and only to those who know of no other epoch."""
        leader = self.leader
        if leader is None:
            raise NotLeaderOrFollower(f"{self.topic_partition} has no leader here")
        if current_leader_epoch not in (-1, leader.leader_epoch):
            known = f"{self.topic_partition} is in leader epoch {leader.leader_epoch}, not {current_leader_epoch}"
            raise (FencedLeaderEpoch if current_leader_epoch < leader.leader_epoch else UnknownLeaderEpoch)(known)
        return leader

    def append_as_leader(
        self, batch: memoryview, acks: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendResult:
        leader = self.leader
        if leader is None:
            raise NotLeaderOrFollower(f"{self.topic_partition} has no leader here")
        if acks == ACKS_ALL:
            leader.require_enough_in_sync(self.log.settings.min_insync_replicas)
        result = self.log.append_as_leader(batch, leader.leader_epoch, origin)
        self._raise_high_watermark(leader.on_append(self.log.log_end_offset))
        return result

    def _raise_high_watermark(self, offset: int) -> None:
        if self.log.raise_high_watermark(offset) and self.watchers.operations:
            self._purgatory.changed(self.watchers)

    def readable_end(self, isolation_level: int) -> int:
        """R15: a consumer reads what is committed; one that reads committed transactions, what is decided."""
        log = self.log
        return log.last_stable_offset if isolation_level == READ_COMMITTED else log.high_watermark

    def delete_records_before(self, offset: int) -> int:
        """The new log start; -1 means up to the high watermark."""
        self.require_leader()
        log = self.log
        if log.settings.is_compacted and not log.settings.is_deleted:
            raise PolicyViolation(f"{self.topic_partition} is compacted only: cleanup.policy lacks delete")
        target = log.high_watermark if offset == -1 else offset
        if not 0 <= target <= log.high_watermark:
            raise OffsetOutOfRange(
                f"cannot delete before offset {offset}: {self.topic_partition} is committed up to {log.high_watermark}"
            )
        log.advance_log_start_offset(target)
        return log.log_start_offset
