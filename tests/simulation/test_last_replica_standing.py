"""Fewer than min ISR disks are lost, and nothing that was acknowledged (R42, I4, KIP-966)."""

import asyncio
from unittest.mock import patch

import pytest

from tests.simulation.broken_elections import (
    committing_while_somebody_is_eligible,
    first_one_back_leads,
    lost_directories_overlooked,
    nobody_eligible,
)
from tests.simulation.scenario import (
    TOPIC,
    Scenario,
    all_well_again,
    ask,
    create_topic,
    in_sync,
    is_leading,
    leading,
    produce,
    produce_to,
    read_all,
    simulate,
    slow_store_answers,
    stored,
    wait_for,
    warnings_of,
)
from tidelog.controller.partition_state_machine import RESTARTED_UNCLEANLY
from tidelog.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.simulation.cluster import SimulatedCluster

VALUES = [b"%d" % number for number in range(20)]
WATCHER = 4
"""A broker that hosts nothing and is controller."""


async def _write(cluster: SimulatedCluster, min_in_sync: int = 2) -> None:
    await create_topic(cluster, [1, 2, 3], min_insync_replicas=min_in_sync)
    for value in VALUES:
        await produce(cluster, value)
    await asyncio.sleep(1)


async def _all_are_there(cluster: SimulatedCluster) -> None:
    await wait_for(lambda: stored(cluster).leader != -1 and is_leading(cluster, stored(cluster).leader))
    await all_well_again(cluster)
    found = await read_all(cluster)
    assert found == VALUES, f"acknowledged records are lost: {len(found)} are left"


# ---- one disk is lost


async def lose_the_disk_of_the_last_one(cluster: SimulatedCluster) -> None:
    await _write(cluster)
    cluster.kill(2)
    cluster.kill(3)
    await wait_for(lambda: in_sync(cluster) == {1})
    cluster.cut_power(1)
    cluster.wipe(1)
    await asyncio.sleep(1)
    await asyncio.gather(*(cluster.start(each) for each in (1, 2, 3)))
    await _all_are_there(cluster)


async def lose_a_disk_while_all_are_down(cluster: SimulatedCluster) -> None:
    await _write(cluster)
    for each in (1, 2, 3):
        cluster.kill(each)
    cluster.wipe(1)
    await asyncio.sleep(1)
    await asyncio.gather(*(cluster.start(each) for each in (1, 2, 3)))
    await _all_are_there(cluster)


async def lose_unsynced_records_while_all_are_down(cluster: SimulatedCluster) -> None:
    """Broker 1 has its log directory still, and an empty log in it."""
    await _write(cluster)
    cluster.cut_power(1)
    cluster.kill(2)
    cluster.kill(3)
    await asyncio.sleep(1)
    await asyncio.gather(*(cluster.start(each) for each in (1, 2, 3)))
    await _all_are_there(cluster)


async def lose_a_disk_and_miss_another_broker(cluster: SimulatedCluster) -> None:
    """Broker 3 does not come back: broker 2 must have everything, for broker 1 is the one that lost it."""
    await _write(cluster)
    for each in (1, 2, 3):
        cluster.kill(each)
    cluster.wipe(1)
    await asyncio.sleep(1)
    await asyncio.gather(cluster.start(1), cluster.start(2))
    await wait_for(lambda: is_leading(cluster, 2))
    await _all_are_there(cluster)


async def lose_the_disk_of_a_leader_whose_followers_lag(cluster: SimulatedCluster) -> None:
    """The leader itself takes them out of the in-sync replicas, and keeps them eligible."""
    await _write(cluster)
    cluster.cut(1, [2, 3])
    await produce_to(cluster, 1, b"seen by nobody else", acks=1)
    await wait_for(lambda: in_sync(cluster) == {1}, 60)
    assert len(stored(cluster).eligible_leader_replicas) >= 1
    cluster.cut_power(1)
    cluster.wipe(1)
    await wait_for(lambda: stored(cluster).leader in (2, 3))
    cluster.mend()
    await cluster.start(1)
    await _all_are_there(cluster)


LOSSES = [
    lose_the_disk_of_the_last_one,
    lose_a_disk_while_all_are_down,
    lose_unsynced_records_while_all_are_down,
    lose_a_disk_and_miss_another_broker,
    lose_the_disk_of_a_leader_whose_followers_lag,
]


@pytest.mark.parametrize("scenario", LOSSES)
def test_one_lost_disk_of_three_costs_nothing(scenario: Scenario) -> None:
    simulate(scenario, 4, controller=WATCHER)


@pytest.mark.parametrize("scenario", [lose_the_disk_of_the_last_one, lose_a_disk_while_all_are_down])
def test_one_lost_disk_costs_nothing_also_where_the_controller_is_among_them(scenario: Scenario) -> None:
    simulate(scenario)


@pytest.mark.parametrize("scenario", [lose_the_disk_of_the_last_one, lose_the_disk_of_a_leader_whose_followers_lag])
def test_acknowledged_records_are_lost_where_nobody_is_eligible(scenario: Scenario) -> None:
    with nobody_eligible(), pytest.raises(AssertionError):
        simulate(scenario, 4, controller=WATCHER)


def test_acknowledged_records_are_lost_where_the_first_one_back_leads() -> None:
    with first_one_back_leads(), pytest.raises(AssertionError, match="acknowledged records are lost"):
        simulate(lose_unsynced_records_while_all_are_down, 4, controller=WATCHER)


# ---- log directories


async def lose_a_disk_where_one_copy_suffices(cluster: SimulatedCluster) -> None:
    """With a min ISR of 1 nobody is asked, but who came back with another disk is not elected before the others."""
    await _write(cluster, min_in_sync=1)
    for each in (1, 2, 3):
        cluster.kill(each)
    cluster.wipe(1)
    await asyncio.sleep(1)
    await cluster.start(1)
    await asyncio.gather(cluster.start(2), cluster.start(3))
    await _all_are_there(cluster)


def test_a_broker_with_an_empty_disk_does_not_lead_while_others_may_have_records() -> None:
    simulate(lose_a_disk_where_one_copy_suffices, 4, controller=WATCHER)


def test_acknowledged_records_are_lost_where_nobody_asks_for_the_log_directory() -> None:
    with lost_directories_overlooked(), pytest.raises(AssertionError, match="acknowledged records are lost"):
        simulate(lose_a_disk_where_one_copy_suffices, 4, controller=WATCHER)


async def lose_one_directory_of_two(cluster: SimulatedCluster) -> None:
    """The broker still has the other one: where the log was is found out by asking."""
    await _write(cluster, min_in_sync=1)
    for each in (1, 2, 3):
        cluster.kill(each)
    disk = cluster.machines[1].disk
    (held,) = [path for path in ("/one", "/two") if disk.exists(f"{path}/{TOPIC}-0")]
    disk.remove_tree(held)
    await asyncio.sleep(1)
    await cluster.start(1)
    await asyncio.sleep(5)
    assert stored(cluster).leader == -1
    await asyncio.gather(cluster.start(2), cluster.start(3))
    await _all_are_there(cluster)


def test_a_broker_that_lost_the_directory_of_a_log_does_not_lead() -> None:
    simulate(lose_one_directory_of_two, 4, controller=WATCHER, log_dirs=("/one", "/two"))


async def lose_the_other_directory(cluster: SimulatedCluster) -> None:
    await _write(cluster, min_in_sync=1)
    for each in (1, 2, 3):
        cluster.kill(each)
    disk = cluster.machines[1].disk
    (other,) = [path for path in ("/one", "/two") if not disk.exists(f"{path}/{TOPIC}-0")]
    disk.remove_tree(other)
    await asyncio.sleep(1)
    await cluster.start(1)
    await wait_for(lambda: is_leading(cluster, 1))
    await _all_are_there(cluster)


def test_a_broker_that_lost_another_directory_leads_as_soon_as_it_reported_that() -> None:
    simulate(lose_the_other_directory, 4, controller=WATCHER, log_dirs=("/one", "/two"))


# ---- waiting


async def wait_for_the_second_one(cluster: SimulatedCluster) -> None:
    await _write(cluster)
    for each in (1, 2, 3):
        cluster.cut_power(each) if each == 2 else cluster.kill(each)
    await asyncio.sleep(1)
    with warnings_of("tidelog.controller.partition_state_machine") as warned:
        await cluster.start(2)
        await asyncio.sleep(10)
    assert stored(cluster).leader == -1, "broker 2 may have lost records, and has"
    assert any(RESTARTED_UNCLEANLY in line and "brokers=1,3" in line for line in warned), warned
    await cluster.start(3)
    await wait_for(lambda: is_leading(cluster, 3))
    await _all_are_there(cluster)


def test_a_partition_waits_until_enough_have_reported_where_their_logs_end() -> None:
    simulate(wait_for_the_second_one, 4, controller=WATCHER)


async def change_the_controller_while_waiting(cluster: SimulatedCluster) -> None:
    await _write(cluster)
    for each in (1, 2, 3):
        cluster.cut_power(each) if each == 1 else cluster.kill(each)
    await asyncio.sleep(1)
    await cluster.start(1)
    await wait_for(lambda: stored(cluster).leader == -1)
    cluster.kill(WATCHER)
    await asyncio.sleep(5)
    await asyncio.gather(cluster.start(2), cluster.start(WATCHER))
    await _all_are_there(cluster)


def test_another_controller_asks_again() -> None:
    simulate(change_the_controller_while_waiting, 4, controller=WATCHER)


async def restart_who_has_answered(cluster: SimulatedCluster) -> None:
    """What broker 1 reported is void when it comes back once more, now without what it had."""
    await _write(cluster)
    for each in (1, 2, 3):
        cluster.kill(each)
    await asyncio.sleep(1)
    await cluster.start(1)
    await asyncio.sleep(2)
    cluster.kill(1)
    cluster.wipe(1)
    await asyncio.sleep(1)
    await cluster.start(1)
    await asyncio.sleep(2)
    assert stored(cluster).leader == -1
    await cluster.start(2)
    await wait_for(lambda: is_leading(cluster, 2))
    await _all_are_there(cluster)


def test_an_answer_belongs_to_the_incarnation_that_gave_it() -> None:
    simulate(restart_who_has_answered, 4, controller=WATCHER)


# ---- clean restarts


async def stop_all_and_start_the_last_but_one(cluster: SimulatedCluster) -> None:
    await _write(cluster)
    for each in (3, 2, 1):
        await cluster.stop(each)
    state = stored(cluster)
    assert (state.in_sync_replicas, state.eligible_leader_replicas) == ((1,), (2,))
    with patch(
        "tidelog.controller.log_end_queries.replicas_to_query",
        side_effect=AssertionError("no broker must be queried"),
    ):
        await cluster.start(2)
        await wait_for(lambda: is_leading(cluster, 2), 2)
    await _all_are_there(cluster)


def test_an_eligible_replica_that_stopped_cleanly_leads_at_once() -> None:
    simulate(stop_all_and_start_the_last_but_one, 4, controller=WATCHER)


async def lose_all_sessions_at_once(cluster: SimulatedCluster) -> None:
    """The processes live on: what they hold is what they held."""
    await _write(cluster)
    for each in (1, 2, 3):
        cluster.cut_off_from_store(each)
    await wait_for(lambda: stored(cluster).leader == -1, 60)
    cluster.cut(WATCHER, [3])
    for each in (1, 2):
        cluster.reconnect_to_store(each)
    await wait_for(lambda: is_leading(cluster, 1) or is_leading(cluster, 2), 5)
    cluster.reconnect_to_store(3)
    await _all_are_there(cluster)


def test_a_broker_that_lost_only_its_session_leads_at_once() -> None:
    simulate(lose_all_sessions_at_once, 4, controller=WATCHER)


# ---- min ISR changes


async def lower_min_isr_below_the_standing(cluster: SimulatedCluster) -> None:
    """Broker 1 goes on alone. What is acknowledged then must not be lost by an election of who was eligible."""
    await create_topic(cluster, [1, 2], min_insync_replicas=2)
    await produce(cluster, b"on both")
    cluster.kill(2)
    await wait_for(lambda: in_sync(cluster) == {1})
    assert stored(cluster).eligible_leader_replicas == (2,)
    with slow_store_answers(cluster, 1):
        await _set_min_isr(cluster, 1)
        sent = asyncio.ensure_future(produce_to(cluster, 1, b"on one"))
        await asyncio.sleep(1)
        leader = leading(cluster, 1)
        assert leader is not None
        assert leader.high_watermark == 1, "committed while somebody else may be elected"
    assert (await sent).error_code == 0
    assert stored(cluster).eligible_leader_replicas == ()


async def _set_min_isr(cluster: SimulatedCluster, value: int) -> None:
    setting = AlterableConfig(name="min.insync.replicas", config_operation=0, value=str(value))
    resource = AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[setting])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    response = await ask(cluster, WATCHER, request, IncrementalAlterConfigsResponse)
    assert response.responses[0].error_code == 0


def test_nothing_is_committed_before_the_store_knows_that_nobody_else_is_eligible() -> None:
    simulate(lower_min_isr_below_the_standing, 4, controller=WATCHER)


def test_records_are_committed_too_early_where_eligible_replicas_do_not_hold_back() -> None:
    with (
        committing_while_somebody_is_eligible(),
        pytest.raises(AssertionError, match="committed while somebody else may be elected"),
    ):
        simulate(lower_min_isr_below_the_standing, 4, controller=WATCHER)


async def raise_min_isr(cluster: SimulatedCluster) -> None:
    """The controller hears of it, too."""
    await create_topic(cluster, [1, 2, 3], min_insync_replicas=1)
    await _set_min_isr(cluster, 3)
    await asyncio.sleep(1)
    cluster.kill(3)
    await wait_for(lambda: in_sync(cluster) == {1, 2})
    assert stored(cluster).eligible_leader_replicas == (3,)


def test_a_controller_follows_changes_of_min_isr() -> None:
    simulate(raise_min_isr, 4, controller=WATCHER)


# ---- what clients see


async def describe_who_is_eligible(cluster: SimulatedCluster) -> None:
    await _write(cluster)
    cluster.kill(3)
    cluster.kill(2)
    await wait_for(lambda: in_sync(cluster) == {1})
    eligible = set(stored(cluster).eligible_leader_replicas)
    await asyncio.sleep(1)
    assert await _described(cluster) == (eligible, set())
    cluster.cut(1, [2, 3])
    await asyncio.gather(cluster.start(2), cluster.start(3))
    await asyncio.sleep(1)
    assert await _described(cluster) == (set(), eligible)
    cluster.mend()
    await all_well_again(cluster)
    await asyncio.sleep(10)
    assert await _described(cluster) == (set(), set())


async def _described(cluster: SimulatedCluster) -> tuple[set[int], set[int]]:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)])
    response = await ask(cluster, WATCHER, request, DescribeTopicPartitionsResponse)
    (partition,) = response.topics[0].partitions
    return set(partition.eligible_leader_replicas or ()), set(partition.last_known_elr or ())


def test_all_brokers_report_who_is_eligible_and_who_was_before_it_restarted() -> None:
    simulate(describe_who_is_eligible, 4, controller=WATCHER)
