"""The leader's core: events in, decisions out."""

import pytest

from tests.replication.leaders import LAG_MS, START_MS, assignment_of, leader_of, peers_of, proposed
from tidelog.errors import NotEnoughReplicas
from tidelog.replication.leader import LeaderEffects, PartitionLeader, ProposeInSyncReplicas
from tidelog.replication.out_of_sync import inherit_reasons, out_of_sync, record_previous_leader
from tidelog.replication.remote_replica import Peers


def fetch(leader: PartitionLeader, replica: int, offset: int, at_ms: int = START_MS) -> ProposeInSyncReplicas | None:
    return proposed(leader.on_follower_fetch(replica, offset, 0, at_ms))


def write(leader: PartitionLeader, proposal: ProposeInSyncReplicas | None, at_ms: int = START_MS) -> None:
    assert proposal is not None
    leader.on_written(proposal.in_sync_replicas, proposal.expected_version + 1, at_ms)


# ---- what is committed (R18)


def test_a_leader_alone_commits_what_it_appends() -> None:
    leader = leader_of(1)
    leader.on_append(5, START_MS)
    assert leader.high_watermark == 5


def test_the_slowest_in_sync_replica_decides_what_is_committed() -> None:
    leader = leader_of(1, 2, 3)
    leader.on_append(10, START_MS)
    assert leader.high_watermark == 0
    fetch(leader, 2, 10)
    assert leader.high_watermark == 0
    fetch(leader, 3, 4)
    assert leader.high_watermark == 4
    fetch(leader, 3, 10)
    assert leader.high_watermark == 10


def test_a_replica_out_of_sync_does_not_hold_back_what_is_committed() -> None:
    leader = leader_of(1, 2, 3, in_sync=(1, 2), log_end=5, high_watermark=5)
    leader.on_append(10, START_MS)
    fetch(leader, 3, 1)
    fetch(leader, 2, 10)
    assert leader.high_watermark == 10


def test_the_high_watermark_does_not_fall_when_a_follower_reports_less() -> None:
    leader = leader_of(1, 2)
    leader.on_append(10, START_MS)
    fetch(leader, 2, 10)
    fetch(leader, 2, 3)
    assert leader.high_watermark == 10


def test_a_fetch_beyond_the_end_of_the_log_counts_for_nothing() -> None:
    leader = leader_of(1, 2, log_end=10)
    assert fetch(leader, 2, 11) is None
    assert (leader.high_watermark, leader.followers[2].has_fetched) == (0, False)


def test_a_replica_being_added_counts_before_the_store_has_answered() -> None:
    """KIP-497: the expansion may be stored already, and the replica elected."""
    leader = leader_of(1, 2, 3, in_sync=(1, 2), log_end=10, high_watermark=10)
    assert fetch(leader, 3, 10) is not None
    leader.on_append(20, START_MS)
    fetch(leader, 2, 20, START_MS + LAG_MS + 1)
    assert leader.high_watermark == 10
    fetch(leader, 3, 15, START_MS + LAG_MS + 1)
    assert leader.high_watermark == 15


def test_a_follower_that_caught_up_lately_is_waited_for() -> None:
    """Else the high watermark of a fast leader would always be just ahead of it, and it could never join."""
    leader = leader_of(1, 2, 3, in_sync=(1, 3), log_end=10, high_watermark=10)
    fetch(leader, 3, 10)
    leader.on_append(20, START_MS)
    assert proposed(leader.on_check(START_MS + LAG_MS + 1)) is not None, "a change in flight keeps others from joining"
    fetch(leader, 2, 20, START_MS + LAG_MS)
    leader.on_append(30, START_MS + LAG_MS)
    fetch(leader, 3, 30, START_MS + LAG_MS)
    assert leader.high_watermark == 20
    fetch(leader, 3, 30, START_MS + 3 * LAG_MS)
    assert leader.high_watermark == 30


def test_a_replica_whose_broker_is_gone_does_not_hold_back_what_is_committed() -> None:
    """KAFKA-15021."""
    peers = peers_of(1, 2)
    leader = leader_of(1, 2, in_sync=(1,), log_end=10, high_watermark=0, epoch_start=10, peers=peers)
    fetch(leader, 2, 5)
    leader.followers[2].caught_up_ms = START_MS
    leader.on_append(11, START_MS)
    before = leader.high_watermark
    leader.on_append(12, START_MS)
    assert leader.high_watermark == before
    peers.epochs = {1: -1}
    leader.on_peers_changed(START_MS)
    assert leader.high_watermark == 12


def test_nothing_is_committed_while_too_few_are_in_sync() -> None:
    leader = leader_of(1, 2, 3, in_sync=(1,), min_in_sync=2)
    leader.on_append(10, START_MS)
    assert leader.high_watermark == 0
    with pytest.raises(NotEnoughReplicas):
        leader.require_enough_in_sync()
    leader.on_settings(1, START_MS)
    assert leader.high_watermark == 10
    leader.require_enough_in_sync()


def test_a_topic_cannot_ask_for_more_than_it_has_replicas() -> None:
    leader = leader_of(1, min_in_sync=2)
    leader.require_enough_in_sync()
    leader.on_append(1, START_MS)
    assert leader.high_watermark == 1


# ---- leaving (R17, R19)


def test_a_silent_follower_leaves_after_the_lag_limit() -> None:
    leader = leader_of(1, 2, 3)
    leader.on_append(5, START_MS)
    fetch(leader, 3, 5)
    assert proposed(leader.on_check(START_MS + LAG_MS)) is None
    proposal = proposed(leader.on_check(START_MS + LAG_MS + 1))
    assert proposal is not None
    assert (proposal.in_sync_replicas, proposal.leaving, proposal.expected_version) == ((1, 3), (2,), 0)


def test_a_new_leader_gives_its_followers_time_for_a_first_fetch() -> None:
    leader = leader_of(1, 2, log_end=100)
    assert proposed(leader.on_check(START_MS + LAG_MS)) is None


def test_what_the_replica_that_left_held_back_is_committed() -> None:
    """KAFKA-13091."""
    leader = leader_of(1, 2)
    leader.on_append(5, START_MS)
    proposal = proposed(leader.on_check(START_MS + LAG_MS + 1))
    assert leader.high_watermark == 0
    write(leader, proposal, START_MS + LAG_MS + 1)
    assert (leader.high_watermark, set(leader.in_sync_replicas), leader.version) == (5, {1}, 1)


def test_who_left_in_silence_does_not_come_back_without_a_fetch() -> None:
    leader = leader_of(1, 2, 3)
    leader.on_append(5, START_MS)
    later_ms = START_MS + LAG_MS + 1
    fetch(leader, 3, 0, later_ms)
    leader.followers[3].caught_up_ms = later_ms
    proposal = proposed(leader.on_check(later_ms))
    assert proposal is not None
    assert proposed(leader.on_written(proposal.in_sync_replicas, 1, later_ms)) is None
    assert leader.high_watermark == 0
    assert proposed(leader.on_check(later_ms)) is None
    assert proposed(leader.on_peers_changed(later_ms)) is None
    assert fetch(leader, 2, 0, later_ms) is not None


def test_an_idle_replica_stays_in_sync() -> None:
    """KAFKA-7152: nothing is written, and nothing fetched of the partition, for hours."""
    leader = leader_of(1, 2, log_end=5)
    fetch(leader, 2, 5)
    assert proposed(leader.on_check(START_MS + 100 * LAG_MS)) is None


def test_after_an_idle_time_a_live_follower_has_the_whole_limit_to_catch_up() -> None:
    """Its broker fetches all the while, but sessions do not name partitions where nothing moves."""
    peers = peers_of(1, 2)
    leader = leader_of(1, 2, log_end=5, peers=peers)
    fetch(leader, 2, 5)
    later_ms = START_MS + 100 * LAG_MS
    peers.last_fetch_ms[2] = later_ms
    leader.on_append(6, later_ms + 400)
    assert proposed(leader.on_check(later_ms + LAG_MS)) is None
    assert proposed(leader.on_check(later_ms + LAG_MS + 1)) is not None


def test_after_an_idle_time_a_dead_follower_leaves_with_the_next_check() -> None:
    peers = peers_of(1, 2)
    leader = leader_of(1, 2, log_end=5, peers=peers)
    fetch(leader, 2, 5)
    peers.last_fetch_ms[2] = START_MS + 1
    later_ms = START_MS + 100 * LAG_MS
    leader.on_append(6, later_ms)
    assert proposed(leader.on_check(later_ms)) is not None


def test_a_follower_under_constant_writes_is_in_sync_if_it_reached_the_end_of_its_fetch_before() -> None:
    leader = leader_of(1, 2)
    now_ms = START_MS
    for _ in range(100):
        leader.on_append(leader.log_end_offset + 10, now_ms)
        fetch(leader, 2, leader.log_end_offset - 10, now_ms)
        now_ms += 1000
    assert proposed(leader.on_check(now_ms)) is None


def test_a_follower_that_stays_behind_leaves_though_it_fetches() -> None:
    leader = leader_of(1, 2, log_end=1000)
    for second in range(40):
        leader.on_append(1000 + second * 10, START_MS + second * 1000)
        fetch(leader, 2, second, START_MS + second * 1000)
    assert proposed(leader.on_check(START_MS + 40_000)) is not None


def test_an_in_sync_replica_that_is_not_assigned_leaves() -> None:
    """KAFKA-9672."""
    leader = leader_of(1, 2, in_sync=(1, 2, 9), log_end=1)
    fetch(leader, 2, 1)
    assert leader.high_watermark == 1
    proposal = proposed(leader.on_check(START_MS))
    assert proposal is not None
    assert proposal.in_sync_replicas == (1, 2)


# ---- joining (R19)


@pytest.mark.parametrize(
    ("offset", "high_watermark", "epoch_start", "joins"),
    [(9, 10, 0, False), (10, 10, 0, True), (12, 10, 15, False), (15, 10, 15, True), (20, 10, 15, True)],
)
def test_a_follower_joins_at_the_high_watermark_and_the_start_of_the_epoch(
    offset: int, high_watermark: int, epoch_start: int, joins: bool
) -> None:
    """KAFKA-7128: the high watermark of a new leader may be old."""
    leader = leader_of(1, 2, 3, in_sync=(1, 3), log_end=20, high_watermark=high_watermark, epoch_start=epoch_start)
    proposal = fetch(leader, 2, offset)
    assert (proposal is not None) == joins
    if proposal is not None:
        assert (proposal.in_sync_replicas, proposal.joining) == ((1, 2, 3), (2,))


def test_nobody_joins_before_a_fetch_in_this_leader_epoch() -> None:
    leader = leader_of(1, 2, in_sync=(1,))
    assert proposed(leader.on_check(START_MS)) is None


def test_under_the_minimum_a_follower_joins_only_at_the_end_of_the_log() -> None:
    """KAFKA-19996: the high watermark stands still there, so that everybody would join, and leave again."""
    leader = leader_of(1, 2, 3, in_sync=(1,), min_in_sync=2, log_end=20, high_watermark=5)
    assert fetch(leader, 2, 19) is None
    assert fetch(leader, 2, 20) is not None


def test_a_broker_that_is_not_registered_does_not_join() -> None:
    peers = peers_of(1)
    leader = leader_of(1, 2, in_sync=(1,), peers=peers)
    assert fetch(leader, 2, 0) is None
    peers.epochs = {1: -1, 2: -1}
    proposal = proposed(leader.on_peers_changed(START_MS))
    assert proposal is not None
    assert proposal.joining == (2,)


def test_a_broker_joins_only_in_the_incarnation_that_fetched() -> None:
    """KIP-903: what fetched may not be what would be added."""
    peers = peers_of(1, 2)
    peers.epochs[2] = 77
    leader = leader_of(1, 2, in_sync=(1,), peers=peers)
    leader.followers[2].on_incarnation(66)
    assert fetch(leader, 2, 0) is None
    leader.followers[2].on_incarnation(77)
    assert fetch(leader, 2, 0) is not None


def test_a_replica_that_came_back_without_its_records_leaves_at_once() -> None:
    """KIP-903."""
    leader = leader_of(1, 2)
    leader.followers[2].on_incarnation(66)
    leader.on_append(10, START_MS)
    fetch(leader, 2, 10)
    leader.followers[2].on_incarnation(77)
    proposal = fetch(leader, 2, 0)
    assert proposal is not None
    assert proposal.leaving == (2,)


# ---- changes in flight (R20)


def test_one_change_is_in_flight_and_the_next_follows_it() -> None:
    """Nobody will fetch again where nothing moves: who became ready meanwhile is asked for then."""
    leader = leader_of(1, 2, 3, in_sync=(1,))
    first = fetch(leader, 2, 0)
    assert first is not None
    assert fetch(leader, 3, 0) is None
    following = proposed(leader.on_written(first.in_sync_replicas, 1, START_MS))
    assert following is not None
    assert (following.in_sync_replicas, following.expected_version) == ((1, 2, 3), 1)


def test_after_a_lost_change_the_leader_waits_for_the_controller() -> None:
    leader = leader_of(1, 2, 3, in_sync=(1,))
    fetch(leader, 2, 0)
    leader.on_lost()
    leader.on_append(10, START_MS)
    fetch(leader, 2, 10)
    assert leader.high_watermark == 0
    assert fetch(leader, 3, 10) is None
    assert proposed(leader.on_check(START_MS + 10 * LAG_MS)) is None


# ---- why a replica is out


def test_each_replica_out_of_sync_has_a_reason_and_a_remedy() -> None:
    peers = peers_of(1, 2, 3, 4)
    leader = leader_of(1, 2, 3, 4, 5, in_sync=(1, 2), log_end=50, high_watermark=40, peers=peers)
    fetch(leader, 3, 10)
    proposal = proposed(leader.on_check(START_MS + LAG_MS + 1))
    write(leader, proposal, START_MS + LAG_MS + 1)
    reported = {each.replica: each for each in out_of_sync(leader)}
    assert set(reported) == {2, 3, 4, 5}
    assert reported[2].rule == "not caught up for 30000 ms (replica.lag.time.max.ms)"
    assert (reported[2].since_ms, reported[2].behind) == (START_MS + LAG_MS + 1, -1)
    assert reported[3].rule == "not in sync when this leader was elected"
    assert (reported[3].behind, reported[3].remedy) == (40, "it must reach the high watermark")
    assert reported[4].remedy == "broker 4 has not fetched from this leader yet"
    assert reported[5].remedy == "broker 5 is down, start it"


def test_in_a_new_epoch_the_leader_still_knows_why() -> None:
    earlier = leader_of(1, 2, 3, log_end=5)
    fetch(earlier, 3, 5)
    write(earlier, proposed(earlier.on_check(START_MS + LAG_MS + 1)), START_MS + LAG_MS + 1)
    now = leader_of(1, 2, 3, in_sync=(1,))
    inherit_reasons(now, earlier)
    now.on_append(7, START_MS)
    reported = {each.replica: (each.rule, each.behind) for each in out_of_sync(now)}
    assert reported[2] == ("not caught up for 30000 ms (replica.lag.time.max.ms)", -1), "it never fetched"
    assert reported[3] == ("removed by the controller: its broker was down or shutting down, or its disk offline", 2)


def test_the_leader_before_has_a_reason_of_its_own() -> None:
    leader = leader_of(1, 2, 3, in_sync=(1,))
    record_previous_leader(leader, 2)
    reported = {each.replica: each.rule for each in out_of_sync(leader)}
    assert reported[2] == "leader before this one: its broker was down or shutting down, or its disk offline"
    assert reported[3] == "not in sync when this leader was elected"


def test_the_remedy_names_what_a_follower_must_reach() -> None:
    peers = peers_of(1, 2)
    leader = leader_of(1, 2, in_sync=(1,), log_end=50, high_watermark=40, peers=peers, min_in_sync=2)
    fetch(leader, 2, 45)
    assert [each.remedy for each in out_of_sync(leader)] == [
        "it must reach the log end, because the ISR is below min.insync.replicas"
    ]


# ---- the low watermark


def test_the_low_watermark_is_the_smallest_log_start_of_the_live_replicas() -> None:
    leader = leader_of(1, 2, 3, log_end=10, peers=peers_of(1, 2))
    assert leader.low_watermark(7) == -1
    leader.on_follower_fetch(2, 10, 4, START_MS)
    assert leader.low_watermark(7) == 4
    leader.on_follower_fetch(2, 10, 8, START_MS)
    assert leader.low_watermark(7) == 7


def test_an_append_with_followers_behind_looks_at_none_of_them() -> None:
    class Untouchable(dict[int, object]):
        def values(self) -> object:  # type: ignore[override]
            raise AssertionError("appends do not look at replicas")

    leader = leader_of(1, 2, 3)
    leader.followers = Untouchable(leader.followers)  # type: ignore[assignment]
    leader.on_append(10, START_MS)
    assert leader.log_end_offset == 10


def test_a_leader_is_in_sync_with_itself() -> None:
    with pytest.raises(AssertionError):
        PartitionLeader(
            assignment_of(1, 2, in_sync=(2,)),
            epoch_start_offset=0,
            log_end_offset=0,
            high_watermark=0,
            min_in_sync_replicas=1,
            lag_time_max_ms=LAG_MS,
            peers=Peers(),
            now_ms=START_MS,
        )


# ---- what comes back


def test_a_leader_alone_gives_back_what_it_commits() -> None:
    leader = leader_of(1)
    assert leader.on_append(5, START_MS) == LeaderEffects(high_watermark=5)


def test_what_a_leader_commits_when_it_begins_comes_back_with_the_first_event() -> None:
    leader = leader_of(1, log_end=7)
    assert leader.on_elected(START_MS) == LeaderEffects(high_watermark=7)
    assert leader.on_elected(START_MS) is None


def test_a_fetch_gives_back_the_high_watermark_and_the_proposal_together() -> None:
    leader = leader_of(1, 2, 3, in_sync=(1, 2), log_end=5)
    assert leader.on_follower_fetch(2, 5, -1, START_MS) == LeaderEffects(high_watermark=5)
    effects = leader.on_follower_fetch(3, 5, -1, START_MS)
    assert effects == LeaderEffects(proposal=leader.pending)
    assert leader.pending is not None


def test_a_follower_whose_log_start_moved_may_complete_deletions() -> None:
    leader = leader_of(1, 2, log_end=5, high_watermark=5)
    assert leader.on_follower_fetch(2, 5, 3, START_MS) == LeaderEffects(has_low_watermark_moved=True)
    assert leader.on_follower_fetch(2, 5, 3, START_MS) is None


def test_a_written_change_notifies_those_who_wait() -> None:
    leader = leader_of(1, 2)
    leader.on_append(5, START_MS)
    write(leader, proposed(leader.on_check(START_MS + LAG_MS + 1)))
    assert leader.on_written((1,), 2, START_MS) == LeaderEffects(have_in_sync_replicas_changed=True)
