import asyncio
import logging
from collections.abc import Sequence

import pytest

from tests.controller.controlled_cluster import ControlledCluster, FakeChannels, active_epoch, on_virtual_time
from tidelog.cluster import znodes
from tidelog.config.broker import BrokerSettings
from tidelog.controller.controller import Controller
from tidelog.controller.fenced_store import FencedStore, TermEnded
from tidelog.controller.registration import ControllerFence
from tidelog.errors import NotController
from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.protocol.messages.update_metadata import UpdateMetadataRequest
from tidelog.runtime.clock import ManualClock
from tidelog.store.interface import Create, Operation, Result, StoreUnavailable
from tidelog.store.memory import MemoryStore


def test_one_of_several_is_controller_and_another_follows_when_it_dies() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        second, third = await cluster.start_controller(2), await cluster.start_controller(3)
        first = cluster.controllers[1]
        await cluster.create_topic("orders", [(1, 2, 3)])
        assert [each.is_active for each in (first, second, third)] == [True, False, False]
        assert first.statistics.active_controller_count == 1
        assert (first.statistics.global_topic_count, first.statistics.global_partition_count) == (1, 1)
        await cluster.kill_broker(1)
        assert [each.is_active for each in (first, second, third)].count(True) == 1
        assert not first.is_active
        assert first.context.topics == {}
        assert first.statistics.global_topic_count == 0
        successor = second if second.is_active else third
        assert successor.fence is not None
        assert successor.fence.epoch == 2
        elected = await cluster.partition("orders")
        assert (elected.leader, elected.in_sync_replicas, elected.controller_epoch) == (2, (2, 3), 2)
        assert all(request.controller_epoch == 2 for request in cluster.requests(LeaderAndIsrRequest, 3)[-1:])
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_new_controller_sends_brokers_of_the_cluster_before_replicas() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start(controller=False)
        await cluster.create_topic("orders", [(1, 2)])
        await cluster.start_controller(1)
        kinds = [type(each.request) for each in cluster.brokers.sent]
        assert kinds[:3] == [UpdateMetadataRequest] * 3
        assert kinds[3:5] == [LeaderAndIsrRequest] * 2
        assert kinds[5:] == [UpdateMetadataRequest] * 3
        first = cluster.brokers.sent[0].request
        assert isinstance(first, UpdateMetadataRequest)
        assert [each.id for each in first.live_brokers] == [1, 2, 3]
        assert first.topic_states == []
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_broker_that_comes_hears_of_the_others_before_it_hears_of_its_replicas() -> None:
    """A broker of Apache Kafka follows nobody it has not heard of, and waits for the next leader epoch then."""

    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(1, 2, 3)])
        await cluster.kill_broker(3)
        sent_before = len(cluster.brokers.sent)
        await cluster.start_broker(3)
        to_newcomer = [each.request for each in cluster.brokers.sent[sent_before:] if each.broker_id == 3]
        kinds = [type(request) for request in to_newcomer]
        assert kinds == [UpdateMetadataRequest, LeaderAndIsrRequest, UpdateMetadataRequest]
        assert isinstance(to_newcomer[0], UpdateMetadataRequest)
        assert [each.id for each in to_newcomer[0].live_brokers] == [1, 2, 3]
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_new_controller_clears_old_notifications_and_finds_what_was_asked_meanwhile() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2, 3)])
        await cluster.create_topic("old", [(2, 3)])
        await cluster.kill_broker(2)
        await cluster.start_broker(2)
        await cluster.set_in_sync("orders", 0, (3, 2))
        await cluster.kill_broker(1)
        await cluster.store.create(znodes.IN_SYNC_CHANGE_PREFIX, b"{}", sequential=True)
        await cluster.store.create(
            znodes.LOG_DIRECTORY_EVENT_PREFIX, znodes.encode_log_directory_event(3), sequential=True
        )
        await cluster.store.create(znodes.delete_topic_path("old"))
        await cluster.store.create(
            znodes.PREFERRED_REPLICA_ELECTION, b'{"version":1,"partitions":[{"topic":"orders","partition":0}]}'
        )
        assert (await cluster.partition("orders")).leader == 3
        await cluster.start_controller(3)
        assert cluster.paths(znodes.IN_SYNC_CHANGES) == []
        assert cluster.paths(znodes.LOG_DIRECTORY_EVENTS) == []
        assert cluster.paths(znodes.DELETE_TOPICS) == []
        assert not await cluster.store.exists(znodes.topic_path("old"))
        assert not await cluster.store.exists(znodes.PREFERRED_REPLICA_ELECTION)
        assert (await cluster.partition("orders")).leader == 2
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_new_controller_notices_who_restarted_while_there_was_no_controller() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2, 3), (3, 2), (3,)])
        await cluster.kill_broker(1)
        await cluster.restart_broker(2)
        await cluster.start_controller(3)
        led, followed, other = [await cluster.partition("orders", index) for index in range(3)]
        assert (led.leader, led.in_sync_replicas, led.leader_epoch) == (3, (3,), 1)
        assert (followed.leader, followed.in_sync_replicas, followed.leader_epoch) == (3, (3,), 1)
        assert (other.leader, other.leader_epoch) == (3, 0)
        assert cluster.sent_leadership(2, "orders", 1).leader_epoch == 1
        await cluster.stop()

    on_virtual_time(scenario)


def test_after_all_brokers_restarted_the_first_that_is_back_leads_in_a_new_epoch() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(1, 2, 3)])
        await cluster.kill_broker(1, 2, 3)
        await cluster.start_broker(3)
        await cluster.start_controller(3)
        back = await cluster.partition("orders")
        assert (back.leader, back.in_sync_replicas, back.leader_epoch) == (3, (3,), 1)
        await cluster.start_broker(1)
        assert (await cluster.partition("orders")).leader == 3
        assert cluster.sent_leadership(1, "orders").leader == 3
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_deposed_controller_can_change_nothing() -> None:
    """KAFKA-6082: it is about to write an election when another broker becomes controller."""

    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2, 3)])
        first, store, may_write = cluster.controllers[1], cluster.stores[1], asyncio.Event()
        multi = store.multi

        async def delayed(operations: Sequence[Operation]) -> list[Result]:
            await may_write.wait()
            return await multi(operations)

        store.multi = delayed  # type: ignore[method-assign]
        cluster.forget_requests()
        await cluster.kill_broker(2)
        await cluster.store.delete(znodes.CONTROLLER)
        await _claim(cluster, 3)
        before = dict(cluster.state.nodes)
        assert active_epoch(first) == 1, "it does not know yet"
        may_write.set()
        await cluster.settle()
        assert cluster.state.nodes == before
        assert cluster.brokers.sent == []
        assert active_epoch(first) is None
        await cluster.stop()

    on_virtual_time(scenario)


async def _claim(cluster: ControlledCluster, broker_id: int) -> None:
    epoch = await cluster.store.get(znodes.CONTROLLER_EPOCH)
    await cluster.stores[broker_id].create(znodes.CONTROLLER, znodes.encode_controller(broker_id, 0), ephemeral=True)
    await cluster.store.set(znodes.CONTROLLER_EPOCH, b"2", epoch.version)


def test_a_write_after_the_term_fails_and_is_not_tried_again() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start(controller=False)
        await cluster.store.create(znodes.CONTROLLER_EPOCH, b"1")
        store = FencedStore(cluster.store, ControllerFence(1, 0))
        await store.write([Create("/mine")])
        await cluster.store.set(znodes.CONTROLLER_EPOCH, b"2")
        with pytest.raises(TermEnded):
            await store.write([Create("/theirs")])
        assert await cluster.store.exists("/theirs") is None
        store.is_over = True
        with pytest.raises(TermEnded):
            await store.children("/")

    on_virtual_time(scenario)


def test_a_controller_that_resigns_stops_in_the_middle_of_an_event_and_is_elected_again() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        controller = cluster.controllers[1]
        await cluster.create_topic("orders", [(2, 3)])
        cluster.forget_requests()
        cluster.state.expire(cluster.stores[2].session_id)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        controller.resign()
        assert active_epoch(controller) is None
        await cluster.settle()
        assert active_epoch(controller) == 2
        assert {each.controller_epoch for each in cluster.requests(LeaderAndIsrRequest)} == {2}
        assert (await cluster.partition("orders")).controller_epoch == 2
        await cluster.stop()

    on_virtual_time(scenario)


def test_the_end_of_the_session_clears_the_queue_and_ends_the_controller() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        controller = cluster.controllers[1]
        shutdown = asyncio.ensure_future(controller.controlled_shutdown(2, -1))
        election = asyncio.ensure_future(controller.elect_leaders(None, is_unclean=False))
        cluster.state.expire(cluster.stores[1].session_id)
        await cluster.settle()
        assert not controller.is_active
        assert controller.waiting_events == 0
        assert cluster.tasks[0].done()
        assert cluster.tasks[0].exception() is None
        with pytest.raises(NotController):
            await shutdown
        with pytest.raises(NotController):
            await election
        with pytest.raises(NotController):
            await controller.controlled_shutdown(2, -1)
        with pytest.raises(NotController):
            await controller.elect_leaders(None, is_unclean=False)

    on_virtual_time(scenario)


def test_a_session_that_ends_during_the_election_ends_the_controller() -> None:
    async def scenario() -> None:
        for turns in range(40):
            cluster = await ControlledCluster.start(controller=False)
            await cluster.create_topic("orders", [(1, 2)])
            task = asyncio.ensure_future(_controller(cluster).run())
            for _ in range(turns):
                await asyncio.sleep(0)
            cluster.state.expire(cluster.stores[1].session_id)
            await asyncio.wait_for(task, 60)

    on_virtual_time(scenario)


def _controller(cluster: ControlledCluster) -> Controller:
    return Controller(
        broker_id=1,
        store=cluster.stores[1],
        clock=ManualClock(),
        settings=BrokerSettings,
        channels=lambda: FakeChannels(cluster.brokers),
    )


def test_a_broker_registers_before_the_election_if_asked_to() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start((1,), controller=False)
        order = []

        async def register() -> None:
            order.append((await cluster.store.exists(znodes.CONTROLLER)) is None)

        controller = _controller(cluster)
        task = asyncio.ensure_future(controller.run(register))
        await cluster.settle()
        assert order == [True]
        assert controller.is_active
        task.cancel()

    on_virtual_time(scenario)


def test_a_store_that_cannot_be_reached_for_a_while_delays_the_work_and_nothing_is_lost() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2, 3)])
        session = cluster.stores[1].session_id
        cluster.state.expire(cluster.stores[2].session_id)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        cluster.state.cut_off(session)
        await asyncio.sleep(2)
        assert (await cluster.partition("orders")).leader == 2
        cluster.state.reconnect(session)
        await asyncio.sleep(1)
        assert (await cluster.partition("orders")).leader == 3
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_controller_that_was_suspended_starts_a_new_term_with_a_new_epoch() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        controller = cluster.controllers[1]
        session = cluster.stores[1].session_id
        cluster.state.cut_off(session)
        controller.resign()
        await asyncio.sleep(2)
        assert active_epoch(controller) is None
        cluster.state.reconnect(session)
        await asyncio.sleep(2)
        assert active_epoch(controller) == 2
        await cluster.stop()

    on_virtual_time(scenario)


def test_what_the_owner_does_on_election_happens_before_the_topics_are_loaded() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start(controller=False)
        terms = []

        async def on_elected(fence: ControllerFence) -> None:
            terms.append(fence.epoch)
            await cluster.create_topic("found", [(1,)])

        controller = await cluster.start_controller(1, on_elected=on_elected)
        await cluster.settle()
        assert terms == [1]
        assert "found" in controller.context.topics
        assert cluster.sent_leadership(1, "found").leader == 1
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_controller_that_cannot_start_its_term_lets_go_and_tries_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start(controller=False)
        attempts = []

        async def on_elected(fence: ControllerFence) -> None:
            attempts.append(fence.epoch)
            if len(attempts) == 1:
                raise ValueError("not today")

        controller = await cluster.start_controller(1, on_elected=on_elected)
        assert active_epoch(controller) is None
        assert await cluster.store.exists(znodes.CONTROLLER) is None
        await asyncio.sleep(5)
        assert attempts == [1, 2]
        assert active_epoch(controller) == 2
        assert "not today" in caplog.text
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_controller_that_cannot_start_its_term_leaves_the_node_of_its_successor_alone() -> None:
    """Seed 162222: each one deleted the node of the next, which then could not start its term either."""

    async def scenario() -> None:
        cluster = await ControlledCluster.start(controller=False)

        async def on_elected(fence: ControllerFence) -> None:
            await cluster.store.delete(znodes.CONTROLLER)
            await cluster.start_controller(2)
            raise StoreUnavailable

        await cluster.start_controller(1, on_elected=on_elected)
        await asyncio.sleep(5)
        assert active_epoch(cluster.controllers[2]) == 2
        assert (await cluster.store.get(znodes.CONTROLLER)).ephemeral_owner == cluster.stores[2].session_id
        await cluster.stop()

    on_virtual_time(scenario)


def test_an_event_that_fails_is_logged_and_the_next_one_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2, 3)])
        original = cluster.settings
        del cluster.settings
        with caplog.at_level(logging.ERROR):
            await cluster.store.create(znodes.delete_topic_path("orders"))
            await cluster.settle()
        assert "event failed event=TopicDeletion" in caplog.text
        cluster.settings = original
        await cluster.kill_broker(2)
        assert (await cluster.partition("orders")).leader == 3
        assert cluster.controllers[1].statistics.failed_events == 1
        await cluster.stop()

    on_virtual_time(scenario)


def test_malformed_nodes_do_not_keep_the_others_from_being_led() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start(controller=False)
        await cluster.store.create(znodes.topic_path("broken"), b"?")
        await cluster.store.create(znodes.broker_path(7), b"?")
        await cluster.create_topic("orders", [(2, 3)] * 2)
        await cluster.start_controller(1)
        assert (await cluster.partition("orders")).leader == 2
        await cluster.store.set(znodes.state_path("orders", 0), b"?")
        await cluster.kill_broker(2)
        (node,) = await cluster.store.get_many([znodes.state_path("orders", 1)])
        assert node is not None
        assert b'"leader":3' in node.data
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_watcher_that_is_no_broker_needs_no_term() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        cluster.stores[9] = MemoryStore(cluster.state)
        watcher = await cluster.start_controller(9)
        assert not watcher.is_active
        assert watcher.fence is None
        assert watcher.context.brokers == {}
        await cluster.stop()

    on_virtual_time(scenario)
