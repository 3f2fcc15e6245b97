"""The leader's core: who is in sync with this partition, and what is therefore committed."""

# Core: no clock, no I/O, no await.

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from tidelog.cluster.image import NO_INCARNATION
from tidelog.errors import NotEnoughReplicas
from tidelog.replication.assignment import PartitionAssignment
from tidelog.replication.remote_replica import (
    UNKNOWN_BROKER_EPOCH,
    Peers,
    RemoteReplica,
)
from tidelog.types import BrokerId


class ProposeInSyncReplicas(NamedTuple):
    """To be written to the store, if the state there still has the expected version (R20)."""

    in_sync_replicas: tuple[BrokerId, ...]
    expected_version: int
    joining: tuple[BrokerId, ...]
    leaving: tuple[BrokerId, ...]
    reason: str
    epochs: Mapping[BrokerId, int]
    """The incarnation of each of them that is in sync (R41): others may be there when it is written (KIP-903)."""
    eligible_epochs: Mapping[BrokerId, int]
    """Who is eligible from then on, and in which incarnation (R42)."""


class LeaderEffects(NamedTuple):
    """All that the leader's core decided on one event, for its owner to perform in the same step."""

    high_watermark: int | None = None
    """Where it is now, if it has moved: the log gets it, and who waits for it is woken."""
    proposal: ProposeInSyncReplicas | None = None
    has_low_watermark_moved: bool = False
    """A follower's log start moved, or other followers count: deletions of records may be complete."""
    have_in_sync_replicas_changed: bool = False
    """R20: acks=all writes may have to be answered NOT_ENOUGH_REPLICAS_AFTER_APPEND."""


class PartitionLeader:
    """One leader epoch. Decides; does no I/O and knows no clock."""

    __slots__ = (
        "_at_end",
        "_given_high_watermark",
        "_has_followers_in_sync",
        "_may_commit",
        "broker_epoch",
        "broker_id",
        "eligible_epochs",
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
        assert high_watermark <= log_end_offset, "nothing is committed that is not there (R4)"
        assert epoch_start_offset <= log_end_offset, "an epoch starts in the log, or at its end (R3)"
        self.broker_id = assignment.leader
        self.broker_epoch = assignment.broker_epoch
        self.leader_epoch = assignment.leader_epoch
        self.leading_since_epoch = assignment.leader_epoch
        """The first of the epochs in which this broker has led without a break."""
        self.replicas = assignment.replicas
        self.in_sync_replicas = frozenset(assignment.in_sync_replicas)
        """As the store has them: committed."""
        self.eligible_epochs = dict(assignment.eligible_epochs)
        """As the store has them (R42). As long as there are any, nothing more is committed."""
        self.version = assignment.version
        self.pending: ProposeInSyncReplicas | None = None
        self.is_superseded = False
        """Somebody else changed the state in the store: wait for the controller to say how (R20)."""
        self.epoch_start_offset = epoch_start_offset
        self.log_end_offset = log_end_offset
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

    def on_office(self, now_ms: int) -> LeaderEffects | None:
        """Took office. The controller may have known another min ISR."""
        return self._decided(self._propose_waiting(now_ms))

    def on_append(self, log_end_offset: int, now_ms: int) -> LeaderEffects | None:
        assert log_end_offset >= self.log_end_offset, "a leader never cuts its log (I5)"
        if self._at_end:
            self._leave_behind()
        self.log_end_offset = log_end_offset
        if self._has_followers_in_sync:
            return None
        self.maybe_increment_high_watermark(now_ms)
        if self.high_watermark == self._given_high_watermark:
            return None
        self._given_high_watermark = self.high_watermark  # as `_decided`, without a call for each append
        return LeaderEffects(self.high_watermark)

    def on_follower_fetch(
        self, replica: BrokerId, fetch_offset: int, log_start_offset: int, now_ms: int
    ) -> LeaderEffects | None:
        """R17; the follower may now be in sync, and more may be committed."""
        follower = self.followers[replica]
        if fetch_offset > self.log_end_offset:
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
            proposal = self._propose((), (replica,), "came back without records that it had")
        self.maybe_increment_high_watermark(now_ms)
        return self._decided(proposal, has_low_watermark_moved=has_log_start_moved)

    def on_check(self, now_ms: int) -> LeaderEffects | None:
        """R19: who has not caught up for too long leaves."""
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
        eligible_epochs: Mapping[BrokerId, int] | None = None,
    ) -> LeaderEffects | None:
        """The store has this state of ours. Another follower may have become ready to join meanwhile.

        `eligible_epochs`, where they are not those that were proposed.
        """
        reason = self.pending.reason if self.pending else ""
        if eligible_epochs is None:
            eligible_epochs = self.pending.eligible_epochs if self.pending else {}
        self.eligible_epochs = dict(eligible_epochs)
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
        """The state in the store is not the one this leader knows: a newer truth is on its way (R20)."""
        self.is_superseded = True
        self.refresh_maximal_isr()

    def on_peers_changed(self, now_ms: int) -> LeaderEffects | None:
        """A broker came, went or came back: who may join is another question now (KAFKA-15021)."""
        self.maybe_increment_high_watermark(now_ms)
        return self._decided(self._propose_waiting(now_ms), has_low_watermark_moved=True)

    def on_settings(self, min_in_sync_replicas: int, now_ms: int) -> LeaderEffects | None:
        self.min_in_sync_replicas = min_in_sync_replicas
        self.refresh_maximal_isr()
        self.maybe_increment_high_watermark(now_ms)
        return self._decided(self._propose_waiting(now_ms))

    def on_resume(self, now_ms: int) -> LeaderEffects | None:
        """Back in office in the same epoch: nobody could fetch meanwhile, and nobody leaves for it."""
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
        """Every move of the high watermark is given to the owner, and once. None if nothing was decided."""
        moved = None
        if self.high_watermark != self._given_high_watermark:
            assert self._given_high_watermark < self.high_watermark <= self.log_end_offset, "it only rises (R4, I5)"
            moved = self._given_high_watermark = self.high_watermark
        elif proposal is None and not has_low_watermark_moved and not have_in_sync_replicas_changed:
            return None
        return LeaderEffects(moved, proposal, has_low_watermark_moved, have_in_sync_replicas_changed)

    # ---- questions

    @property
    def effective_min_in_sync(self) -> int:
        """As Kafka: a topic cannot ask for more than it has replicas."""
        return min(self.min_in_sync_replicas, len(self.replicas))

    def require_enough_in_sync(self) -> None:
        """R13: an acks=all write is refused before the append where it could not count as safe."""
        if not self.has_enough_in_sync:
            raise NotEnoughReplicas(
                f"{len(self.in_sync_replicas)} in-sync replicas, "
                f"min.insync.replicas asks for {self.effective_min_in_sync}"
            )

    def low_watermark(self, log_start_offset: int) -> int:
        """The smallest log start of the live replicas: records below it are gone everywhere."""
        live = [each.log_start_offset for each in self.followers.values() if each.broker_id in self.peers.epochs]
        return min(log_start_offset, *live) if live else log_start_offset

    @property
    def is_under_replicated(self) -> bool:
        return len(self.in_sync_replicas) < len(self.replicas)

    @property
    def is_at_min_isr(self) -> bool:
        return len(self.in_sync_replicas) == self.effective_min_in_sync

    # ---- who is in sync

    def _is_keeping_up(self, replica: BrokerId, now_ms: int) -> bool:
        if replica == self.broker_id:
            return True
        follower = self.followers.get(replica)
        # An in-sync replica that is not assigned any more has no follower here, and leaves (KAFKA-9672).
        return follower is not None and follower.is_caught_up(self.log_end_offset, now_ms, self.lag_time_max_ms)

    def is_isr_eligible(self, follower: RemoteReplica) -> bool:
        """Alive, and in the incarnation that fetched (R39)."""
        epoch = self.peers.epochs.get(follower.broker_id)
        if epoch is None:
            return False
        return UNKNOWN_BROKER_EPOCH in (epoch, follower.broker_epoch) or epoch == follower.broker_epoch

    @property
    def surely_committed_offset(self) -> int:
        """Nothing above it is committed, nor was in an earlier epoch: this leader's high watermark may be late."""
        return max(self.high_watermark, self.epoch_start_offset)

    @property
    def joining_offset(self) -> int:
        """What a follower must have reached to join (R19).

        Under the minimum only the end of the log will do: the high watermark stands still there, and a slow
        follower would join and leave without end (KAFKA-19996).
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
        """Those who could not join when they fetched, and may not fetch again since nothing moves.

        Not those who have fallen silent: who has just left may still be at the high watermark.
        Where enough are in sync already, nobody else needs to be eligible: the high watermark waits for that (R42).
        """
        joining = self._propose_joining(
            follower
            for follower in self.followers.values()
            if follower.is_caught_up(self.log_end_offset, now_ms, self.lag_time_max_ms)
        )
        if joining is None and self.eligible_epochs and self.has_enough_in_sync:
            return self._propose((), (), "enough replicas are in sync (min.insync.replicas)")
        return joining

    def _propose(
        self, joining: tuple[BrokerId, ...], leaving: tuple[BrokerId, ...], reason: str
    ) -> ProposeInSyncReplicas | None:
        """One change at a time (R20)."""
        if self.pending is not None or self.is_superseded:
            return None
        assert self.broker_id not in leaving, "a leader does not leave its own in-sync replicas (I1)"
        assert self.in_sync_replicas.isdisjoint(joining), "nobody joins twice (R19)"
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
        """KIP-966: below min ISR whoever was in sync may still lead, for nothing more is committed from now on."""
        if len(in_sync_replicas) >= self.effective_min_in_sync:
            return {}
        leaving = {each: self._incarnation(each) for each in self.in_sync_replicas}
        known = {**self.eligible_epochs, **leaving}
        return {
            replica: known[replica]
            for replica in self.replicas
            if replica in known and replica not in in_sync_replicas and known[replica] != NO_INCARNATION
        }

    # ---- the high watermark

    def refresh_maximal_isr(self) -> None:
        """What appends need to know of those in sync.

        R18: also who joins by a change that is not known to be written yet; it may be written (KIP-497).
        """
        joining = self.pending.joining if self.pending else ()
        self.maximal_isr = self.in_sync_replicas.union(joining)
        self._has_followers_in_sync = any(replica in self.maximal_isr for replica in self.followers)
        self.has_enough_in_sync = len(self.in_sync_replicas) >= self.effective_min_in_sync
        self._may_commit = self.has_enough_in_sync and not self.is_superseded and not self.eligible_epochs

    def maybe_increment_high_watermark(self, now_ms: int) -> None:
        if not self._may_commit:
            return
        committed = self.log_end_offset
        for follower in self.followers.values():
            if follower.log_end_offset < committed and self.holds_back_high_watermark(follower, now_ms):
                committed = follower.log_end_offset
        if committed > self.high_watermark:
            self.high_watermark = committed

    def holds_back_high_watermark(self, follower: RemoteReplica, now_ms: int) -> bool:
        """Also one that has caught up and may join: else a slow follower never reaches a fast leader (R18)."""
        return follower.broker_id in self.maximal_isr or (
            follower.is_caught_up(self.log_end_offset, now_ms, self.lag_time_max_ms) and self.is_isr_eligible(follower)
        )

    def _leave_behind(self) -> None:
        """The log grows beyond followers that had all of it, as lately as their brokers' last fetch.

        That fetch need not have named this partition: fetch sessions leave out what does not move.
        """
        for follower in self._at_end:
            follower.is_listed_at_end = False
            if follower.log_end_offset == self.log_end_offset:
                last_ms = self.peers.last_fetch_ms.get(follower.broker_id, 0)
                follower.caught_up_ms = max(follower.caught_up_ms, last_ms)
        self._at_end.clear()
