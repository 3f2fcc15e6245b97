"""Acknowledged records have reached the disks of all in-sync replicas where the topic asks for it."""

import asyncio
from unittest.mock import patch

import pytest

from tests.simulation.scenario import all_well_again, create_topic, produce, read_all, simulate
from tidelog.replication.follower_effects import FollowerEffectRunner
from tidelog.replication.partition_states import PartitionFetchState
from tidelog.simulation.cluster import SimulatedCluster


async def cut_the_power_of_all(cluster: SimulatedCluster) -> None:
    """The first to come back is one that followed."""
    await create_topic(cluster, [2, 3, 1], min_insync_replicas=2, flush_messages=1)
    for value in (b"a", b"b", b"c"):
        await produce(cluster, value)
    for broker_id in cluster.machines:
        cluster.cut_power(broker_id)
    await asyncio.sleep(1)
    await cluster.start(3)
    await all_well_again(cluster)
    assert await read_all(cluster) == [b"a", b"b", b"c"], "an acknowledged record is lost"


def test_with_flush_messages_acknowledged_records_survive_a_power_cut_of_all_brokers() -> None:
    simulate(cut_the_power_of_all)


def test_acknowledged_records_are_lost_where_followers_confirm_what_is_not_on_their_disks() -> None:
    def confirm_at_once(work: FollowerEffectRunner, followed: PartitionFetchState) -> None:
        followed.core.asked = None
        work.states.on_moved(followed)

    with (
        patch.object(FollowerEffectRunner, "hold_until_flushed", confirm_at_once),
        pytest.raises(AssertionError, match="an acknowledged record is lost"),
    ):
        simulate(cut_the_power_of_all)
