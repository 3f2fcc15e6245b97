"""Followers find where their logs part from the leader's, and lose nothing that was acknowledged (R3, R27)."""

import asyncio

import pytest

from tests.simulation.broken_rules import (
    keeping_epoch_entries_where_nothing_is_cut,
    leaders_without_an_epoch_entry,
    truncating_to_the_high_watermark,
    without_second_question,
)
from tests.simulation.scenario import (
    FINE_STEP_S,
    all_well_again,
    create_topic,
    follower_core,
    in_sync,
    is_leading,
    produce,
    produce_to,
    read_all,
    replica,
    simulate,
    stored,
    wait_for,
)
from tidelog.replication.follower import FollowerState
from tidelog.simulation.cluster import SimulatedCluster


def is_fetching(cluster: SimulatedCluster, broker_id: int, leader_epoch: int) -> bool:
    core = follower_core(cluster, broker_id)
    return core is not None and core.state is FollowerState.FETCHING and core.leader_epoch == leader_epoch


# ---- KIP-101


async def fail_over_twice_right_after_an_acknowledgement(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2, 3])
    await produce(cluster, b"a")
    await asyncio.sleep(2)
    await produce(cluster, b"b")
    assert [replica(cluster, each).log.high_watermark for each in (2, 3)] == [1, 1]
    cluster.kill(1)
    await wait_for(lambda: is_leading(cluster, 2), step_s=FINE_STEP_S)
    await wait_for(lambda: is_fetching(cluster, 3, stored(cluster).leader_epoch), step_s=FINE_STEP_S)
    cluster.kill(2)
    await wait_for(lambda: is_leading(cluster, 3))
    await all_well_again(cluster)
    assert await read_all(cluster) == [b"a", b"b"], "an acknowledged record is lost"


def test_a_follower_that_does_not_know_what_is_committed_keeps_it_through_two_failovers() -> None:
    """KIP-101, R27"""
    simulate(fail_over_twice_right_after_an_acknowledgement, controller=3)


def test_committed_records_are_lost_by_truncating_to_the_high_watermark() -> None:
    with truncating_to_the_high_watermark(), pytest.raises(AssertionError, match="an acknowledged record is lost"):
        simulate(fail_over_twice_right_after_an_acknowledgement, controller=3)


# ---- KIP-279


async def let_two_leaders_write_in_turn(cluster: SimulatedCluster) -> None:
    """Neither ever hears of what the other wrote: the logs part two epochs ago, and at another offset."""
    await create_topic(cluster, [2, 1], unclean_leader_election_enable=True)
    await produce(cluster, b"a")
    cluster.kill(1)
    await produce_to(cluster, 2, b"only on 2, in the epoch of a", acks=1)
    for leader, value in ((1, b"b"), (2, b"c"), (1, b"d")):
        if leader == 1:
            cluster.kill(2)
        else:
            cluster.kill(1)
        await wait_for(lambda: stored(cluster).leader == -1)
        await cluster.start(leader)
        await wait_for(lambda leader=leader: is_leading(cluster, leader))  # type: ignore[misc]
        await produce(cluster, value)
    await all_well_again(cluster)
    assert await read_all(cluster) == [b"a", b"b", b"d"]


def test_logs_that_part_more_than_one_epoch_ago_become_equal() -> None:
    """KIP-279, R27"""
    simulate(let_two_leaders_write_in_turn, controller=3)


def test_logs_stay_different_without_a_second_question() -> None:
    with without_second_question(), pytest.raises(AssertionError, match="hold different bytes"):
        simulate(let_two_leaders_write_in_turn, controller=3)


# ---- KAFKA-7415


async def follow_a_leader_that_has_not_written_in_its_epoch(cluster: SimulatedCluster) -> None:
    """The follower's last epoch is later than that of any record of the leader."""
    await create_topic(cluster, [1, 2], min_insync_replicas=2, unclean_leader_election_enable=True)
    await produce(cluster, b"a")
    await produce(cluster, b"b")
    cluster.kill(1)
    await wait_for(lambda: is_leading(cluster, 2))
    await produce_to(cluster, 2, b"only on 2", acks=1)
    cluster.kill(2)
    await wait_for(lambda: stored(cluster).leader == -1)
    await cluster.start(1)
    await wait_for(lambda: is_leading(cluster, 1))
    await cluster.start(2)

    def nothing_shared_is_cut() -> None:
        assert replica(cluster, 2).log.log_end_offset >= 2, "cut what the leader has too"

    await wait_for(lambda: in_sync(cluster) == {1, 2}, step_s=FINE_STEP_S, always=nothing_shared_is_cut)
    await all_well_again(cluster)
    assert await read_all(cluster) == [b"a", b"b"]


def test_a_follower_keeps_what_it_shares_with_a_leader_that_has_not_written_yet() -> None:
    """KAFKA-7415, R3"""
    simulate(follow_a_leader_that_has_not_written_in_its_epoch, controller=3)


def test_shared_records_are_cut_where_a_leader_does_not_note_its_epoch() -> None:
    with leaders_without_an_epoch_entry(), pytest.raises(AssertionError, match="cut what the leader has too"):
        simulate(follow_a_leader_that_has_not_written_in_its_epoch, controller=3)


# ---- KAFKA-10706


async def come_back_with_an_epoch_that_nobody_wrote_in(cluster: SimulatedCluster) -> None:
    """Broker 2 led without writing anything: it has nothing to cut but the entry of its epoch."""
    await create_topic(cluster, [1, 2, 3])
    await produce(cluster, b"a")
    cluster.kill(1)
    await wait_for(lambda: is_leading(cluster, 2))
    cluster.cut_off_from_store(2)
    await wait_for(lambda: is_leading(cluster, 3))
    cluster.reconnect_to_store(2)
    await asyncio.sleep(1)
    (fetcher,) = cluster.broker(2).fetchers.statistics().fetchers
    assert fetcher.requests < 20, "asks without end"
    await all_well_again(cluster)


def test_a_leader_that_wrote_nothing_follows_its_successor_without_delay() -> None:
    """KAFKA-10706, R3"""
    simulate(come_back_with_an_epoch_that_nobody_wrote_in, controller=3)


def test_a_follower_asks_without_end_where_the_entry_of_its_epoch_stays() -> None:
    with (
        keeping_epoch_entries_where_nothing_is_cut(),
        pytest.raises(AssertionError, match="asks without end"),
    ):
        simulate(come_back_with_an_epoch_that_nobody_wrote_in, controller=3)
