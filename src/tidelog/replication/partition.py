"""Hosted partition: its log, its role (leader, follower or none) and the watchers of its offsets."""

import logging
from collections.abc import Callable

from tidelog.config.topic import TopicSettings
from tidelog.errors import (
    FencedLeaderEpoch,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    PolicyViolation,
    UnknownLeaderEpoch,
)
from tidelog.protocol.messages.fetch import FetchPartition, PartitionData
from tidelog.replication.assignment import PartitionAssignment
from tidelog.replication.fetch_checks import check_follower
from tidelog.replication.fetch_reads import (
    FetchParams,
    read_records,
    readable_end,
    without_records,
)
from tidelog.replication.follower import PartitionFollower
from tidelog.replication.leader import LeaderEffects, PartitionLeader, ProposeInSyncReplicas
from tidelog.replication.out_of_sync import inherit_reasons, record_previous_leader
from tidelog.replication.quota import throttled_roles
from tidelog.replication.remote_replica import Peers
from tidelog.replication.replica_selector import preferred_read_replica
from tidelog.replication.traffic import Traffic
from tidelog.runtime.purgatory import Purgatory, Watchers
from tidelog.storage.log import AppendResult, Log
from tidelog.storage.validation import AppendOrigin, PreparedBatch
from tidelog.store.interface import Store
from tidelog.types import NO_BROKER, NO_LEADER_EPOCH, BrokerId, Buffer, TopicPartition, Uuid

logger = logging.getLogger(__name__)

ACKS_ALL = -1


class PartitionContext:
    """State and services that all partitions of one broker share."""

    __slots__ = (
        "broker_id",
        "is_suspended",
        "lag_time_max_ms",
        "now_ms",
        "peers",
        "propose",
        "purgatory",
        "store",
        "traffic",
    )

    def __init__(
        self,
        broker_id: BrokerId,
        purgatory: Purgatory,
        now_ms: Callable[[], int],
        lag_time_max_ms: int,
        propose: Callable[["Partition", PartitionLeader, ProposeInSyncReplicas], None],
        store: Callable[[], Store],
    ) -> None:
        self.broker_id = broker_id
        self.purgatory = purgatory
        self.now_ms = now_ms
        """Monotonic time."""
        self.lag_time_max_ms = lag_time_max_ms
        self.propose = propose
        self.store = store
        """The current store. Once its session may have ended, other brokers may lead this broker's partitions."""
        self.is_suspended = False
        """The session may have ended, and the partitions have been suspended."""
        self.peers = Peers()
        self.traffic = Traffic()


class Partition:
    """Every state change is one synchronous step; nothing in this class awaits."""

    __slots__ = (
        "_context",
        "_purgatory",
        "adding_replicas",
        "controller_epoch",
        "end_watchers",
        "leader",
        "leader_epoch",
        "leader_id",
        "log",
        "low_watermark_watchers",
        "on_high_watermark_wanted",
        "removing_replicas",
        "replicas",
        "role",
        "throttled",
        "topic_id",
        "topic_partition",
        "traffic",
        "watchers",
    )

    def __init__(self, topic_partition: TopicPartition, topic_id: Uuid, log: Log, context: PartitionContext) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.role: PartitionLeader | PartitionFollower | None = None
        """The role that the controller assigned; a new object for each leader epoch."""
        self.leader: PartitionLeader | None = None
        """The role if it is leader. None while this broker has fenced itself, so that nothing acts as leader."""
        self.leader_id: BrokerId = NO_BROKER
        self.leader_epoch = NO_LEADER_EPOCH
        self.controller_epoch = 0
        self.replicas: tuple[BrokerId, ...] = ()
        self.adding_replicas: tuple[BrokerId, ...] = ()
        self.removing_replicas: tuple[BrokerId, ...] = ()
        self.watchers = Watchers()
        """Woken when high watermark, last stable offset or log start moved, or the role changed."""
        self.end_watchers = Watchers()
        """Woken when log end or log start moved, or the role changed: follower fetches wait here."""
        self.low_watermark_watchers = Watchers()
        """Woken when a replica's log start moved, or the role changed: DeleteRecords waits here."""
        self.on_high_watermark_wanted: Callable[[], None] | None = None
        """Set by the fetcher: the next fetch must ask for new high watermarks."""
        self._context = context
        self._purgatory = context.purgatory
        self.throttled = throttled_roles(log.settings, topic_partition, context.broker_id)
        self.traffic = context.traffic.of(topic_partition.topic)
        log.on_start_moved = self._wake_all_watchers

    def __repr__(self) -> str:
        role = "no role" if self.role is None else type(self.role).__name__
        return f"Partition({self.topic_partition}, {role}, epoch {self.leader_epoch})"

    # ---- roles

    def become_leader(self, assignment: PartitionAssignment) -> None:
        """R8. The epoch's start offset is recorded before the first append (R3)."""
        context, log, earlier = self._context, self.log, self.role
        assert assignment.leader == context.broker_id, "only the assigned leader leads (R8)"
        now_ms, leader_before = context.now_ms(), self.leader_id
        self._apply_assignment(assignment)
        log.leader_epochs.assign(assignment.leader_epoch, log.log_end_offset)
        leader = PartitionLeader(
            assignment,
            epoch_start_offset=_epoch_start_offset(log, assignment.leader_epoch),
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            min_in_sync_replicas=log.settings.min_insync_replicas,
            lag_time_max_ms=context.lag_time_max_ms,
            peers=context.peers,
            now_ms=now_ms,
        )
        if isinstance(earlier, PartitionLeader):
            leader.leading_since_epoch = earlier.leading_since_epoch
            inherit_reasons(leader, earlier)
        else:
            record_previous_leader(leader, leader_before)
        self.role = leader
        self.leader = None if context.is_suspended else leader
        self._wake_all_watchers()
        if not context.is_suspended:
            self.perform(leader, leader.on_elected(now_ms))

    def become_follower(self, assignment: PartitionAssignment) -> None:
        """R9. Waiting requests fail, so that their clients look for the new leader."""
        self._apply_assignment(assignment)
        is_in_sync = self._context.broker_id in assignment.in_sync_replicas
        self.role = PartitionFollower(self.log, assignment.leader_epoch, is_assigned_in_sync=is_in_sync)
        self._wake_all_watchers()

    def restart_following(self) -> None:
        """Another fetcher takes over in the same leader epoch: responses to earlier requests are ignored."""
        is_in_sync = isinstance(self.role, PartitionFollower) and self.role.is_in_sync
        self.role = PartitionFollower(self.log, self.leader_epoch, is_assigned_in_sync=is_in_sync)

    def _apply_assignment(self, assignment: PartitionAssignment) -> None:
        assert assignment.leader_epoch > self.leader_epoch, "epochs only grow (R7)"
        self.role = self.leader = None
        self.leader_id = assignment.leader
        self.leader_epoch = assignment.leader_epoch
        self.controller_epoch = assignment.controller_epoch
        self.replicas = assignment.replicas
        self.adding_replicas = assignment.adding_replicas
        self.removing_replicas = assignment.removing_replicas

    def resign(self) -> None:
        """No role until the controller assigns one. Waiting requests fail at once."""
        self.role = self.leader = None
        self._wake_all_watchers()

    def forget_epoch(self) -> None:
        """The broker registers again: the controller may assign a role in the same leader epoch."""
        self.leader_id, self.leader_epoch = NO_BROKER, NO_LEADER_EPOCH
        self.resign()

    def suspend(self) -> None:
        """The broker may have lost its session, or the partition has another leader: it stops acting as leader."""
        if self.leader is not None:
            self.leader = None
            self._wake_all_watchers()

    def resume(self) -> None:
        """The session is still alive: lead again in the same epoch."""
        leader = self.role
        if isinstance(leader, PartitionLeader) and self.leader is None and not leader.is_superseded:
            self.leader = leader
            self.perform(leader, leader.on_resume(self._context.now_ms()))
            self._wake_all_watchers()

    def _wake_all_watchers(self) -> None:
        for watchers in (self.watchers, self.end_watchers, self.low_watermark_watchers):
            if watchers:
                self._purgatory.changed(watchers)

    def require_leader(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> PartitionLeader:
        """R16: raises unless this broker leads the partition in the epoch that the client names.

        Also checks the store session: a process that was suspended finds it expired before any timer has run.
        """
        leader = self.leader
        if (
            leader is None
            or (current_leader_epoch != NO_LEADER_EPOCH and current_leader_epoch != leader.leader_epoch)
            or not self._context.store().is_session_alive
        ):
            raise _not_leader(self, current_leader_epoch)
        return leader

    @property
    def is_acting_leader(self) -> bool:
        return self.leader is not None and self._context.store().is_session_alive

    def require_leader_for_reading(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> PartitionLeader:
        """The leader, also while suspended: committed records stay committed under any later leader."""
        leader = self.role
        if not isinstance(leader, PartitionLeader) or (
            current_leader_epoch != NO_LEADER_EPOCH and current_leader_epoch != leader.leader_epoch
        ):
            raise _not_leader(self, current_leader_epoch)
        return leader

    def replace_log(self, log: Log) -> None:
        """R30: the future log replaces the current one. It has the same records, offsets and epochs."""
        self.log = log
        log.on_start_moved = self._wake_all_watchers
        if isinstance(self.role, PartitionFollower):
            self.role.log = log

    # ---- as leader

    def append_as_leader(
        self,
        batch: memoryview,
        acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        prepared: PreparedBatch | None = None,
    ) -> AppendResult:
        leader = self.require_leader()
        if acks == ACKS_ALL:
            leader.require_enough_in_sync()
        log, watchers, now_ms = self.log, self.end_watchers, self._context.now_ms
        result = log.append_as_leader(batch, leader.leader_epoch, origin, prepared)
        effects = leader.on_append(log.log_end_offset, now_ms())
        if watchers.operations or watchers.observers:  # inlined `bool(watchers)`: this runs for every append
            self._purgatory.changed(watchers)
        if effects is not None:
            self.perform(leader, effects)
        traffic = self.traffic
        traffic.produces += 1
        traffic.bytes_in += len(batch)
        traffic.messages_in += result.last_offset - result.first_offset + 1
        return result

    def fetch_records(
        self,
        params: FetchParams,
        request: FetchPartition,
        max_bytes: int,
        *,
        at_least_one_batch: bool = True,
        may_block: bool = False,
        recorded_at_ms: int | None = None,
    ) -> PartitionData:
        """One partition of a Fetch (R15 to R17, R39): check the reader, compare epochs, record progress, read.

        Followers read from the leader. Consumers read from any replica, up to its own high watermark, unless the leader
        names a replica that is nearer to them (R23).

        `recorded_at_ms` is the arrival time of a follower's request. Without it nothing changes here, so that a
        repeated read, or one in a worker, does not count as another fetch. Raises the error for the response.
        """
        log, offset = self.log, request.fetch_offset
        assert params.is_follower or recorded_at_ms is None, "only fetches of followers are recorded (R17)"
        role: PartitionLeader | PartitionFollower
        if params.is_follower:
            role = self.require_leader(request.current_leader_epoch)
            check_follower(role, params, is_recorded=recorded_at_ms is not None)
        else:
            role = self._require_replica(params, request.current_leader_epoch)
            if params.same_rack and isinstance(role, PartitionLeader):
                preferred = preferred_read_replica(role, params.same_rack, offset)
                if preferred is not None:
                    data = without_records(log, request)
                    data.preferred_read_replica = preferred
                    return data
        diverging = None
        if request.last_fetched_epoch >= 0:
            diverging = log.leader_epochs.diverging_epoch(request.last_fetched_epoch, offset, log.log_end_offset)
        if recorded_at_ms is not None and diverging is None and log.log_start_offset <= offset <= log.log_end_offset:
            assert isinstance(role, PartitionLeader)
            effects = role.on_follower_fetch(params.replica_id, offset, request.log_start_offset, recorded_at_ms)
            self.perform(role, effects)
        return read_records(
            log,
            params,
            request,
            max_bytes,
            diverging=diverging,
            at_least_one_batch=at_least_one_batch,
            may_block=may_block,
        )

    def _require_replica(self, params: FetchParams, current_leader_epoch: int) -> PartitionLeader | PartitionFollower:
        """The role in which this broker serves a consumer. Also while suspended: see `require_leader_for_reading`."""
        role = self.role
        if (
            role is None
            or (params.fetch_only_leader and not isinstance(role, PartitionLeader))
            or (current_leader_epoch != NO_LEADER_EPOCH and current_leader_epoch != role.leader_epoch)
        ):
            raise _not_leader(self, current_leader_epoch)
        return role

    def is_ready_to_fetch(self, params: FetchParams, request: FetchPartition) -> bool:
        """Whether `fetch_records` would return what the reader waits for, or raise; decided without a read."""
        role, log = self.leader if params.is_follower else self.role, self.log
        if isinstance(role, PartitionLeader):
            # A follower names its own high watermark (KIP-1166, R23).
            has_newer_high_watermark = request.high_watermark < log.high_watermark
            if params.is_follower and (has_newer_high_watermark or params.replica_id not in role.followers):
                return True
        elif role is None or params.fetch_only_leader:
            return True
        if request.current_leader_epoch not in (NO_LEADER_EPOCH, role.leader_epoch):
            return True
        end = readable_end(log, params.isolation_level, is_follower=params.is_follower)
        return request.fetch_offset < end or request.fetch_offset > log.log_end_offset

    def on_consumer_waits(self) -> None:
        """A consumer waits for records at this follower, so new high watermarks are needed at once (R23)."""
        role = self.role
        if isinstance(role, PartitionFollower) and role.on_consumer_waits() and self.on_high_watermark_wanted:
            self.on_high_watermark_wanted()

    def perform(self, leader: PartitionLeader, effects: LeaderEffects | None) -> None:
        """Perform the leader's effects on log, store and watchers. This is the only place that does.

        R20: a response of the store may arrive late. Effects of a former leader are ignored, its high watermark too.
        """
        if effects is None or self.role is not leader:
            return
        if effects.high_watermark is not None:
            has_moved = self.log.raise_high_watermark(effects.high_watermark)
            assert self.log.high_watermark == leader.high_watermark, "log and leader have the same high watermark (I5)"
            watchers = self.watchers
            if has_moved and (watchers.operations or watchers.observers):
                self._purgatory.changed(watchers)
        if effects.proposal is not None:
            self._context.propose(self, leader, effects.proposal)
        if effects.have_in_sync_replicas_changed:
            self._wake_all_watchers()
        elif effects.has_low_watermark_moved and self.low_watermark_watchers:
            self._purgatory.changed(self.low_watermark_watchers)

    def configure(self, settings: TopicSettings) -> None:
        """New settings apply from the next append on."""
        self.log.settings = settings
        self.throttled = throttled_roles(settings, self.topic_partition, self._context.broker_id)
        leader = self.role
        if isinstance(leader, PartitionLeader) and leader.min_in_sync_replicas != settings.min_insync_replicas:
            self.perform(leader, leader.on_settings(settings.min_insync_replicas, self._context.now_ms()))

    # ---- as follower

    def append_as_follower(
        self, records: Buffer, *, leader_epoch: int, leader_high_watermark: int, leader_log_start_offset: int
    ) -> None:
        """R28: records first, then high watermark, then log start offset."""
        self._require_following(leader_epoch)
        log = self.log
        if len(records):
            appended = log.append_as_follower(records, leader_epoch, leader_log_start_offset)
            self._context.traffic.replication_bytes_in += len(records)
            if self._context.broker_id in self.adding_replicas:
                self._context.traffic.reassignment_bytes_in += len(records)
            watchers = self.end_watchers
            if appended is not None and (watchers.operations or watchers.observers):  # as in `append_as_leader`
                self._purgatory.changed(watchers)
        watchers = self.watchers
        if log.raise_high_watermark(leader_high_watermark) and (watchers.operations or watchers.observers):
            self._purgatory.changed(watchers)
        if log.log_start_offset < leader_log_start_offset <= log.high_watermark:
            log.advance_log_start_offset(leader_log_start_offset)

    def truncate_to(self, offset: int, *, leader_epoch: int) -> None:
        """Truncate, never below the log start offset."""
        self._require_following(leader_epoch)
        end_before, committed_before = self.log.log_end_offset, self.log.high_watermark
        self.log.truncate_to(max(offset, self.log.log_start_offset))
        self._context.traffic.count_truncated(end_before, committed_before, self.log.log_end_offset)
        self._wake_all_watchers()

    def truncate_fully_and_start_at(self, offset: int, *, leader_epoch: int) -> None:
        self._require_following(leader_epoch)
        log = self.log
        start_before, end_before, committed_before = log.log_start_offset, log.log_end_offset, log.high_watermark
        log.truncate_fully_and_start_at(offset)
        if offset < end_before:  # else the leader's log starts after the end of this one: retention, not loss
            self._context.traffic.count_truncated(end_before, committed_before, max(offset, start_before))
        self._wake_all_watchers()

    def _require_following(self, leader_epoch: int) -> None:
        if not isinstance(self.role, PartitionFollower) or leader_epoch != self.role.leader_epoch:
            raise NotLeaderOrFollower(f"{self.topic_partition} does not follow in leader epoch {leader_epoch}")

    # ---- DeleteRecords

    def delete_records_before(self, offset: int) -> int:
        """Advance the log start offset; followers do the same. Returns the offset that `low_watermark` has to reach.

        An offset of -1 means the high watermark.
        """
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
        return target

    def low_watermark(self) -> int:
        """Smallest log start offset of the live replicas."""
        return self.require_leader().low_watermark(self.log.log_start_offset)

    # ---- metrics and log lines

    @property
    def is_leader(self) -> bool:
        """Whether the controller made this broker the leader; also while suspended."""
        return isinstance(self.role, PartitionLeader)

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def in_sync_replicas(self) -> list[BrokerId]:
        """The ISR as this leader has it; empty on a follower."""
        leader = self.role
        if not isinstance(leader, PartitionLeader):
            return []
        return [each for each in self.replicas if each in leader.in_sync_replicas]


def _epoch_start_offset(log: Log, leader_epoch: int) -> int:
    """Start offset of the leader epoch; before the log end if this broker led in the same epoch before."""
    latest = log.leader_epochs.starts[-1:]
    return latest[0].start_offset if latest and latest[0].epoch == leader_epoch else log.log_end_offset


def _not_leader(partition: Partition, current_leader_epoch: int) -> KafkaError:
    """The error for a client that expects this broker to lead in another epoch, or at all."""
    if current_leader_epoch not in (NO_LEADER_EPOCH, partition.leader_epoch) and partition.leader_epoch >= 0:
        text = f"{partition.topic_partition} is in leader epoch {partition.leader_epoch}, not {current_leader_epoch}"
        return (FencedLeaderEpoch if current_leader_epoch < partition.leader_epoch else UnknownLeaderEpoch)(text)
    return NotLeaderOrFollower(f"this broker does not act as leader of {partition.topic_partition}")
