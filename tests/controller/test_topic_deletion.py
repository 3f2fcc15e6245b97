from tests.controller.controlled_cluster import ControlledCluster, on_virtual_time
from tidelog.cluster import znodes
from tidelog.cluster.image import PartitionRegistration
from tidelog.config.broker import BrokerSettings
from tidelog.protocol.messages.stop_replica import StopReplicaRequest
from tidelog.store.interface import Create
from tidelog.types import TopicPartition


async def ask_to_delete(cluster: ControlledCluster, topic: str) -> None:
    await cluster.store.create(znodes.delete_topic_path(topic))
    await cluster.settle()


def is_gone(cluster: ControlledCluster, topic: str) -> bool:
    nodes = [path for path in cluster.state.nodes if path.split("/")[-1] == topic or f"/{topic}/" in path]
    return not nodes


def test_a_topic_is_deleted_on_its_brokers_and_then_in_the_store() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(1, 2), (2, 3)])
        await cluster.create_topic("others", [(1, 2)])
        await ask_to_delete(cluster, "orders")
        assert is_gone(cluster, "orders")
        assert cluster.stops(2) == [("orders", 0, True), ("orders", 1, True)]
        (stop,) = cluster.requests(StopReplicaRequest, 1)
        assert stop.topic_states[0].partition_states[0].leader_epoch == -2
        assert [cluster.known_leader(broker_id, "orders") for broker_id in (1, 2, 3)] == [-2, -2, -2]
        assert list(cluster.controllers[1].context.topics) == ["others"]
        assert cluster.controllers[1].context.replica_states.keys() == {
            (TopicPartition("others", 0), 1),
            (TopicPartition("others", 0), 2),
        }
        await cluster.create_topic("orders", [(3,)])
        assert (await cluster.partition("orders")).leader == 3
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_deletion_waits_for_a_broker_that_is_away_and_ends_when_it_is_back() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(1, 2), (2, 3)])
        await cluster.kill_broker(3)
        await ask_to_delete(cluster, "orders")
        assert not is_gone(cluster, "orders")
        statistics = cluster.controllers[1].statistics
        assert (statistics.topics_to_delete_count, statistics.topics_ineligible_to_delete_count) == (1, 1)
        assert cluster.known_leader(1, "orders") == -2
        cluster.forget_requests()
        await cluster.start_broker(4)
        assert not is_gone(cluster, "orders")
        assert cluster.stops(1) == [], "what is deleted is not deleted again"
        await cluster.start_broker(3)
        assert cluster.stops(3) == [("orders", 1, True)]
        assert is_gone(cluster, "orders")
        assert statistics.topics_to_delete_count == 0
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_broker_that_dies_during_a_deletion_gets_its_order_again_when_it_is_back() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(1, 2, 3)])
        cluster.brokers.silent = {2}
        await ask_to_delete(cluster, "orders")
        assert not is_gone(cluster, "orders")
        cluster.brokers.silent = set()
        cluster.forget_requests()
        await cluster.restart_broker(2)
        assert cluster.stops(2) == [("orders", 0, True)]
        assert is_gone(cluster, "orders")
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_deletion_survives_a_change_of_the_controller() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(1, 2, 3), (2, 3)])
        await cluster.kill_broker(3)
        await ask_to_delete(cluster, "orders")
        await cluster.start_controller(2)
        await cluster.kill_broker(1)
        successor = cluster.controllers[2]
        assert successor.is_active
        assert not is_gone(cluster, "orders")
        await cluster.start_broker(3)
        assert not is_gone(cluster, "orders")
        await cluster.start_broker(1)
        assert is_gone(cluster, "orders")
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_deletion_that_a_broker_cannot_do_is_tried_again_when_a_broker_comes_back() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(1, 2)])
        cluster.brokers.failed_replicas = {(2, TopicPartition("orders", 0))}
        await ask_to_delete(cluster, "orders")
        assert not is_gone(cluster, "orders")
        assert cluster.controllers[1].statistics.topics_ineligible_to_delete_count == 1
        cluster.brokers.failed_replicas = set()
        await cluster.restart_broker(2)
        assert is_gone(cluster, "orders")
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_late_answer_to_a_plain_stop_is_not_taken_for_a_deletion() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(1, 2)])
        cluster.brokers.silent = {2}
        await cluster.controllers[1].controlled_shutdown(2, cluster.controllers[1]._term.context.brokers[2].epoch)  # type: ignore[union-attr]
        await ask_to_delete(cluster, "orders")
        assert cluster.stops(2) == [("orders", 0, False), ("orders", 0, True)]
        *_, to_the_stop, to_the_deletion = cluster.brokers.held_back
        to_the_stop()
        await cluster.settle()
        assert not is_gone(cluster, "orders")
        to_the_deletion()
        await cluster.settle()
        assert is_gone(cluster, "orders")
        await cluster.stop()

    on_virtual_time(scenario)


def test_where_topics_must_not_be_deleted_the_request_is_removed() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start(settings=BrokerSettings(delete_topic_enable=False))
        await cluster.create_topic("orders", [(1, 2)])
        await ask_to_delete(cluster, "orders")
        assert cluster.paths(znodes.DELETE_TOPICS) == []
        assert (await cluster.partition("orders")).leader == 1
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_request_to_delete_an_unknown_topic_is_removed() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await ask_to_delete(cluster, "nobody")
        assert cluster.paths(znodes.DELETE_TOPICS) == []
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_topic_that_is_created_and_deleted_at_once_is_not_forgotten() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        topic = znodes.encode_topic(b"o" * 16, [PartitionRegistration(0, (1, 2), -1, 0, (), version=-1)])
        await cluster.store.multi(
            [Create(znodes.delete_topic_path("orders")), Create(znodes.topic_path("orders"), topic)]
        )
        await cluster.settle()
        assert is_gone(cluster, "orders")
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_topic_under_deletion_elects_no_leaders() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2, 3)])
        cluster.brokers.silent = {2, 3}
        await ask_to_delete(cluster, "orders")
        await cluster.kill_broker(2)
        assert (await cluster.partition("orders")).leader == 2
        assert cluster.controllers[1].statistics.offline_partitions_count == 0
        await cluster.stop()

    on_virtual_time(scenario)
