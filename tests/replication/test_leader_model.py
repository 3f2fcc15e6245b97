"""The leader's core against a model of the store and of followers' logs, with any order of events."""

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.replication.leaders import LAG_MS, START_MS, leader_of
from tidelog.replication.leader import LeaderEffects, PartitionLeader, ProposeInSyncReplicas
from tidelog.replication.remote_replica import RemoteReplica

FOLLOWERS = (2, 3)


class Leadership(RuleBasedStateMachine):
    """One leader epoch of broker 1 with two followers."""

    kind: type[PartitionLeader] = PartitionLeader
    in_sync: tuple[int, ...] = (1, 2, 3)

    def __init__(self) -> None:
        super().__init__()
        self.leader = leader_of(
            1, 2, 3, in_sync=self.in_sync, log_end=5, high_watermark=5, min_in_sync=2, kind=self.kind
        )
        self.held = {follower: 5 if follower in self.in_sync else 0 for follower in FOLLOWERS}
        self.stored = set(self.in_sync)
        self.version = 0
        self.now_ms = START_MS
        self.in_flight: ProposeInSyncReplicas | None = None
        self.is_stored = False
        self.highest = 0
        self.mirrored = self.leader.high_watermark

    def perform(self, effects: LeaderEffects | None) -> None:
        """As the partition does: it knows nothing but what comes back."""
        if effects is None:
            return
        if effects.high_watermark is not None:
            self.mirrored = effects.high_watermark
        if effects.proposal is not None:
            assert self.in_flight is None, "one change in flight (R20)"
            assert effects.proposal.expected_version == self.version
            self.in_flight = effects.proposal

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.perform(self.leader.on_append(self.leader.log_end_offset + count, self.now_ms))

    @rule(follower=st.sampled_from(FOLLOWERS), count=st.integers(0, 20))
    def fetch(self, follower: int, count: int) -> None:
        """A follower asks, and is then sent some of what it lacks."""
        self.perform(self.leader.on_follower_fetch(follower, self.held[follower], 0, self.now_ms))
        self.held[follower] = min(self.held[follower] + count, self.leader.log_end_offset)

    @rule(milliseconds=st.sampled_from((1, 500, LAG_MS // 2, LAG_MS + 1)))
    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    @rule()
    def check(self) -> None:
        self.perform(self.leader.on_check(self.now_ms))

    @precondition(lambda self: self.in_flight is not None and not self.is_stored)
    @rule()
    def store(self) -> None:
        """The store has the change; its answer is still on the way."""
        assert self.in_flight is not None
        self.stored = set(self.in_flight.in_sync_replicas)
        self.is_stored = True

    @precondition(lambda self: self.is_stored)
    @rule()
    def answer(self) -> None:
        self.in_flight, self.is_stored = None, False
        self.version += 1
        self.perform(self.leader.on_written(sorted(self.stored), self.version, self.now_ms))

    @invariant()
    def every_electable_replica_has_what_is_committed(self) -> None:
        """I2."""
        assert all(self.leader.high_watermark <= self.held[replica] for replica in self.stored - {1})

    @invariant()
    def the_high_watermark_never_falls(self) -> None:
        """I5, R4."""
        assert self.highest <= self.leader.high_watermark <= self.leader.log_end_offset
        self.highest = self.leader.high_watermark

    @invariant()
    def all_that_is_decided_comes_back(self) -> None:
        assert self.mirrored == self.leader.high_watermark

    @invariant()
    def the_leader_is_in_sync(self) -> None:
        """I1."""
        assert 1 in self.stored

    def teardown(self) -> None:
        """I7: when everybody keeps fetching, all are in sync in the end and everything is committed."""
        for _ in range(4):
            for follower in FOLLOWERS:
                self.fetch(follower, self.leader.log_end_offset)
            if self.in_flight is not None and not self.is_stored:
                self.store()
            if self.is_stored:
                self.answer()
        assert self.stored == {1, 2, 3}
        assert self.leader.high_watermark == self.leader.log_end_offset


def test_what_must_always_hold_holds() -> None:
    run_state_machine_as_test(Leadership, settings=settings(max_examples=150, stateful_step_count=40))


class CountsThePlainInSyncReplicas(PartitionLeader):
    __slots__ = ()

    def holds_back_high_watermark(self, follower: RemoteReplica, now_ms: int) -> bool:
        return follower.broker_id in self.in_sync_replicas


class LetsAnybodyJoin(PartitionLeader):
    __slots__ = ()

    def can_join_isr(self, follower: RemoteReplica) -> bool:
        return follower.has_fetched


class CommitsBeforeTheShrinkIsWritten(PartitionLeader):
    __slots__ = ()

    def refresh_maximal_isr(self) -> None:
        super().refresh_maximal_isr()
        if self.pending is not None:
            self.maximal_isr = frozenset(self.pending.in_sync_replicas)


@pytest.mark.parametrize(
    ("kind", "in_sync"),
    [
        (CountsThePlainInSyncReplicas, (1, 2)),
        (LetsAnybodyJoin, (1, 2)),
        (CommitsBeforeTheShrinkIsWritten, (1, 2, 3)),
    ],
)
def test_the_model_notices_when_a_rule_is_broken(kind: type[PartitionLeader], in_sync: tuple[int, ...]) -> None:
    broken = type(kind.__name__, (Leadership,), {"kind": kind, "in_sync": in_sync})
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            broken,
            settings=settings(
                max_examples=2000,
                stateful_step_count=40,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
            ),
        )
