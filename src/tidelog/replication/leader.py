"""Leader role of one partition: in-sync replicas, high watermark and ISR proposals (R13, R17 to R20)."""

# Core: no clock, no I/O, no await.

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from tidelog.cluster.image import NO_INCARNATION
from tidelog.errors import NotEnoughReplicas
from tidelog.replication.assignment import PartitionAssignment
from tidelog.replication.remote_replica import (
    NEVER_MS,
    UNKNOWN_BROKER_EPOCH,
    Peers,
    RemoteReplica,
)
from tidelog.types import BrokerId


class ProposeInSyncReplicas(NamedTuple):
    """ISR change for the store, valid only if the state there still has the expected version (R20)."""

    in_sync_replicas: tuple[BrokerId, ...]
    expected_version: int
    joining: tuple[BrokerId, ...]
    leaving: tuple[BrokerId, ...]
    reason: str
    epochs: Mapping[BrokerId, int]
    """Broker epoch in which each of them is in sync (R41): a broker may restart before the write (KIP-903)."""
    eligible_leader_epochs: Mapping[BrokerId, int]
    """Eligible leader replicas after the change, with their broker epochs (R42)."""


class LeaderEffects(NamedTuple):
    """Everything that the leader decided on one event. Its partition performs it in the same step."""

    high_watermark: int | None = None
    """The new high watermark, if it moved: it goes to the log, and its watchers are woken."""
    proposal: ProposeInSyncReplicas | None = None
    has_low_watermark_moved: bool = False
    """The low watermark may have risen: DeleteRecords requests may be complete."""
    have_in_sync_replicas_changed: bool = False
    """R20: acks=all writes may now fail with NOT_ENOUGH_REPLICAS_AFTER_APPEND."""


_new_effects = tuple.__new__  # half the time of the named tuple's own constructor


class PartitionLeader:
    """Leader of one partition in one leader epoch. It only decides: no I/O, no clock."""

    __slots__ = (
        "_at_end",
        "_given_high_watermark",
        "_has_followers_in_sync",
        "_may_commit",
        "broker_epoch",
        "broker_id",
        "confirmed_ms",
        "eligible_leader_epochs",
        "epoch_start_offset",
        "followers",
        "has_enough_in_sync",
        "high_watermark",
        "in_sync_replicas",
        "is_superseded",
        "lag_time_max_ms",
        "leader_epoch",
        "leading_since_epoch",
        "log_end_offset",
        "maximal_isr",
        "min_in_sync_replicas",
        "peers",
        "pending",
        "replicas",
        "replication_factor",
        "version",
    )

    def __init__(
        self,
        assignment: PartitionAssignment,
        *,
        epoch_start_offset: int,
        log_end_offset: int,
        high_watermark: int,
        min_in_sync_replicas: int,
        lag_time_max_ms: int,
        peers: Peers,
        now_ms: int,
    ) -> None:
        assert assignment.leader in assignment.in_sync_replicas, "the leader is in sync with itself (I1)"
        assert high_watermark <= log_end_offset, "the high watermark is inside the log (R4)"
        assert epoch_start_offset <= log_end_offset, "an epoch starts in the log, or at its end (R3)"
        self.broker_id = assignment.leader
        self.broker_epoch = assignment.broker_epoch
        self.leader_epoch = self.leading_since_epoch = assignment.leader_epoch
        """`leading_since_epoch` is the first of the consecutive epochs in which this broker led the partition."""
        self.replicas = assignment.replicas
        self.replication_factor = len(set(assignment.replicas).difference(assignment.adding_replicas))
        """As Kafka: replicas that a reassignment is adding count when it is complete (R37)."""
        self.in_sync_replicas = frozenset(assignment.in_sync_replicas)
        """The ISR in the store, which is the committed one."""
        self.eligible_leader_epochs = dict(assignment.eligible_leader_epochs)
        """Eligible leader replicas in the store (R42). The high watermark does not advance while there are any."""
        self.version = assignment.version
        self.pending: ProposeInSyncReplicas | None = None
        self.confirmed_ms = NEVER_MS
        """When the store last confirmed that this broker leads (`leader_confirmation.py`)."""
        self.is_superseded = False
        """Another broker changed the state in the store: no proposals until the controller sends it (R20)."""
        self.epoch_start_offset, self.log_end_offset = epoch_start_offset, log_end_offset
        self.high_watermark = self._given_high_watermark = high_watermark
        self.min_in_sync_replicas = min_in_sync_replicas
        self.lag_time_max_ms = lag_time_max_ms
        self.followers = {
            replica: RemoteReplica(
                replica,
                now_ms,
                is_in_sync=replica in self.in_sync_replicas,
                in_sync_epoch=assignment.in_sync_epochs.get(replica, UNKNOWN_BROKER_EPOCH),
            )
            for replica in assignment.replicas
            if replica != assignment.leader
        }
        self.peers = peers
        self._at_end: list[RemoteReplica] = []
        self.refresh_maximal_isr()
        self.maybe_increment_high_watermark(now_ms)

    # ---- events

    def on_elected(self, now_ms: int) -> LeaderEffects | None:
        """First event of the epoch. The controller may have used another min.insync.replicas."""
        return self._decided(self._propose_waiting(now_ms))

    def on_append(self, log_end_offset: int, now_ms: int) -> LeaderEffects | None:
        assert log_end_offset >= self.log_end_offset, "a leader never truncates its log (I5)"
        if self._at_end:
            self._mark_followers_behind()
        self.log_end_offset = log_end_offset
        if self._has_followers_in_sync:
            # The high watermark waits for their fetches. This is the usual case of an append.
            return None
        self.maybe_increment_high_watermark(now_ms)
        if self.high_watermark == self._given_high_watermark:
            return None
        self._given_high_watermark = self.high_watermark  # inlined `_decided`: this runs for every append
        return _new_effects(LeaderEffects, (self.high_watermark, None, False, False))

    def on_follower_fetch(
        self, replica: BrokerId, fetch_offset: int, log_start_offset: int, now_ms: int
    ) -> LeaderEffects | None:
        """R17: records the follower's progress. It may join the ISR, and the high watermark may advance."""
        follower = self.followers[replica]
        if fetch_offset > self.log_end_offset:
            # The logs have diverged: this offset says nothing about records of this log.
            return None
        has_log_start_moved = follower.log_start_offset != log_start_offset
        follower.on_fetch(fetch_offset, log_start_offset, self.log_end_offset, now_ms)
        if fetch_offset == self.log_end_offset and not follower.is_listed_at_end:
            follower.is_listed_at_end = True
            self._at_end.append(follower)
        if follower.in_sync_epoch != follower.broker_epoch and fetch_offset >= self.surely_committed_offset:
            follower.on_reached_committed()
        proposal = None
        if replica not in self.in_sync_replicas:
            proposal = self._propose_joining([follower])
        elif fetch_offset < self.high_watermark and follower.has_restarted:
            # It is in the ISR with an earlier broker epoch, and has lost committed records since.
            proposal = self._propose((), (replica,), "restarted without records that it had")
        self.maybe_increment_high_watermark(now_ms)
        return self._decided(proposal, has_low_watermark_moved=has_log_start_moved)

    def on_check(self, now_ms: int) -> LeaderEffects | None:
        """R19: followers that have not caught up for replica.lag.time.max.ms leave the ISR."""
        self.maybe_increment_high_watermark(now_ms)
        lagging = [replica for replica in self.in_sync_replicas if not self._is_keeping_up(replica, now_ms)]
        if lagging:
            reason = f"not caught up for {self.lag_time_max_ms} ms (replica.lag.time.max.ms)"
            return self._decided(self._propose((), tuple(sorted(lagging)), reason))
        return self._decided(self._propose_waiting(now_ms))

    def on_written(
        self,
        in_sync_replicas: Sequence[BrokerId],
        version: int,
        now_ms: int,
        eligible_leader_epochs: Mapping[BrokerId, int] | None = None,
    ) -> LeaderEffects | None:
        """The store has the proposed ISR. Another follower may be ready to join by now.

        `eligible_leader_epochs` is given if it differs from the proposal.
        """
        reason = self.pending.reason if self.pending else ""
        if eligible_leader_epochs is None:
            eligible_leader_epochs = self.pending.eligible_leader_epochs if self.pending else {}
        self.eligible_leader_epochs = dict(eligible_leader_epochs)
        before, self.in_sync_replicas = self.in_sync_replicas, frozenset(in_sync_replicas)
        self.version = version
        self.pending = None
        for replica in before - self.in_sync_replicas:
            if replica in self.followers:
                self.followers[replica].leave(reason, now_ms)
        self.refresh_maximal_isr()
        # KAFKA-13091: a shrink may commit what the replica that left held back.
        self.maybe_increment_high_watermark(now_ms)
        return self._decided(self._propose_waiting(now_ms), have_in_sync_replicas_changed=True)

    def on_lost(self) -> None:
        """The state in the store is newer than this leader's; the controller will send it (R20)."""
        self.is_superseded = True
        self.refresh_maximal_isr()

    def on_peers_changed(self, now_ms: int) -> LeaderEffects | None:
        """A broker registered, restarted or left: other followers may join the ISR now (KAFKA-15021)."""
        self.maybe_increment_high_watermark(now_ms)
        return self._decided(self._propose_waiting(now_ms), has_low_watermark_moved=True)

    def on_settings(self, min_in_sync_replicas: int, now_ms: int) -> LeaderEffects | None:
        self.min_in_sync_replicas = min_in_sync_replicas
        self.refresh_maximal_isr()
        self.maybe_increment_high_watermark(now_ms)
        return self._decided(self._propose_waiting(now_ms))

    def on_resume(self, now_ms: int) -> LeaderEffects | None:
        """Leads again in the same epoch. No follower could fetch meanwhile, so none leaves the ISR for it."""
        for replica in self.in_sync_replicas - {self.broker_id}:
            if replica in self.followers:
                self.followers[replica].caught_up_ms = now_ms
        return self._decided(None)

    def _decided(
        self,
        proposal: ProposeInSyncReplicas | None,
        *,
        has_low_watermark_moved: bool = False,
        have_in_sync_replicas_changed: bool = False,
    ) -> LeaderEffects | None:
        """The effects of one event; None if there are none. Each advance of the high watermark is reported once."""
        moved = None
        if self.high_watermark != self._given_high_watermark:
            assert self._given_high_watermark < self.high_watermark <= self.log_end_offset, (
                "the high watermark only rises (R4, I5)"
            )
            moved = self._given_high_watermark = self.high_watermark
        elif proposal is None and not has_low_watermark_moved and not have_in_sync_replicas_changed:
            return None
        return LeaderEffects(moved, proposal, has_low_watermark_moved, have_in_sync_replicas_changed)

    # ---- queries

    @property
    def effective_min_in_sync(self) -> int:
        """As in Kafka: min.insync.replicas counts no more than the number of replicas."""
        return min(self.min_in_sync_replicas, self.replication_factor)

    def require_enough_in_sync(self) -> None:
        """R13: an acks=all write is rejected before the append while the ISR is below the minimum."""
        if not self.has_enough_in_sync:
            raise NotEnoughReplicas(
                f"{len(self.in_sync_replicas)} in-sync replicas, "
                f"min.insync.replicas asks for {self.effective_min_in_sync}"
            )

    def low_watermark(self, log_start_offset: int) -> int:
        """Smallest log start offset of the live replicas: records below it are deleted on all of them."""
        live = [each.log_start_offset for each in self.followers.values() if each.broker_id in self.peers.epochs]
        return min(log_start_offset, *live) if live else log_start_offset

    @property
    def is_under_replicated(self) -> bool:
        return len(self.in_sync_replicas) < self.replication_factor

    @property
    def is_at_min_isr(self) -> bool:
        return len(self.in_sync_replicas) == self.effective_min_in_sync

    # ---- in-sync replicas

    def _is_keeping_up(self, replica: BrokerId, now_ms: int) -> bool:
        if replica == self.broker_id:
            return True
        follower = self.followers.get(replica)
        # An in-sync replica that is no longer assigned has no RemoteReplica and leaves the ISR (KAFKA-9672).
        return follower is not None and follower.is_caught_up(self.log_end_offset, now_ms, self.lag_time_max_ms)

    def has_silent_followers(self, now_ms: int) -> bool:
        """Whether the broker of an in-sync follower has fetched nothing for replica.lag.time.max.ms.

        False while an ISR change is being written, which finds out, too.
        """
        last_fetch_ms = self.peers.last_fetch_ms
        return self.pending is None and any(
            now_ms - max(follower.caught_up_ms, last_fetch_ms.get(replica, NEVER_MS)) > self.lag_time_max_ms
            for replica, follower in self.followers.items()
            if replica in self.in_sync_replicas
        )

    def is_isr_eligible(self, follower: RemoteReplica) -> bool:
        """The broker is registered with the epoch in which it fetched (R39)."""
        epoch = self.peers.epochs.get(follower.broker_id)
        if epoch is None:
            return False
        return UNKNOWN_BROKER_EPOCH in (epoch, follower.broker_epoch) or epoch == follower.broker_epoch

    @property
    def surely_committed_offset(self) -> int:
        """Upper bound of all records committed in this or an earlier epoch; the high watermark may lag behind."""
        return max(self.high_watermark, self.epoch_start_offset)

    @property
    def joining_offset(self) -> int:
        """Offset that a follower must reach to join the ISR (R19).

        Below min.insync.replicas it is the log end offset: the high watermark does not move then, and a slow
        follower would join and leave again and again (KAFKA-19996).
        """
        if not self.has_enough_in_sync:
            return self.log_end_offset
        return self.surely_committed_offset

    def can_join_isr(self, follower: RemoteReplica) -> bool:
        return (
            follower.has_fetched and follower.log_end_offset >= self.joining_offset and self.is_isr_eligible(follower)
        )

    def _propose_joining(self, followers: Iterable[RemoteReplica]) -> ProposeInSyncReplicas | None:
        joining = tuple(
            follower.broker_id
            for follower in followers
            if follower.broker_id not in self.in_sync_replicas and self.can_join_isr(follower)
        )
        return self._propose(joining, (), "caught up") if joining else None

    def _propose_waiting(self, now_ms: int) -> ProposeInSyncReplicas | None:
        """Add followers that could not join when they fetched: an idle follower may send no further fetch.

        Silent followers are not added: one that has just left may still be at the high watermark.
        If enough replicas are in sync, propose an empty eligible set: the high watermark waits for that (R42).
        """
        joining = self._propose_joining(
            follower
            for follower in self.followers.values()
            if follower.is_caught_up(self.log_end_offset, now_ms, self.lag_time_max_ms)
        )
        if joining is None and self.eligible_leader_epochs and self.has_enough_in_sync:
            return self._propose((), (), "enough replicas are in sync (min.insync.replicas)")
        return joining

    def _propose(
        self, joining: tuple[BrokerId, ...], leaving: tuple[BrokerId, ...], reason: str
    ) -> ProposeInSyncReplicas | None:
        """One ISR change in flight at a time (R20)."""
        if self.pending is not None or self.is_superseded:
            return None
        assert self.broker_id not in leaving, "a leader does not leave its own in-sync replicas (I1)"
        assert self.in_sync_replicas.isdisjoint(joining), "no replica joins twice (R19)"
        proposed = self.in_sync_replicas.union(joining).difference(leaving)
        ordered = tuple(replica for replica in self.replicas if replica in proposed)
        epochs = {replica: self._incarnation(replica) for replica in ordered}
        eligible = self.eligible_without(proposed)
        self.pending = ProposeInSyncReplicas(ordered, self.version, joining, leaving, reason, epochs, eligible)
        self.refresh_maximal_isr()
        return self.pending

    def _incarnation(self, replica: BrokerId) -> int:
        follower = self.followers.get(replica)
        return self.broker_epoch if follower is None else follower.incarnation

    def eligible_without(self, in_sync_replicas: AbstractSet[BrokerId]) -> dict[BrokerId, int]:
        """KIP-966: below min ISR a former in-sync replica may still lead, since nothing more is committed."""
        if len(in_sync_replicas) >= self.effective_min_in_sync:
            return {}
        leaving = {each: self._incarnation(each) for each in self.in_sync_replicas}
        epochs = {**self.eligible_leader_epochs, **leaving}
        return {
            replica: epochs[replica]
            for replica in self.replicas
            if replica in epochs and replica not in in_sync_replicas and epochs[replica] != NO_INCARNATION
        }

    # ---- high watermark

    def refresh_maximal_isr(self) -> None:
        """Cache what every append needs to know about the maximal ISR.

        R18: it includes replicas of a proposed expansion, because the store may have it already (KIP-497).
        """
        joining = self.pending.joining if self.pending else ()
        self.maximal_isr = self.in_sync_replicas.union(joining)
        self._has_followers_in_sync = any(replica in self.maximal_isr for replica in self.followers)
        self.has_enough_in_sync = len(self.in_sync_replicas) >= self.effective_min_in_sync
        self._may_commit = self.has_enough_in_sync and not self.is_superseded and not self.eligible_leader_epochs

    def maybe_increment_high_watermark(self, now_ms: int) -> None:
        if not self._may_commit:
            # Below min ISR, and while others are eligible leaders, nothing new may count as committed (R42).
            return
        committed = self.log_end_offset
        for follower in self.followers.values():
            if follower.log_end_offset < committed and self.holds_back_high_watermark(follower, now_ms):
                committed = follower.log_end_offset
        if committed > self.high_watermark:
            self.high_watermark = committed

    def holds_back_high_watermark(self, follower: RemoteReplica, now_ms: int) -> bool:
        """Includes a caught-up follower that may join: otherwise a slow one never reaches a fast leader (R18)."""
        return follower.broker_id in self.maximal_isr or (
            follower.is_caught_up(self.log_end_offset, now_ms, self.lag_time_max_ms) and self.is_isr_eligible(follower)
        )

    def _mark_followers_behind(self) -> None:
        """The append leaves followers behind that were at the log end until their broker's last fetch.

        That fetch may not have named this partition: fetch sessions omit idle partitions.
        """
        for follower in self._at_end:
            follower.is_listed_at_end = False
            if follower.log_end_offset == self.log_end_offset:
                last_ms = self.peers.last_fetch_ms.get(follower.broker_id, NEVER_MS)
                follower.caught_up_ms = max(follower.caught_up_ms, last_ms)
        self._at_end.clear()
