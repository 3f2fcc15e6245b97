"""Reassignments as the controller carries them out: requests, in-sync changes, deaths, znode (R37)."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.controller.controlled_cluster import ControlledCluster, on_virtual_time
from tidelog.cluster import znodes
from tidelog.controller.controller import Controller
from tidelog.controller.topic_deletion import RETRY_S
from tidelog.errors import (
    InvalidReplicaAssignment,
    KafkaError,
    NoReassignmentInProgress,
    NotController,
    UnknownTopicOrPartition,
)
from tidelog.store.interface import StoreUnavailable
from tidelog.store.memory import MemoryStore
from tidelog.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
SIX = (1, 2, 3, 4, 5, 6)


async def started(*replicas: int, brokers: Sequence[int] = SIX, **configs: str) -> ControlledCluster:
    cluster = await ControlledCluster.start(brokers)
    await cluster.create_topic("orders", [replicas or (1, 2, 3)], **configs)
    return cluster


def controller_of(cluster: ControlledCluster) -> Controller:
    return next(each for each in cluster.controllers.values() if each.is_active)


async def move(cluster: ControlledCluster, *target: int, partition: TopicPartition = ORDERS) -> KafkaError | None:
    outcomes = await controller_of(cluster).alter_partition_reassignments({partition: target})
    await cluster.settle()
    return outcomes[partition]


async def cancel(cluster: ControlledCluster, partition: TopicPartition = ORDERS) -> KafkaError | None:
    outcomes = await controller_of(cluster).alter_partition_reassignments({partition: None})
    await cluster.settle()
    return outcomes[partition]


async def join(cluster: ControlledCluster, *in_sync: int) -> None:
    """The leader writes and announces it."""
    epochs = {each: broker.epoch for each, broker in controller_of(cluster).context.brokers.items()}
    await cluster.set_in_sync("orders", 0, in_sync, {each: epochs[each] for each in in_sync})
    await cluster.announce("orders", 0)


async def assignment(cluster: ControlledCluster) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    found = await cluster.partition("orders")
    return found.replicas, found.adding_replicas, found.removing_replicas


async def leadership(cluster: ControlledCluster) -> tuple[int, int, tuple[int, ...]]:
    found = await cluster.partition("orders")
    return found.leader, found.leader_epoch, found.in_sync_replicas


def test_new_replicas_are_started_beside_the_old_ones() -> None:
    async def scenario() -> None:
        cluster = await started()
        assert await move(cluster, 4, 5, 6) is None
        assert await assignment(cluster) == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
        assert await leadership(cluster) == (1, 1, (1, 2, 3))
        for broker_id in SIX:
            sent = cluster.sent_leadership(broker_id, "orders")
            assert (sent.leader, sent.leader_epoch, sent.replicas) == (1, 1, (4, 5, 6, 1, 2, 3))
            assert (sent.adding_replicas, sent.removing_replicas) == ((4, 5, 6), (1, 2, 3))
            assert sent.is_new == (broker_id > 3)
        assert controller_of(cluster).context.reassigning() == [ORDERS]
        await cluster.stop()

    on_virtual_time(scenario)


def test_the_old_replicas_are_deleted_when_the_new_ones_are_in_sync() -> None:
    async def scenario() -> None:
        cluster = await started()
        await move(cluster, 4, 5, 6)
        await join(cluster, 1, 2, 3, 4, 5)
        assert await leadership(cluster) == (1, 1, (1, 2, 3, 4, 5))
        cluster.forget_requests()
        await join(cluster, 1, 2, 3, 4, 5, 6)
        assert await assignment(cluster) == ((4, 5, 6), (), ())
        assert await leadership(cluster) == (4, 2, (4, 5, 6))
        assert [cluster.stops(each) for each in SIX] == [[("orders", 0, True)]] * 3 + [[]] * 3
        assert cluster.sent_leadership(5, "orders").replicas == (4, 5, 6)
        assert cluster.known_leader(2, "orders") == 4
        assert (await cluster.partition("orders")).removed_replicas == (), "all have answered"
        assert controller_of(cluster).context.reassigning() == []
        await cluster.stop()

    on_virtual_time(scenario)


@pytest.mark.parametrize(("target", "leader"), [((1, 2), 1), ((3, 2), 3)])
def test_replicas_are_removed_at_once(target: tuple[int, ...], leader: int) -> None:
    async def scenario() -> None:
        cluster = await started()
        assert await move(cluster, *target) is None
        assert await assignment(cluster) == (target, (), ())
        assert await leadership(cluster) == (leader, 2, tuple(each for each in (1, 2, 3) if each in target))
        (gone,) = {1, 2, 3}.difference(target)
        assert cluster.stops(gone) == [("orders", 0, True)]
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_partition_without_leader_since_ever_gets_one_on_its_target() -> None:
    async def scenario() -> None:
        cluster = await started(7, 8)
        assert await move(cluster, 2, 3) is None
        assert await assignment(cluster) == ((2, 3), (), ())
        assert await leadership(cluster) == (2, 0, (2, 3))
        assert cluster.sent_leadership(3, "orders").is_new
        await cluster.stop()

    on_virtual_time(scenario)


def test_what_cannot_be_is_refused() -> None:
    async def scenario() -> None:
        cluster = await started()
        assert isinstance(await move(cluster, 1, 9), InvalidReplicaAssignment)
        assert isinstance(await cancel(cluster), NoReassignmentInProgress)
        for missing in (TopicPartition("orders", 1), TopicPartition("orders", -1), TopicPartition("other", 0)):
            assert isinstance(await move(cluster, 1, 2, partition=missing), UnknownTopicOrPartition)
            assert isinstance(await cancel(cluster, missing), UnknownTopicOrPartition)
        assert await leadership(cluster) == (1, 0, (1, 2, 3)), "nothing was written"
        await cluster.stop()

    on_virtual_time(scenario)


def test_only_the_controller_reassigns() -> None:
    async def scenario() -> None:
        cluster = await started()
        other = await cluster.start_controller(2)
        with pytest.raises(NotController):
            await other.alter_partition_reassignments({ORDERS: (1,)})
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_cancelled_reassignment_deletes_what_it_added() -> None:
    async def scenario() -> None:
        cluster = await started()
        await move(cluster, 4, 5, 6)
        await join(cluster, 1, 2, 3, 4)
        assert await cancel(cluster) is None
        assert await assignment(cluster) == ((1, 2, 3), (), ())
        assert await leadership(cluster) == (1, 2, (1, 2, 3))
        assert [cluster.stops(each) for each in SIX] == [[]] * 3 + [[("orders", 0, True)]] * 3
        assert (await cluster.partition("orders")).removed_replicas == ()
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_replica_that_is_removed_and_added_again_is_not_deleted_by_a_late_answer() -> None:
    async def scenario() -> None:
        cluster = await started()
        cluster.brokers.silent.add(3)
        await move(cluster, 1, 2)
        assert (await cluster.partition("orders")).removed_replicas == (3,)
        await move(cluster, 1, 2, 3)
        assert (await cluster.partition("orders")).removed_replicas == ()
        cluster.brokers.silent.clear()
        for deliver in cluster.brokers.held_back:
            deliver()
        await cluster.settle()
        assert await assignment(cluster) == ((1, 2, 3), (3,), ())
        await join(cluster, 1, 2, 3)
        assert await assignment(cluster) == ((1, 2, 3), (), ())
        await cluster.stop()

    on_virtual_time(scenario)


def test_the_log_of_a_broker_that_is_away_is_deleted_when_it_comes_back() -> None:
    async def scenario() -> None:
        cluster = await started()
        await cluster.kill_broker(3)
        await move(cluster, 1, 2, 4)
        await join(cluster, 1, 2, 4)
        assert await assignment(cluster) == ((1, 2, 4), (), ()), "it does not wait for who is removed"
        assert (await cluster.partition("orders")).removed_replicas == (3,)
        cluster.forget_requests()
        await cluster.start_broker(3)
        assert cluster.stops(3) == [("orders", 0, True)]
        assert (await cluster.partition("orders")).removed_replicas == ()
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_log_in_a_failed_directory_is_deleted_when_its_broker_has_started_again() -> None:
    async def scenario() -> None:
        cluster = await started()
        cluster.brokers.failed_replicas.add((3, ORDERS))
        await move(cluster, 1, 2)
        await asyncio.sleep(2 * RETRY_S)
        assert cluster.stops(3) == [("orders", 0, True)]
        cluster.brokers.failed_replicas.clear()
        await cluster.restart_broker(3)
        assert cluster.stops(3) == [("orders", 0, True)] * 2
        assert (await cluster.partition("orders")).removed_replicas == ()
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_target_that_dies_and_comes_back_gets_its_role_again() -> None:
    async def scenario() -> None:
        cluster = await started()
        await move(cluster, 1, 2, 4)
        await cluster.kill_broker(4)
        assert await assignment(cluster) == ((1, 2, 4, 3), (4,), (3,))
        cluster.forget_requests()
        await cluster.start_broker(4)
        assert cluster.sent_leadership(4, "orders").replicas == (1, 2, 4, 3)
        await join(cluster, 1, 2, 3, 4)
        assert await assignment(cluster) == ((1, 2, 4), (), ())
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_new_controller_goes_on() -> None:
    async def scenario() -> None:
        cluster = await started()
        await cluster.start_controller(2)
        await move(cluster, 4, 5, 6)
        cluster.forget_requests()
        await cluster.kill_broker(1)
        assert controller_of(cluster) is cluster.controllers[2]
        assert cluster.sent_leadership(6, "orders").adding_replicas == (4, 5, 6)
        assert cluster.sent_leadership(6, "orders").is_new
        await join(cluster, 2, 3, 4, 5, 6)
        assert await assignment(cluster) == ((4, 5, 6), (), ())
        assert (await cluster.partition("orders")).removed_replicas == (1,)
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_new_controller_completes_what_became_ready_meanwhile_and_deletes_what_is_left() -> None:
    async def scenario() -> None:
        cluster = await started()
        await cluster.start_controller(2)
        await move(cluster, 4, 5, 6)
        await cluster.set_in_sync("orders", 0, (1, 2, 3, 4, 5, 6))  # not announced
        cluster.brokers.silent.update((2, 3))
        cluster.forget_requests()
        await cluster.kill_broker(1)
        assert await assignment(cluster) == ((4, 5, 6), (), ())
        assert cluster.stops(3) == [("orders", 0, True)]
        with pytest.raises(StopIteration):
            cluster.sent_leadership(3, "orders")  # no role for who is to delete its replica
        assert (await cluster.partition("orders")).removed_replicas == (1, 2, 3)
        await cluster.stop()

    on_virtual_time(scenario)


@pytest.mark.parametrize("lost_response", range(1, 8))
def test_a_write_whose_answer_is_lost_is_found(lost_response: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        cluster = await started()
        count, multi = 0, MemoryStore.multi

        async def forgetful(store: MemoryStore, operations: Sequence[object]) -> object:
            nonlocal count
            results = await multi(store, operations)  # type: ignore[arg-type]
            if store is cluster.stores[1]:
                count += 1
                if count == lost_response:
                    raise StoreUnavailable(reason="the answer is lost")
            return results

        monkeypatch.setattr(MemoryStore, "multi", forgetful)
        assert await move(cluster, 4, 5, 6) is None
        await asyncio.sleep(1)
        assert cluster.sent_leadership(4, "orders").leader_epoch == 1
        await join(cluster, 1, 2, 3, 4, 5, 6)
        await asyncio.sleep(1)
        assert await leadership(cluster) == (4, 2, (4, 5, 6))
        assert (await cluster.partition("orders")).removed_replicas == ()
        assert [cluster.stops(each) for each in (1, 2, 3)] == [[("orders", 0, True)]] * 3
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_topic_that_is_deleted_is_not_reassigned_any_more() -> None:
    async def scenario() -> None:
        cluster = await started()
        await cluster.store.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment({ORDERS: (4, 5, 6)}))
        await cluster.settle()
        cluster.brokers.silent.update(SIX)
        await cluster.store.create(znodes.delete_topic_path("orders"))
        await cluster.settle()
        assert all(cluster.stops(each)[-1] == ("orders", 0, True) for each in SIX)
        assert isinstance(await move(cluster, 1, 2), UnknownTopicOrPartition)
        assert await cluster.store.exists(znodes.REASSIGN_PARTITIONS) is None
        for deliver in cluster.brokers.held_back:
            deliver()
        await cluster.settle()
        assert await cluster.store.exists(znodes.topic_path("orders")) is None
        await cluster.stop()

    on_virtual_time(scenario)


# -- /admin/reassign_partitions


async def request_by_znode(cluster: ControlledCluster, **targets: tuple[int, ...]) -> None:
    wanted = {TopicPartition(topic, 0): target for topic, target in targets.items()}
    await cluster.store.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment(wanted))
    await cluster.settle()


async def requested(cluster: ControlledCluster) -> dict[TopicPartition, tuple[int, ...]] | None:
    node = await cluster.store.exists(znodes.REASSIGN_PARTITIONS)
    return None if node is None else znodes.decode_reassignment(node.data)


def test_a_request_by_znode_stays_until_it_is_carried_out() -> None:
    async def scenario() -> None:
        cluster = await started()
        await request_by_znode(cluster, orders=(4, 5, 6), missing=(1, 2))
        assert await assignment(cluster) == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
        assert await requested(cluster) == {ORDERS: (4, 5, 6)}, "what cannot be done is removed"
        await join(cluster, 1, 2, 3, 4, 5, 6)
        assert await assignment(cluster) == ((4, 5, 6), (), ())
        assert await requested(cluster) is None
        await request_by_znode(cluster, orders=(4, 5))
        assert await assignment(cluster) == ((4, 5), (), ()), "the next one is seen, too"
        assert await requested(cluster) is None
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_request_by_znode_for_what_is_there_already_is_removed() -> None:
    async def scenario() -> None:
        cluster = await started()
        await request_by_znode(cluster, orders=(1, 2, 3))
        assert await requested(cluster) is None
        assert await leadership(cluster) == (1, 0, (1, 2, 3))
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_later_request_by_the_api_replaces_one_by_znode() -> None:
    async def scenario() -> None:
        cluster = await started()
        await request_by_znode(cluster, orders=(4, 5, 6))
        assert await move(cluster, 1, 2, 4) is None
        assert await requested(cluster) is None
        assert await assignment(cluster) == ((1, 2, 4, 3), (4,), (3,))
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_request_by_znode_that_a_controller_did_not_get_to_is_carried_out_by_the_next() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start(SIX, controller=False)
        await cluster.create_topic("orders", [(1, 2, 3)])
        await request_by_znode(cluster, orders=(4, 2, 3))
        await cluster.start_controller(1)
        assert (await assignment(cluster))[0] == (4, 2, 3, 1)
        await cluster.stop()

    on_virtual_time(scenario)


def test_nonsense_in_the_znode_is_removed() -> None:
    async def scenario() -> None:
        cluster = await started()
        await cluster.store.create(znodes.REASSIGN_PARTITIONS, b'{"partitions":"all"}')
        await cluster.settle()
        assert await requested(cluster) is None
        await cluster.stop()

    on_virtual_time(scenario)
