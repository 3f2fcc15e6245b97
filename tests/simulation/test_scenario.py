"""The helpers of scenarios do what they say."""

import asyncio

import pytest

from tests.simulation.scenario import (
    all_well_again,
    assert_replicas_identical,
    controller_of,
    create_topic,
    in_sync,
    is_leading,
    produce,
    produce_to,
    read_all,
    replica,
    simulate,
    slow_controller,
    slow_store_answers,
    stored,
    wait_for,
)
from tidelog.errors import NotLeaderOrFollower
from tidelog.simulation.cluster import SimulatedCluster


def test_a_written_record_is_read_from_the_leader_and_stands_on_all_replicas() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [2, 1, 3], min_insync_replicas=2)
        assert is_leading(cluster, 2)
        assert await produce(cluster, b"a", b"b") == 0
        assert (await produce_to(cluster, 1, b"c")).error_code == NotLeaderOrFollower.code
        assert await read_all(cluster) == [b"a", b"b"]
        await all_well_again(cluster)
        assert in_sync(cluster) == {1, 2, 3}
        assert controller_of(cluster) == 3

    simulate(scenario, controller=3)


def test_replicas_that_differ_are_found_out() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3])
        await produce(cluster, b"a", b"b")
        await all_well_again(cluster)
        segment = replica(cluster, 2).log.segments[-1]
        segment.truncate(segment.prepare_truncation(0, 0))
        with pytest.raises(AssertionError):
            assert_replicas_identical(cluster)

    simulate(scenario)


def test_a_slow_controller_leaves_a_broker_in_the_past() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3])
        with slow_controller(3):
            cluster.kill(1)
            await wait_for(lambda: is_leading(cluster, 2))
            await asyncio.sleep(5)
            assert replica(cluster, 3).leader_id == 1
        await wait_for(lambda: replica(cluster, 3).leader_id == 2)

    simulate(scenario, controller=2)


def test_an_answer_of_the_store_may_come_later_than_what_it_reports() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3])
        cluster.kill(3)
        await wait_for(lambda: in_sync(cluster) == {1, 2})
        with slow_store_answers(cluster, 1):
            await cluster.start(3)
            await wait_for(lambda: in_sync(cluster) == {1, 2, 3})
            await asyncio.sleep(1)
            assert replica(cluster, 1).in_sync_replicas == [1, 2]
        await wait_for(lambda: replica(cluster, 1).in_sync_replicas == [1, 2, 3])
        assert stored(cluster).leader == 1

    simulate(scenario, controller=2)
