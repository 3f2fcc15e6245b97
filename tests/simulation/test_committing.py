"""The high watermark waits for those who must have a record, and for nobody else (R18, R19, R20)."""

import asyncio

import pytest

from tests.simulation.broken_rules import (
    high_watermark_over_the_plain_isr,
    joining_before_the_epoch_start,
    waiting_for_replicas_that_may_not_join,
    without_a_try_after_the_shrink,
)
from tests.simulation.scenario import (
    FINE_STEP_S,
    all_well_again,
    create_topic,
    in_sync,
    is_acknowledged,
    is_leading,
    leading,
    produce,
    produce_to,
    read_all,
    replica,
    simulate,
    slow_store_answers,
    wait_for,
)
from tidelog.replication.remote_replica import RemoteReplica
from tidelog.simulation.cluster import SimulatedCluster


def known_of(cluster: SimulatedCluster, follower: int, leader: int) -> RemoteReplica:
    """What the leader knows of one of its followers."""
    core = leading(cluster, leader)
    assert core is not None
    return core.followers[follower]


# ---- KAFKA-13091


async def lose_the_only_follower(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 3])
    await produce(cluster, b"a")
    cluster.cut(3, [1])
    sent = asyncio.ensure_future(produce_to(cluster, 1, b"b"))
    await wait_for(lambda: in_sync(cluster) == {1})
    took_s = await wait_for(sent.done)
    assert (await sent).error_code == 0
    assert took_s < 0.1, "waited for something else to happen"
    await all_well_again(cluster)


def test_a_write_that_waits_for_a_silent_replica_is_acknowledged_as_soon_as_that_has_left() -> None:
    """KAFKA-13091, R20"""
    simulate(lose_the_only_follower, controller=2, replica_lag_time_max_ms=10_000)


def test_a_write_waits_on_where_a_shrink_does_not_raise_the_high_watermark() -> None:
    with without_a_try_after_the_shrink(), pytest.raises(AssertionError, match="waited for something else"):
        simulate(lose_the_only_follower, controller=2, replica_lag_time_max_ms=10_000)


# ---- KAFKA-15021


async def die_while_catching_up(cluster: SimulatedCluster) -> None:
    """Broker 3 is slow: it had all when it asked last, and is behind what is committed when it asks again."""
    await create_topic(cluster, [1, 2, 3], min_insync_replicas=2)
    await produce(cluster, b"a")
    cluster.kill(3)
    await wait_for(lambda: in_sync(cluster) == {1, 2})
    await produce(cluster, b"b")
    await cluster.start(3)
    await wait_for(lambda: known_of(cluster, 3, leader=1).has_fetched, step_s=FINE_STEP_S)
    cluster.freeze(3)
    await produce(cluster, b"c")
    cluster.thaw(3)
    await wait_for(lambda: known_of(cluster, 3, leader=1).log_end_offset == 2, step_s=FINE_STEP_S)
    assert in_sync(cluster) == {1, 2}
    assert known_of(cluster, 3, leader=1).caught_up_ms > 0
    cluster.kill(3)
    started = cluster.clock.monotonic()
    assert await is_acknowledged(cluster, 1, b"d"), "waited in vain for a dead replica"
    assert cluster.clock.monotonic() - started < 1
    await all_well_again(cluster)
    assert await read_all(cluster) == [b"a", b"b", b"c", b"d"]


def test_a_replica_that_dies_while_it_catches_up_holds_nothing_back() -> None:
    """KAFKA-15021, R18"""
    simulate(die_while_catching_up, controller=2)


def test_a_dead_replica_holds_the_high_watermark_where_nobody_asks_whether_it_may_join() -> None:
    with (
        waiting_for_replicas_that_may_not_join(),
        pytest.raises(AssertionError, match="waited in vain for a dead replica"),
    ):
        simulate(die_while_catching_up, controller=2)


# ---- a follower dies


async def write_while_a_follower_dies(cluster: SimulatedCluster) -> None:
    """The leader stays, in a new epoch and without that follower."""
    await create_topic(cluster, [1, 2, 3], min_insync_replicas=2)
    cluster.kill(3)
    assert await is_acknowledged(cluster, 1, b"a"), "refused a record that it holds"
    assert in_sync(cluster) == {1, 2}
    await all_well_again(cluster)
    assert await read_all(cluster) == [b"a"]


def test_a_write_that_waits_for_a_follower_that_dies_is_acknowledged() -> None:
    """R14: a producer that is asked to retry would write the record twice."""
    simulate(write_while_a_follower_dies, controller=2)


# ---- KAFKA-7128


async def catch_up_with_a_new_leader_that_does_not_know_what_is_committed(cluster: SimulatedCluster) -> None:
    """Broker 4 has all below the leader's high watermark, which is old, and lacks two acknowledged records."""
    await create_topic(cluster, [1, 2, 3, 4], min_insync_replicas=2)
    await produce(cluster, b"a")
    cluster.kill(4)
    await wait_for(lambda: in_sync(cluster) == {1, 2, 3})
    cluster.cut(4, [1])
    await cluster.start(4)
    await asyncio.sleep(1)
    await produce(cluster, b"b", b"c")
    cluster.cut(3, [2])
    cluster.kill(1)
    await wait_for(lambda: is_leading(cluster, 2), step_s=FINE_STEP_S)
    assert replica(cluster, 2).log.high_watermark == 1
    await wait_for(lambda: known_of(cluster, 4, leader=2).has_fetched, step_s=FINE_STEP_S)
    cluster.cut(4, [2])
    await asyncio.sleep(FINE_STEP_S)  # for the store
    cluster.kill(2)
    cluster.kill(3)
    await asyncio.sleep(1)
    await all_well_again(cluster)
    assert await read_all(cluster) == [b"a", b"b", b"c"], "acknowledged records are lost"


def test_a_follower_joins_only_with_all_that_was_there_when_its_leader_was_elected() -> None:
    """KAFKA-7128, R19"""
    simulate(catch_up_with_a_new_leader_that_does_not_know_what_is_committed, 5, controller=5)


def test_acknowledged_records_are_lost_where_a_follower_joins_at_an_old_high_watermark() -> None:
    with joining_before_the_epoch_start(), pytest.raises(AssertionError, match="acknowledged records are lost"):
        simulate(catch_up_with_a_new_leader_that_does_not_know_what_is_committed, 5, controller=5)


# ---- KIP-497


async def write_while_a_replica_joins(cluster: SimulatedCluster) -> None:
    """The store knows that broker 3 has joined, and may have it elected; the leader does not know yet."""
    await create_topic(cluster, [1, 2, 3], min_insync_replicas=2)
    await produce(cluster, b"a")
    cluster.kill(3)
    await wait_for(lambda: in_sync(cluster) == {1, 2})
    await produce(cluster, b"b")
    with slow_store_answers(cluster, 1):
        await cluster.start(3)
        await wait_for(lambda: in_sync(cluster) == {1, 2, 3})
        assert replica(cluster, 1).in_sync_replicas == [1, 2]
        cluster.cut(3, [1])
        sent = asyncio.ensure_future(is_acknowledged(cluster, 1, b"c"))
        await asyncio.sleep(5)
        assert replica(cluster, 2).log.log_end_offset == 3
        cluster.kill(1)
        cluster.kill(2)
        was_acknowledged = await sent
    await wait_for(lambda: is_leading(cluster, 3))
    await all_well_again(cluster)
    values = await read_all(cluster)
    assert values[:2] == [b"a", b"b"]
    assert b"c" in values or not was_acknowledged, "an acknowledged record is lost"


def test_a_write_is_acknowledged_only_when_also_those_who_are_joining_have_it() -> None:
    """KIP-497, R18"""
    simulate(write_while_a_replica_joins, 4, controller=4)


def test_an_acknowledged_record_is_lost_where_the_high_watermark_counts_the_plain_isr() -> None:
    with high_watermark_over_the_plain_isr(), pytest.raises(AssertionError, match="an acknowledged record is lost"):
        simulate(write_while_a_replica_joins, 4, controller=4)
