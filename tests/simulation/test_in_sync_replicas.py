"""In-sync replicas: none leaves for nothing, and none joins too early (R8, R17, R19, R20)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from tests.simulation.broken_elections import (
    caught_up_by_time_only,
    caught_up_never_before_the_first_fetch,
    joining_at_the_high_watermark_under_min_isr,
    own_writes_taken_for_others,
)
from tests.simulation.scenario import (
    all_well_again,
    create_topic,
    in_sync,
    is_leading,
    produce,
    produce_to,
    read_all,
    simulate,
    slow_controller,
    wait_for,
)
from tidelog.cluster.znodes import TOPICS
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.store.interface import Operation, Result, StoreUnavailable
from tidelog.store.memory import MemoryStore

LAG_MS = 2000

# ---- KAFKA-14144


@contextmanager
def lost_answers(cluster: SimulatedCluster, broker_id: int) -> Iterator[list[str]]:
    """The first write of a partition's state by this broker takes effect, but the answer is that the store is away."""
    multi = MemoryStore.multi
    lost: list[str] = []

    async def lose_one(store: MemoryStore, operations: Sequence[Operation]) -> list[Result]:
        results = await multi(store, operations)
        is_ours = store.session_id in cluster.machines[broker_id].sessions
        if not lost and is_ours and operations[0].path.startswith(TOPICS):
            lost.append(operations[0].path)
            raise StoreUnavailable
        return results

    with patch.object(MemoryStore, "multi", lose_one):
        yield lost


async def lose_the_answer_to_a_shrink(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2, 3], min_insync_replicas=2)
    with lost_answers(cluster, 1) as lost:
        cluster.cut(1, [3])
        await produce(cluster, b"a", timeout_s=10)
        await wait_for(lambda: in_sync(cluster) == {1, 2})
        await asyncio.sleep(1)
    assert lost, "no answer was lost"
    await all_well_again(cluster)
    assert in_sync(cluster) == {1, 2, 3}
    await produce(cluster, b"b", timeout_s=5)
    assert await read_all(cluster) == [b"a", b"b"]


def test_a_leader_that_finds_its_own_change_in_the_store_goes_on() -> None:
    """KAFKA-14144, R20. Its controller is another broker, so that the first write is the change."""
    simulate(lose_the_answer_to_a_shrink, controller=2, replica_lag_time_max_ms=LAG_MS)


def test_a_leader_that_does_not_know_its_own_change_is_stuck() -> None:
    with own_writes_taken_for_others(), pytest.raises(AssertionError, match="did not confirm the write in time"):
        simulate(lose_the_answer_to_a_shrink, controller=2, replica_lag_time_max_ms=LAG_MS)


# ---- KAFKA-7152


async def stay_idle(cluster: SimulatedCluster) -> None:
    """Fetch sessions name nothing that does not move, so the leader hears nothing of the partition."""
    await create_topic(cluster, [1, 2, 3], [2, 3, 1])
    await produce(cluster, b"a")

    def nobody_left() -> None:
        assert in_sync(cluster) == {1, 2, 3}, "an idle replica was dropped"

    loop = asyncio.get_running_loop()
    end = loop.time() + 10 * LAG_MS / 1000
    await wait_for(lambda: loop.time() > end, 60, always=nobody_left)
    await produce(cluster, b"b")
    end = loop.time() + 2 * LAG_MS / 1000
    await wait_for(lambda: loop.time() > end, always=nobody_left)


def test_a_replica_that_has_everything_is_in_sync_however_idle() -> None:
    """KAFKA-7152, R17"""
    simulate(stay_idle, replica_lag_time_max_ms=LAG_MS)


def test_idle_replicas_are_dropped_where_only_time_counts() -> None:
    with caught_up_by_time_only(), pytest.raises(AssertionError, match="an idle replica was dropped"):
        simulate(stay_idle, replica_lag_time_max_ms=LAG_MS)


# ---- clocks that are set

HOUR_MS = 3_600_000


async def set_the_clock_ahead(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2, 3])
    await produce(cluster, b"a")
    await asyncio.sleep(0.1)
    cluster.cut(1, [3])
    await produce_to(cluster, 1, b"b", acks=1)
    cluster.machines[1].clock.offset_ms += HOUR_MS
    loop = asyncio.get_running_loop()
    end = loop.time() + 0.8 * LAG_MS / 1000
    await wait_for(lambda: loop.time() > end, always=lambda: _assert_kept(cluster))
    await all_well_again(cluster)


def _assert_kept(cluster: SimulatedCluster) -> None:
    assert in_sync(cluster) == {1, 2, 3}, "a follower was dropped by a clock that was set"


async def set_the_clock_back(cluster: SimulatedCluster) -> None:
    """A follower that is gone would keep all writes waiting for as long as the clock was set back."""
    await create_topic(cluster, [1, 2, 3])
    await produce(cluster, b"a")
    cluster.cut(1, [3])
    await produce_to(cluster, 1, b"b", acks=1)
    cluster.machines[1].clock.offset_ms -= HOUR_MS
    await wait_for(lambda: in_sync(cluster) == {1, 2}, 2 * LAG_MS / 1000)
    await all_well_again(cluster)


@pytest.mark.parametrize("scenario", [set_the_clock_ahead, set_the_clock_back])
def test_a_clock_that_is_set_neither_drops_nor_keeps_a_follower(
    scenario: Callable[[SimulatedCluster], Awaitable[None]],
) -> None:
    """R17, R19. Apache Kafka goes by the wall clock here."""
    simulate(scenario, controller=2, replica_lag_time_max_ms=LAG_MS)


# ---- a new leader


async def elect_a_leader_whose_follower_hears_of_it_late(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2, 3])
    await produce(cluster, b"a")
    with slow_controller(3):
        cluster.kill(1)
        await wait_for(lambda: is_leading(cluster, 2))
        loop = asyncio.get_running_loop()
        end = loop.time() + 0.9 * LAG_MS / 1000
        await wait_for(lambda: loop.time() > end, always=lambda: _assert_in_sync(cluster, 3))
    await all_well_again(cluster)


def _assert_in_sync(cluster: SimulatedCluster, broker_id: int) -> None:
    assert broker_id in in_sync(cluster), "a follower was dropped before it could fetch"


def test_a_new_leader_gives_its_followers_time_for_their_first_fetch() -> None:
    """R8"""
    simulate(elect_a_leader_whose_follower_hears_of_it_late, controller=2, replica_lag_time_max_ms=LAG_MS)


def test_a_new_leader_drops_its_followers_where_their_clock_does_not_start() -> None:
    with (
        caught_up_never_before_the_first_fetch(),
        pytest.raises(AssertionError, match="a follower was dropped before it could fetch"),
    ):
        simulate(elect_a_leader_whose_follower_hears_of_it_late, controller=2, replica_lag_time_max_ms=LAG_MS)


# ---- KAFKA-19996


async def follow_a_fast_leader_slowly(cluster: SimulatedCluster) -> None:
    """One batch in each round trip, while five are written in each two or three, and nothing is committed."""
    await create_topic(cluster, [1, 2], min_insync_replicas=2)
    await produce(cluster, b"a")
    cluster.kill(2)
    await wait_for(lambda: in_sync(cluster) == {1})
    for _ in range(20):
        await produce_to(cluster, 1, b"only on 1", acks=1)
    await cluster.start(2)
    cluster.network.latency_s = 0.1
    for _ in range(30):
        await asyncio.gather(*(produce_to(cluster, 1, b"more", acks=1) for _ in range(5)))
        assert in_sync(cluster) == {1}, "a replica that cannot keep up has joined"
    cluster.network.latency_s = 0.001
    await all_well_again(cluster)
    assert in_sync(cluster) == {1, 2}


def test_under_min_isr_a_replica_joins_only_when_it_has_everything() -> None:
    """KAFKA-19996, R19"""
    simulate(follow_a_fast_leader_slowly, replica_lag_time_max_ms=LAG_MS, replica_fetch_response_max_bytes=1)


def test_under_min_isr_a_replica_joins_in_vain_where_the_high_watermark_is_enough() -> None:
    with (
        joining_at_the_high_watermark_under_min_isr(),
        pytest.raises(AssertionError, match="a replica that cannot keep up has joined"),
    ):
        simulate(follow_a_fast_leader_slowly, replica_lag_time_max_ms=LAG_MS, replica_fetch_response_max_bytes=1)
