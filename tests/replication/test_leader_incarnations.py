"""Incarnations of followers, and eligible leader replicas, as their leader writes them down (R41, R42)."""

from collections.abc import Mapping, Sequence

from tests.replication.leaders import LAG_MS, START_MS, assignment_of, peers_of, proposed
from tidelog.cluster.image import NO_INCARNATION
from tidelog.replication.leader import PartitionLeader, ProposeInSyncReplicas

OWN_EPOCH = 10


def leader_with(
    epochs: Mapping[int, int],
    *,
    in_sync: Sequence[int] = (1, 2, 3),
    eligible: Mapping[int, int] | None = None,
    end: int = 100,
    high_watermark: int = 100,
    epoch_start: int = 0,
    min_in_sync: int = 2,
) -> PartitionLeader:
    """Broker 1 leads 1, 2 and 3 as incarnation 10; `epochs` are recorded in the state that it took over."""
    assignment = assignment_of(1, 2, 3, in_sync=in_sync)._replace(
        in_sync_epochs=epochs, eligible_leader_epochs=eligible or {}, broker_epoch=OWN_EPOCH
    )
    return PartitionLeader(
        assignment,
        epoch_start_offset=epoch_start,
        log_end_offset=end,
        high_watermark=high_watermark,
        min_in_sync_replicas=min_in_sync,
        lag_time_max_ms=LAG_MS,
        peers=peers_of(1, 2, 3),
        now_ms=START_MS,
    )


def fetch(leader: PartitionLeader, replica: int, offset: int, epoch: int) -> ProposeInSyncReplicas | None:
    """As this incarnation."""
    if leader.followers[replica].broker_epoch != epoch:
        leader.followers[replica].on_incarnation(epoch)
    return proposed(leader.on_follower_fetch(replica, offset, 0, START_MS))


def without(leader: PartitionLeader, silent: int) -> ProposeInSyncReplicas:
    """What is proposed when this replica has been silent for too long."""
    for replica, follower in leader.followers.items():
        follower.caught_up_ms = START_MS if replica == silent else START_MS + LAG_MS
        if replica == silent:
            follower.log_end_offset = min(follower.log_end_offset, leader.log_end_offset - 1)
    proposal = proposed(leader.on_check(START_MS + LAG_MS + 1))
    assert proposal is not None
    assert proposal.leaving == (silent,)
    return proposal


# ---- R41


def test_every_change_names_the_incarnations_of_all_who_are_in_sync_also_the_leaders_own() -> None:
    leader = leader_with({1: 10, 2: 20, 3: 30})
    fetch(leader, 2, 100, 20)
    assert without(leader, 3).epochs == {1: 10, 2: 20}


def test_a_follower_that_was_not_heard_of_yet_is_in_sync_as_it_was_when_this_leader_took_over() -> None:
    assert without(leader_with({1: 10, 2: 20, 3: 30}), 3).epochs == {1: 10, 2: 20}


def test_a_new_incarnation_is_in_sync_when_it_has_itself_reached_the_high_watermark() -> None:
    leader = leader_with({1: 10, 2: 20, 3: 30})
    fetch(leader, 2, 100, 21)
    assert without(leader, 3).epochs[2] == 21


def test_a_new_incarnation_below_the_high_watermark_is_not_written_down_as_in_sync() -> None:
    leader = leader_with({})
    fetch(leader, 2, 0, 90)
    assert without(leader, 3).epochs[2] == NO_INCARNATION


def test_a_new_incarnation_does_not_inherit_how_far_the_one_before_it_came() -> None:
    leader = leader_with({1: 10, 2: 20, 3: 30})
    fetch(leader, 2, 100, 20)
    leader.followers[2].on_incarnation(21)
    assert not leader.followers[2].has_fetched
    assert without(leader, 3).epochs[2] == 20, "21 may hold nothing"


def test_the_high_watermark_waits_for_the_first_fetch_of_a_new_incarnation() -> None:
    leader = leader_with({1: 10, 2: 20}, in_sync=(1, 2))
    fetch(leader, 2, 100, 20)
    leader.on_append(110, START_MS)
    leader.followers[2].on_incarnation(21)
    leader.on_check(START_MS)
    assert leader.high_watermark == 100


def test_a_new_leader_does_not_take_its_own_late_high_watermark_for_what_is_committed() -> None:
    """It has not heard yet that 100 is committed; a follower that lost what is above 95 is not in sync."""
    leader = leader_with({1: 10, 2: 20, 3: 30}, high_watermark=90, epoch_start=100)
    fetch(leader, 2, 95, 21)
    assert without(leader, 3).epochs[2] == 20


def test_a_member_that_came_back_short_leaves_also_where_the_leader_never_heard_of_the_one_before() -> None:
    leader = leader_with({1: 10, 2: 20, 3: 30})
    proposal = fetch(leader, 2, 99, 21)
    assert proposal is not None
    assert proposal.leaving == (2,)


def test_a_joining_follower_is_in_sync_in_the_incarnation_that_fetched() -> None:
    leader = leader_with({1: 10}, in_sync=(1,), min_in_sync=1)
    leader.peers.epochs[2] = 22
    proposal = fetch(leader, 2, 100, 22)
    assert proposal is not None
    assert (proposal.in_sync_replicas, proposal.epochs) == ((1, 2), {1: 10, 2: 22})


def test_of_two_restarts_the_last_incarnation_that_was_in_sync_counts() -> None:
    leader = leader_with({1: 10, 2: 20}, in_sync=(1, 2))
    fetch(leader, 2, 100, 21)
    leader.on_append(150, START_MS)
    fetch(leader, 2, 150, 21)
    assert leader.high_watermark == 150
    proposal = fetch(leader, 2, 120, 22)
    assert proposal is not None
    assert proposal.eligible_leader_epochs == {2: 21}, "20 never had what is above 100"


# ---- R42


def test_who_leaves_below_min_isr_becomes_eligible_in_the_incarnation_that_was_in_sync() -> None:
    leader = leader_with({1: 10, 2: 20, 3: 30})
    first = without(leader, 3)
    assert first.eligible_leader_epochs == {}, "two of two are left"
    leader.on_written(first.in_sync_replicas, 1, START_MS)
    assert without(leader, 2).eligible_leader_epochs == {2: 20}


def test_who_is_eligible_stays_so_until_enough_are_in_sync() -> None:
    leader = leader_with({1: 10}, in_sync=(1,), eligible={2: 20, 3: 30}, min_in_sync=3)
    proposal = fetch(leader, 2, 100, 21)
    assert proposal is not None
    assert (proposal.in_sync_replicas, proposal.eligible_leader_epochs) == ((1, 2), {3: 30})
    following = proposed(leader.on_written(proposal.in_sync_replicas, 1, START_MS))
    assert following is None
    proposal = fetch(leader, 3, 100, 30)
    assert proposal is not None
    assert proposal.eligible_leader_epochs == {}


def test_who_is_not_assigned_any_more_does_not_become_eligible() -> None:
    leader = leader_with({1: 10, 9: 90}, in_sync=(1, 9), high_watermark=100)
    proposal = proposed(leader.on_check(START_MS))
    assert proposal is not None
    assert (proposal.leaving, proposal.eligible_leader_epochs) == ((9,), {})


def test_who_was_never_seen_in_sync_does_not_become_eligible() -> None:
    leader = leader_with({}, in_sync=(1, 2))
    fetch(leader, 2, 0, 90)
    proposal = without(leader, 2)
    assert proposal.eligible_leader_epochs == {}


def test_nothing_is_committed_while_somebody_is_eligible() -> None:
    """Min ISR was lowered: first the store must know that the others may not lead any more."""
    leader = leader_with({1: 10}, in_sync=(1,), eligible={2: 20}, end=120)
    proposal = proposed(leader.on_settings(1, START_MS))
    assert proposal is not None
    assert (proposal.in_sync_replicas, proposal.eligible_leader_epochs) == ((1,), {})
    assert leader.high_watermark == 100
    leader.on_append(130, START_MS)
    assert leader.high_watermark == 100
    leader.on_written((1,), 1, START_MS)
    assert leader.high_watermark == 130


def test_a_leader_that_knows_a_lower_min_isr_than_the_controller_clears_the_list_at_once() -> None:
    leader = leader_with({1: 10}, in_sync=(1,), eligible={2: 20}, min_in_sync=1, end=120)
    assert leader.high_watermark == 100
    proposal = proposed(leader.on_elected(START_MS))
    assert proposal is not None
    assert proposal.eligible_leader_epochs == {}
    assert proposed(leader_with({1: 10}, in_sync=(1,), min_in_sync=1).on_elected(START_MS)) is None


def test_a_write_that_was_found_in_the_store_shows_who_is_eligible() -> None:
    leader = leader_with({1: 10, 2: 20}, in_sync=(1, 2))
    proposal = without(leader, 2)
    leader.on_written(proposal.in_sync_replicas, 1, START_MS, {2: 19})
    assert leader.eligible_leader_epochs == {2: 19}
