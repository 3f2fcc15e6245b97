import logging

import pytest

from tests.controller.controlled_cluster import ControlledCluster, on_virtual_time
from tidelog.cluster import znodes
from tidelog.config.broker import BrokerSettings
from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.protocol.messages.update_metadata import UpdateMetadataRequest
from tidelog.store.interface import Operation, Result
from tidelog.types import TopicPartition


def test_a_new_topic_gets_leaders_and_all_brokers_learn_them() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        cluster.forget_requests()
        await cluster.create_topic("orders", [(1, 2), (3, 1)])
        first, second = await cluster.partition("orders", 0), await cluster.partition("orders", 1)
        assert (first.leader, first.in_sync_replicas, first.leader_epoch, first.controller_epoch) == (1, (1, 2), 0, 1)
        assert (second.leader, second.in_sync_replicas) == (3, (3, 1))
        for broker_id in (1, 2):
            sent = cluster.sent_leadership(broker_id, "orders")
            assert (sent.leader, sent.leader_epoch, sent.is_new, sent.partition_epoch) == (1, 0, True, 0)
        assert len(cluster.requests(LeaderAndIsrRequest)) == 3
        assert [cluster.known_leader(broker_id, "orders", 1) for broker_id in (1, 2, 3)] == [3, 3, 3]
        await cluster.stop()

    on_virtual_time(scenario)


def test_more_partitions_of_a_topic_get_leaders_and_the_others_keep_theirs() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(1, 2)])
        (node,) = await cluster.store.get_many([znodes.topic_path("orders")])
        assert node is not None
        cluster.forget_requests()
        grown = node.data.replace(b'"0":[1,2]', b'"0":[1,2],"1":[2,3]')
        await cluster.store.set(znodes.topic_path("orders"), grown)
        await cluster.settle()
        assert (await cluster.partition("orders", 1)).leader == 2
        assert (await cluster.partition("orders", 0)).leader_epoch == 0
        assert cluster.known_leader(1, "orders", 1) == 2
        await cluster.store.set(znodes.topic_path("orders"), grown.replace(b'"1":[2,3]', b'"1":[2,3],"2":[3,1]'))
        await cluster.settle()
        assert (await cluster.partition("orders", 2)).leader == 3
        await cluster.stop()

    on_virtual_time(scenario)


def test_when_a_leader_dies_the_next_in_sync_replica_takes_over_in_one_write() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2, 3, 1), (1, 2, 3), (3, 1, 2), (1, 3)])
        cluster.forget_requests()
        writes = []
        perform = cluster.state.perform

        def counted(operations: list[Operation], session_id: int) -> list[Result]:
            writes.append(operations)
            return perform(operations, session_id)

        cluster.state.perform = counted  # type: ignore[method-assign,assignment]
        await cluster.kill_broker(2)
        assert len(writes) == 1, "the registration went by the end of the session"
        led = await cluster.partition("orders", 0)
        assert (led.leader, led.in_sync_replicas, led.leader_epoch) == (3, (3, 1), 1)
        followed = await cluster.partition("orders", 1)
        assert (followed.leader, followed.in_sync_replicas, followed.leader_epoch) == (1, (1, 3), 1)
        untouched = await cluster.partition("orders", 3)
        assert untouched.leader_epoch == 0
        assert [len(cluster.requests(LeaderAndIsrRequest, broker_id)) for broker_id in (1, 2, 3)] == [1, 0, 1]
        assert cluster.sent_leadership(3, "orders").leader_epoch == 1
        assert cluster.known_leader(1, "orders") == 3
        (metadata,) = cluster.requests(UpdateMetadataRequest, 1)
        assert [each.id for each in metadata.live_brokers] == [1, 3]
        controller = cluster.controllers[1]
        assert controller.statistics.leader_elections == 1
        assert controller.statistics.election_rounds == 1
        assert controller.statistics.offline_partitions_count == 0
        await cluster.stop()

    on_virtual_time(scenario)


def test_the_log_says_whether_a_broker_or_its_disk_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2,)])
        await cluster.create_topic("bills", [(3,)])
        cluster.brokers.failed_replicas = {(2, TopicPartition("orders", 0))}
        with caplog.at_level(logging.WARNING):
            await cluster.store.create(
                znodes.LOG_DIRECTORY_EVENT_PREFIX, znodes.encode_log_directory_event(2), sequential=True
            )
            await cluster.settle()
        assert "the disks that hold all records are offline; repair them and restart their brokers" in caplog.text
        assert "brokers=2 partitions=1 (orders-0)" in caplog.text
        assert "is alive; start them" not in caplog.text
        with caplog.at_level(logging.WARNING):
            await cluster.kill_broker(3)
        assert "none of the brokers that hold all records is alive; start them" in caplog.text
        assert "brokers=3 partitions=1 (bills-0)" in caplog.text
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_partition_whose_in_sync_replicas_are_all_gone_waits_for_one_of_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2, 3)])
        await cluster.kill_broker(3)
        with caplog.at_level(logging.WARNING):
            await cluster.kill_broker(2)
        assert "partitions without leader" in caplog.text
        assert "brokers=2 partitions=1 (orders-0)" in caplog.text
        left = await cluster.partition("orders")
        assert (left.leader, left.in_sync_replicas, left.leader_epoch) == (-1, (2,), 2)
        assert cluster.known_leader(1, "orders") == -1
        assert cluster.controllers[1].statistics.offline_partitions_count == 1
        await cluster.start_broker(3)
        assert (await cluster.partition("orders")).leader == -1
        assert cluster.sent_leadership(3, "orders").leader == -1, "it must not go on fetching (KAFKA-3096)"
        await cluster.start_broker(2)
        back = await cluster.partition("orders")
        assert (back.leader, back.in_sync_replicas, back.leader_epoch) == (2, (2,), 3)
        assert cluster.sent_leadership(3, "orders").leader == 2
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_new_topic_on_brokers_that_are_away_waits_for_them() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(4,)])
        assert (await cluster.partition("orders")).leader == -1
        await cluster.start_broker(4)
        found = await cluster.partition("orders")
        assert (found.leader, found.in_sync_replicas, found.leader_epoch) == (4, (4,), 0)
        assert cluster.sent_leadership(4, "orders").is_new
        await cluster.stop()

    on_virtual_time(scenario)


@pytest.mark.parametrize("where", ["topic", "broker"])
def test_an_unclean_election_happens_only_where_it_is_allowed_and_the_loss_is_logged(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        configs = {"unclean_leader_election_enable": "true"} if where == "topic" else {}
        await cluster.create_topic("lossy", [(2, 3)], **configs)
        await cluster.create_topic("safe", [(2, 3)], unclean_leader_election_enable="false")
        for topic in ("lossy", "safe"):
            await cluster.set_in_sync(topic, 0, (2,))
        cluster.settings = BrokerSettings(unclean_leader_election_enable=where == "broker")
        await cluster.kill_broker(2)
        lossy, safe = await cluster.partition("lossy"), await cluster.partition("safe")
        assert (lossy.leader, lossy.in_sync_replicas) == (3, (3,))
        assert (safe.leader, safe.in_sync_replicas) == (-1, (2,))
        assert "unclean election" in caplog.text
        assert "partition=lossy-0 leader=3" in caplog.text
        assert cluster.controllers[1].statistics.unclean_elections == 1
        await cluster.stop()

    on_virtual_time(scenario)


def test_allowing_unclean_elections_later_helps_partitions_without_leader() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2, 3)])
        await cluster.set_in_sync("orders", 0, (2,))
        await cluster.kill_broker(2)
        cluster.settings = BrokerSettings(unclean_leader_election_enable=True)
        cluster.controllers[1].on_settings_changed(())
        await cluster.settle()
        assert (await cluster.partition("orders")).leader == 3
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_broker_that_restarted_unnoticed_loses_its_offices_and_its_place_among_the_in_sync() -> None:
    """KIP-903: it may have come back with an empty disk."""

    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2, 3), (3, 2), (2,)])
        epoch_before = cluster.sent_leadership(2, "orders").leader_epoch
        cluster.forget_requests()
        await cluster.restart_broker(2)
        led, followed, alone = [await cluster.partition("orders", index) for index in range(3)]
        assert (led.leader, led.in_sync_replicas, led.leader_epoch) == (3, (3,), epoch_before + 1)
        assert (followed.leader, followed.in_sync_replicas, followed.leader_epoch) == (3, (3,), 1)
        assert (alone.leader, alone.in_sync_replicas, alone.leader_epoch) == (2, (2,), 1)
        (request,) = cluster.requests(LeaderAndIsrRequest, 2)
        registration = cluster.state.nodes[znodes.broker_path(2)]
        assert request.broker_epoch == registration.created_id
        brokers_only, metadata = cluster.requests(UpdateMetadataRequest, 2)
        assert brokers_only.topic_states == []
        assert len(metadata.topic_states[0].partition_states) == 3
        assert not cluster.controllers[1].context.shutting_down
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_broker_that_starts_learns_its_replicas_and_the_whole_cluster() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start((1, 2, 3))
        await cluster.create_topic("orders", [(1, 2), (1, 3)])
        await cluster.kill_broker(3)
        cluster.forget_requests()
        await cluster.start_broker(3)
        (leadership,) = cluster.requests(LeaderAndIsrRequest, 3)
        assert [state.partition_index for state in leadership.topic_states[0].partition_states] == [1]
        assert not cluster.sent_leadership(3, "orders", 1).is_new
        assert cluster.requests(LeaderAndIsrRequest, 1) == [], "nothing changed for the leader"
        brokers_only, metadata = cluster.requests(UpdateMetadataRequest, 3)
        assert brokers_only.topic_states == []
        assert len(metadata.topic_states[0].partition_states) == 2
        (for_others,) = cluster.requests(UpdateMetadataRequest, 1)
        assert [each.id for each in for_others.live_brokers] == [1, 2, 3]
        assert for_others.topic_states == []
        await cluster.stop()

    on_virtual_time(scenario)


def test_an_in_sync_change_that_comes_between_is_read_and_decided_again() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2, 3, 1), (2, 1, 3)])
        await cluster.set_in_sync("orders", 0, (2, 1))
        await cluster.kill_broker(2)
        changed, unchanged = await cluster.partition("orders", 0), await cluster.partition("orders", 1)
        assert (changed.leader, changed.in_sync_replicas, changed.leader_epoch) == (1, (1,), 1)
        assert (unchanged.leader, unchanged.in_sync_replicas) == (1, (1, 3))
        assert cluster.sent_leadership(3, "orders").isr == (1,)
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_thousand_partitions_fail_over_in_a_few_transactions() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("many", [(2, 3)] * 2500)
        cluster.forget_requests()
        await cluster.kill_broker(2)
        assert cluster.controllers[1].statistics.leader_elections == 2500
        assert len(cluster.requests(LeaderAndIsrRequest)) == 1
        assert (await cluster.partition("many", 2499)).leader == 3
        await cluster.stop()

    on_virtual_time(scenario)
