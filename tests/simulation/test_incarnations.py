"""A broker that came back is not the broker that went: what it had may be gone (R6, R11, R39)."""

import asyncio

import pytest

from tests.simulation.broken_elections import (
    clean_shutdown_marker_left_while_loading,
    registration_epochs_ignored,
    stopping_replicas_of_any_epoch,
)
from tests.simulation.scenario import (
    TOPIC,
    all_well_again,
    ask,
    create_topic,
    hosts,
    in_sync,
    produce,
    read_all,
    replica,
    simulate,
    stored,
    wait_for,
)
from tidelog.errors import FencedLeaderEpoch
from tidelog.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.inspection import registered_epoch

# ---- KIP-903


async def lose_a_disk_while_the_controller_looks_away(cluster: SimulatedCluster) -> None:
    """The controller sees broker 3 before and after, and never sees it gone."""
    await create_topic(cluster, [2, 3, 1], min_insync_replicas=2)
    await produce(cluster, b"a")
    cluster.freeze(1)
    cluster.kill(3)
    await wait_for(lambda: registered_epoch(cluster.store_state, 3) is None)
    cluster.wipe(3)
    starting = asyncio.ensure_future(cluster.start(3))
    await wait_for(lambda: registered_epoch(cluster.store_state, 3) is not None)
    cluster.thaw(1)
    await starting
    cluster.kill(2)
    await wait_for(lambda: stored(cluster).leader in (1, 3))
    await all_well_again(cluster)
    assert await read_all(cluster) == [b"a"], "an acknowledged record is lost"


def test_a_broker_that_lost_its_disk_is_not_elected_for_what_it_had() -> None:
    """KIP-903, R39"""
    simulate(lose_a_disk_while_the_controller_looks_away)


def test_acknowledged_records_are_lost_where_registration_epochs_are_ignored() -> None:
    with registration_epochs_ignored(), pytest.raises(AssertionError, match="an acknowledged record is lost"):
        simulate(lose_a_disk_while_the_controller_looks_away)


# ---- KAFKA-10471


class PowerCut(BaseException):
    """Nothing can be done about it."""


async def cut_power_while_loading(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2, 3])
    await produce(cluster, b"a")
    await produce(cluster, b"b")
    await wait_for(lambda: replica(cluster, 3).log.high_watermark == 2)
    await cluster.stop(3)
    await _start_until_the_power_is_cut(cluster, 3)
    _flip_last_byte(cluster.machines[3].disk, f"/logs/{TOPIC}-0/00000000000000000000.log")
    await all_well_again(cluster)
    assert await read_all(cluster) == [b"a", b"b"]


async def _start_until_the_power_is_cut(cluster: SimulatedCluster, broker_id: int) -> None:
    disk = cluster.machines[broker_id].disk
    check = disk.check

    def cut(operation: str, path: str) -> None:
        check(operation, path)
        if path.startswith(f"/logs/{TOPIC}-0/"):
            raise PowerCut

    disk.check = cut  # type: ignore[method-assign]
    with pytest.raises(PowerCut):
        await cluster.start(broker_id)
    disk.check = check  # type: ignore[method-assign]
    cluster.cut_power(broker_id)


def _flip_last_byte(disk: MemoryDisk, path: str) -> None:
    data = disk.read_file(path)
    disk.write_file_atomically(path, data[:-1] + bytes([data[-1] ^ 255]))


def test_a_log_is_checked_again_after_a_crash_while_it_was_loaded() -> None:
    """KAFKA-10471, R6"""
    simulate(cut_power_while_loading)


def test_damage_stays_where_a_crash_while_loading_passes_for_clean() -> None:
    with clean_shutdown_marker_left_while_loading(), pytest.raises(AssertionError, match="hold different bytes"):
        simulate(cut_power_while_loading)


# ---- KIP-570


async def let_an_old_stop_replica_arrive(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2, 3])
    await produce(cluster, b"a")
    late = _stop_replica(cluster, 3)
    cluster.kill(2)
    await wait_for(lambda: in_sync(cluster) == {1, 3})
    await cluster.start(2)
    await wait_for(lambda: replica(cluster, 3).leader_epoch > 0)
    response = await ask(cluster, 3, late, StopReplicaResponse)
    assert set(hosts(cluster)) == {1, 2, 3}, "a late request has stopped a replica"
    await all_well_again(cluster)
    assert [each.error_code for each in response.partition_errors] == [FencedLeaderEpoch.code]


def _stop_replica(cluster: SimulatedCluster, broker_id: int) -> StopReplicaRequest:
    """As the controller of now would send it."""
    state = stored(cluster)
    partition = StopReplicaPartitionState(partition_index=0, leader_epoch=state.leader_epoch, delete_partition=True)
    return StopReplicaRequest(
        controller_id=1,
        controller_epoch=state.controller_epoch,
        broker_epoch=registered_epoch(cluster.store_state, broker_id) or -1,
        topic_states=[StopReplicaTopicState(topic_name=TOPIC, partition_states=[partition])],
    )


def test_a_late_stop_replica_does_not_stop_a_replica_of_a_later_epoch() -> None:
    """KIP-570, R11"""
    simulate(let_an_old_stop_replica_arrive)


def test_a_late_stop_replica_stops_a_replica_where_epochs_are_not_compared() -> None:
    with stopping_replicas_of_any_epoch(), pytest.raises(AssertionError, match="a late request has stopped a replica"):
        simulate(let_an_old_stop_replica_arrive)


async def stop_in_the_present_epoch(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2, 3])
    await ask(cluster, 3, _stop_replica(cluster, 3), StopReplicaResponse)
    assert set(hosts(cluster)) == {1, 2}


def test_a_stop_replica_of_the_present_epoch_is_obeyed() -> None:
    """R11"""
    simulate(stop_in_the_present_epoch)
