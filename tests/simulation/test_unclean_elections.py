"""A partition whose in-sync replicas are all gone (R35): it waits, unless the operator would rather lose records."""

import asyncio

import pytest

from tests.simulation.scenario import (
    TOPIC,
    assert_replicas_identical,
    create_topic,
    in_sync,
    produce,
    read_all,
    simulate,
    stored,
    wait_for,
    warnings_of,
)
from tests.simulation.test_throttles import BROKER_RESOURCE, TOPIC_RESOURCE, configure
from tidelog.replication.fetcher_log_lines import epochs_text
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.storage.leader_epochs import EpochEntry

UNCLEAN = "unclean.leader.election.enable"
AT_ONCE_S = 1.0


async def lose_all_in_sync(cluster: SimulatedCluster, **configs: str) -> None:
    """Broker 2 has everything and is down; broker 3 lacks two records."""
    await create_topic(cluster, [2, 3], **configs)
    await produce(cluster, b"on both")
    cluster.kill(3)
    await wait_for(lambda: in_sync(cluster) == {2})
    await produce(cluster, b"on one only")
    await produce(cluster, b"the same")
    await cluster.stop(2)
    await cluster.start(3)
    await wait_for(lambda: stored(cluster).leader == -1)
    assert in_sync(cluster) == {2}


async def has_leader_at_once(cluster: SimulatedCluster) -> bool:
    try:
        await wait_for(lambda: stored(cluster).leader == 3, timeout_s=AT_ONCE_S)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("asked", [1, 3])
@pytest.mark.parametrize(
    ("resource", "name"), [(TOPIC_RESOURCE, TOPIC), (BROKER_RESOURCE, ""), (BROKER_RESOURCE, "the controller")]
)
def test_a_partition_gets_a_leader_at_once_when_unclean_elections_are_allowed(
    asked: int, resource: int, name: str
) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await lose_all_in_sync(cluster)
        controller = cluster.broker(1)._services.membership.controller
        with warnings_of("tidelog.controller.partition_state_machine") as warnings:
            if name == "the controller":
                await configure(cluster, 1, resource, "1", {UNCLEAN: "true"})
            else:
                await configure(cluster, asked, resource, name, {UNCLEAN: "true"})
            assert await has_leader_at_once(cluster)
        assert in_sync(cluster) == {3}
        assert await read_all(cluster) == [b"on both"]
        assert controller.statistics.unclean_elections == 1
        (warning,) = [each for each in warnings if each.startswith("unclean election")]
        assert f"partition={TOPIC}-0 leader=3" in warning
        assert "lost_in_sync_replicas=2" in warning

    simulate(scenario)


def test_what_was_lost_is_logged_and_counted_where_it_is_truncated() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await lose_all_in_sync(cluster)
        epoch = stored(cluster).leader_epoch
        await configure(cluster, 1, TOPIC_RESOURCE, TOPIC, {UNCLEAN: "true"})
        assert await has_leader_at_once(cluster)
        await produce(cluster, b"after it")
        with warnings_of("tidelog.replication.fetcher_log_lines") as warnings:
            await cluster.start(2)
            await wait_for(lambda: in_sync(cluster) == {2, 3})
        (warning,) = warnings
        assert "high_watermark=3 log_end_offset=3 truncate_to=1 lost=2 lost_committed_offsets=1-2" in warning
        assert f"lost_epochs={epoch - 1}@1" in warning
        traffic = cluster.broker(2).replicas.traffic
        assert (traffic.truncated_records, traffic.truncated_committed_records) == (2, 2)
        assert cluster.broker(3).replicas.traffic.truncated_records == 0
        await asyncio.sleep(1)
        assert_replicas_identical(cluster)

    simulate(scenario)


def test_unclean_elections_are_off_by_default() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await lose_all_in_sync(cluster)
        await asyncio.sleep(60)
        assert stored(cluster).leader == -1
        await cluster.start(2)
        await wait_for(lambda: in_sync(cluster) == {2, 3})
        assert await read_all(cluster) == [b"on both", b"on one only", b"the same"]
        truncated = [broker.replicas.traffic.truncated_committed_records for broker in cluster.running]
        assert truncated == [0, 0, 0]

    simulate(scenario)


def test_a_topic_that_forbids_them_waits_although_the_cluster_allows_them() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await lose_all_in_sync(cluster, unclean_leader_election_enable="false")
        await configure(cluster, 3, BROKER_RESOURCE, "", {UNCLEAN: "true"})
        assert not await has_leader_at_once(cluster)
        await configure(cluster, 3, TOPIC_RESOURCE, TOPIC, {UNCLEAN: None})
        assert await has_leader_at_once(cluster), "the default of the cluster counts again"

    simulate(scenario)


def test_a_default_in_the_file_of_the_controller_counts() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [2, 3])
        cluster.kill(3)
        await wait_for(lambda: in_sync(cluster) == {2})
        await produce(cluster, b"on one only")
        cluster.kill(2)
        await cluster.start(3)
        await wait_for(lambda: stored(cluster).leader == 3)

    simulate(scenario, unclean_leader_election_enable=True)


@pytest.mark.parametrize(("first_offset", "text"), [(0, "1@0,3@5"), (2, "1@2,3@5"), (5, "3@5"), (9, "3@9")])
def test_epochs_of_lost_records_are_reported_with_their_offsets(first_offset: int, text: str) -> None:
    assert epochs_text([EpochEntry(1, 0), EpochEntry(3, 5)], first_offset) == text
    assert epochs_text([], first_offset) == "none"
