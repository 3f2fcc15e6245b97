import asyncio

import pytest

from tests.controller.controlled_cluster import ControlledCluster, on_virtual_time
from tidelog.cluster import znodes
from tidelog.errors import (
    BrokerNotAvailable,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
    UnknownTopicOrPartition,
)
from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.protocol.messages.update_metadata import UpdateMetadataRequest
from tidelog.types import TopicPartition


async def notify(cluster: ControlledCluster, prefix: str, data: bytes) -> None:
    await cluster.store.create(prefix, data, sequential=True)
    await cluster.settle()


def test_a_change_of_in_sync_replicas_is_passed_on_to_all_brokers_and_to_no_replica() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(1, 2), (1, 3)])
        await cluster.set_in_sync("orders", 1, (1,))
        cluster.forget_requests()
        named = [TopicPartition("orders", 1), TopicPartition("gone", 0), TopicPartition("orders", 7)]
        await notify(cluster, znodes.IN_SYNC_CHANGE_PREFIX, znodes.encode_partition_list(named))
        assert cluster.paths(znodes.IN_SYNC_CHANGES) == []
        assert cluster.controllers[1].context.partition(TopicPartition("orders", 1)).in_sync_replicas == (1,)
        assert len(cluster.requests(UpdateMetadataRequest)) == 3
        assert cluster.requests(LeaderAndIsrRequest) == []
        for request in cluster.requests(UpdateMetadataRequest):
            ((state,),) = [topic.partition_states for topic in request.topic_states]
            assert (state.partition_index, state.isr, state.zk_version) == (1, (1,), 1)
        await notify(cluster, znodes.IN_SYNC_CHANGE_PREFIX, b"nonsense")
        assert cluster.paths(znodes.IN_SYNC_CHANGES) == []
        await cluster.stop()

    on_virtual_time(scenario)


def test_replicas_in_a_failed_log_directory_lose_their_offices_and_the_others_stay() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2, 3), (2, 3), (3, 2)])
        cluster.brokers.failed_replicas = {(2, TopicPartition("orders", 0)), (2, TopicPartition("orders", 2))}
        await notify(cluster, znodes.LOG_DIRECTORY_EVENT_PREFIX, znodes.encode_log_directory_event(2))
        assert cluster.paths(znodes.LOG_DIRECTORY_EVENTS) == []
        led, healthy, followed = [await cluster.partition("orders", index) for index in range(3)]
        assert (led.leader, led.in_sync_replicas) == (3, (3,))
        assert (healthy.leader, healthy.in_sync_replicas) == (2, (2, 3))
        assert (followed.leader, followed.in_sync_replicas) == (3, (3,))
        cluster.brokers.failed_replicas = set()
        await cluster.kill_broker(3)
        assert (await cluster.partition("orders", 0)).leader == -1
        await cluster.restart_broker(2)
        assert not cluster.controllers[1].context.failed_replicas
        await cluster.stop()

    on_virtual_time(scenario)


async def led_by_the_second_replicas() -> ControlledCluster:
    """Broker 2 was away; of the two partitions that it led, it is in sync again in the first."""
    cluster = await ControlledCluster.start()
    await cluster.create_topic("orders", [(2, 3), (2, 3), (3, 1)])
    await cluster.kill_broker(2)
    await cluster.start_broker(2)
    await cluster.set_in_sync("orders", 0, (3, 2))
    return cluster


def test_preferred_leaders_are_restored_on_request() -> None:
    async def scenario() -> None:
        cluster = await led_by_the_second_replicas()
        controller = cluster.controllers[1]
        await notify(cluster, znodes.IN_SYNC_CHANGE_PREFIX, znodes.encode_partition_list([TopicPartition("orders", 0)]))
        assert controller.statistics.preferred_replica_imbalance_count == 2
        wanted = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("none", 0)]
        await cluster.store.create(znodes.PREFERRED_REPLICA_ELECTION, znodes.encode_partition_list(wanted))
        await cluster.settle()
        restored, out_of_sync = await cluster.partition("orders", 0), await cluster.partition("orders", 1)
        assert (restored.leader, restored.in_sync_replicas, restored.leader_epoch) == (2, (3, 2), 2)
        assert out_of_sync.leader == 3
        assert controller.statistics.preferred_replica_imbalance_count == 1
        assert await cluster.store.exists(znodes.PREFERRED_REPLICA_ELECTION) is None
        await cluster.store.create(znodes.PREFERRED_REPLICA_ELECTION, b"nonsense")
        await cluster.settle()
        assert await cluster.store.exists(znodes.PREFERRED_REPLICA_ELECTION) is None
        await cluster.stop()

    on_virtual_time(scenario)


def test_leaders_are_elected_on_request_and_each_partition_has_its_answer() -> None:
    async def scenario() -> None:
        cluster = await led_by_the_second_replicas()
        cluster.forget_requests()
        wanted = [TopicPartition("orders", index) for index in range(4)] + [TopicPartition("none", 0)]
        outcomes = await cluster.controllers[1].elect_leaders(wanted, is_unclean=False)
        await cluster.settle()
        assert {each: error and type(error) for each, error in outcomes.items()} == {
            TopicPartition("orders", 0): None,
            TopicPartition("orders", 1): PreferredLeaderNotAvailable,
            TopicPartition("orders", 2): ElectionNotNeeded,
            TopicPartition("orders", 3): UnknownTopicOrPartition,
            TopicPartition("none", 0): UnknownTopicOrPartition,
        }
        restored = await cluster.partition("orders", 0)
        assert (restored.leader, restored.in_sync_replicas, restored.leader_epoch) == (2, (3, 2), 2)
        assert cluster.sent_leadership(2, "orders").leader == 2
        assert cluster.known_leader(1, "orders") == 2
        of_all = await cluster.controllers[1].elect_leaders(None, is_unclean=False)
        assert of_all.keys() == {TopicPartition("orders", index) for index in range(3)}
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_partition_without_leader_is_led_by_any_live_replica_if_somebody_asks_for_it() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2, 3), (2, 3), (2,)])
        await cluster.set_in_sync("orders", 0, (2,))
        await cluster.kill_broker(2)
        assert (await cluster.partition("orders", 0)).leader == -1
        controller = cluster.controllers[1]
        wanted = [TopicPartition("orders", index) for index in range(3)]
        outcomes = await controller.elect_leaders(wanted, is_unclean=True)
        await cluster.settle()
        assert [error and type(error) for _, error in sorted(outcomes.items())] == [
            None,
            ElectionNotNeeded,
            EligibleLeadersNotAvailable,
        ]
        elected = await cluster.partition("orders", 0)
        assert (elected.leader, elected.in_sync_replicas) == (3, (3,))
        assert controller.statistics.unclean_elections == 1
        assert controller.context.offline_partition_count == 1
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_controlled_shutdown_moves_leaders_away_and_says_what_is_left() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2, 3), (3, 2), (2, 3), (2,)])
        await cluster.set_in_sync("orders", 2, (2,))
        cluster.forget_requests()
        controller = cluster.controllers[1]
        epoch = controller.context.brokers[2].epoch
        remaining = await controller.controlled_shutdown(2, epoch)
        await cluster.settle()
        assert remaining == {TopicPartition("orders", 2)}
        led, followed, stuck, alone = [await cluster.partition("orders", index) for index in range(4)]
        assert (led.leader, led.in_sync_replicas, led.leader_epoch) == (3, (3,), 1)
        assert (followed.leader, followed.in_sync_replicas, followed.leader_epoch) == (3, (3,), 1)
        assert (stuck.leader, stuck.leader_epoch) == (2, 0)
        assert (alone.leader, alone.leader_epoch) == (2, 0)
        assert cluster.stops(2) == [("orders", 0, False), ("orders", 1, False)]
        assert not cluster.requests(LeaderAndIsrRequest, 2), "as a follower it would get back in sync before it goes"
        assert cluster.known_leader(1, "orders") == 3
        await cluster.set_in_sync("orders", 2, (2, 3))
        assert await controller.controlled_shutdown(2, epoch) == set()
        await cluster.kill_broker(2)
        assert (await cluster.partition("orders", 0)).leader_epoch == 1, "there was nothing left to do"
        await cluster.start_broker(2)
        assert not controller.context.shutting_down
        assert cluster.sent_leadership(2, "orders").leader == 3
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_leader_that_is_to_go_and_cannot_yet_hears_of_its_successor() -> None:
    """Otherwise it would lead on, and hold back the high watermark as an in-sync replica (seed 30318)."""

    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(3, 2)])
        await cluster.kill_broker(3)
        controller = cluster.controllers[1]
        assert await controller.controlled_shutdown(2, controller.context.brokers[2].epoch)
        await cluster.start_broker(3)
        await cluster.set_in_sync("orders", 0, (2, 3))
        await controller.elect_leaders([TopicPartition("orders", 0)], is_unclean=False)
        await cluster.settle()
        partition = await cluster.partition("orders", 0)
        assert (partition.leader, partition.in_sync_replicas) == (3, (2, 3))
        assert cluster.sent_leadership(2, "orders").leader == 3
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_controlled_shutdown_of_an_earlier_incarnation_is_refused() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        controller = cluster.controllers[1]
        stale = controller.context.brokers[2].epoch
        await cluster.restart_broker(2)
        with pytest.raises(StaleBrokerEpoch):
            await controller.controlled_shutdown(2, stale)
        with pytest.raises(BrokerNotAvailable):
            await controller.controlled_shutdown(9, -1)
        assert not controller.context.shutting_down
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_topic_that_vanishes_from_the_store_is_forgotten() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(1, 2)])
        for path in (
            znodes.state_path("orders", 0),
            znodes.partition_path("orders", 0),
            znodes.partitions_path("orders"),
            znodes.topic_path("orders"),
        ):
            await cluster.store.delete(path)
        await asyncio.sleep(0.1)
        assert "orders" not in cluster.controllers[1].context.topics
        assert cluster.known_leader(3, "orders") == -2
        await cluster.kill_broker(2)
        assert cluster.controllers[1].statistics.failed_events == 0
        await cluster.stop()

    on_virtual_time(scenario)


def test_an_old_incarnation_is_found_though_the_state_was_read_before_it_was_announced() -> None:
    """Another event may have read the state meanwhile: what it says must be acted on all the same (R41)."""

    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2, 3)])
        earlier = (await cluster.partition("orders")).in_sync_epochs
        await cluster.restart_broker(3)
        assert (await cluster.partition("orders")).in_sync_replicas == (2,)
        await cluster.set_in_sync("orders", 0, (2, 3), earlier)
        await cluster.controllers[1].elect_leaders(None, is_unclean=False)
        cluster.forget_requests()
        await cluster.announce("orders", 0)
        found = await cluster.partition("orders")
        assert (found.leader, found.in_sync_replicas) == (2, (2,))
        assert cluster.requests(UpdateMetadataRequest)
        await cluster.stop()

    on_virtual_time(scenario)
