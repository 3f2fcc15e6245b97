"""R43: what the controller decided is sent until it is answered or superseded; an answer belongs to its attempt."""

import asyncio
from collections.abc import Callable

import pytest

from tests.controller.controlled_cluster import ControlledCluster, on_virtual_time
from tests.controller.test_topic_deletion import ask_to_delete, is_gone
from tidelog.cluster import znodes
from tidelog.controller.events import BrokerChange, Event
from tidelog.errors import InconsistentTopicId, KafkaStorageError, StaleBrokerEpoch, UnknownServerError
from tidelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from tidelog.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from tidelog.protocol.structs import Request, Response
from tidelog.types import TopicPartition

ORDERS = TopicPartition("orders", 0)


def rejecting(
    cluster: ControlledCluster, broker_id: int, kind: type[Request], rejection: Callable[[], Response]
) -> Callable[[], None]:
    """From now on this broker answers so, until the returned function is called."""
    response = cluster.brokers.answer

    def reject(asked: int, request: Request) -> Response:
        return rejection() if asked == broker_id and isinstance(request, kind) else response(asked, request)

    cluster.brokers.answer = reject  # type: ignore[method-assign, assignment]

    def end() -> None:
        cluster.brokers.answer = response  # type: ignore[method-assign]

    return end


def role_error(code: int) -> LeaderAndIsrResponse:
    topic_id = b"orders".ljust(16, b"-")
    return LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(topic_id, [LeaderAndIsrPartitionError(0, code)])])


# ---- deletions


@pytest.mark.parametrize(
    "rejection",
    [
        StopReplicaResponse(error_code=StaleBrokerEpoch.code),
        StopReplicaResponse(partition_errors=[StopReplicaPartitionError("orders", 0, KafkaStorageError.code)]),
    ],
)
def test_a_refusal_of_an_earlier_attempt_does_not_stop_the_deletion(rejection: StopReplicaResponse) -> None:
    """It waits in the queue behind the BrokerChange that begins the next attempt."""

    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(1, 2, 3)])
        end = rejecting(cluster, 2, StopReplicaRequest, lambda: rejection)
        cluster.brokers.silent = {2}
        await ask_to_delete(cluster, "orders")
        end()
        late = list(cluster.brokers.held_back)
        await cluster.restart_broker(2)
        for response in late:
            response()
        await cluster.settle()
        assert cluster.controllers[1].context.topics_ineligible_for_deletion == set()
        cluster.brokers.silent = set()
        for response in cluster.brokers.held_back[len(late) :]:
            response()
        await cluster.settle()
        assert is_gone(cluster, "orders")
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_late_success_of_an_earlier_attempt_does_not_end_the_deletion() -> None:
    """The broker came back since, with another disk perhaps: only it knows what it has now."""

    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(1, 2, 3)])
        cluster.brokers.silent = {2}
        await ask_to_delete(cluster, "orders")
        late = list(cluster.brokers.held_back)
        await cluster.restart_broker(2)
        for response in late:
            response()
        await cluster.settle()
        assert not is_gone(cluster, "orders")
        for response in cluster.brokers.held_back[len(late) :]:
            response()
        await cluster.settle()
        assert is_gone(cluster, "orders")
        await cluster.stop()

    on_virtual_time(scenario)


def test_what_a_broker_failed_to_delete_once_is_deleted_later() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(1, 2, 3)])
        failure = StopReplicaResponse(
            partition_errors=[StopReplicaPartitionError("orders", 0, UnknownServerError.code)]
        )
        end = rejecting(cluster, 2, StopReplicaRequest, lambda: failure)
        await ask_to_delete(cluster, "orders")
        assert not is_gone(cluster, "orders")
        end()
        await asyncio.sleep(10)
        assert is_gone(cluster, "orders")
        assert cluster.stops(1) == [("orders", 0, True)], "those who have deleted it are not asked again"
        await cluster.stop()

    on_virtual_time(scenario)


# ---- roles


@pytest.mark.parametrize(
    "rejection", [LeaderAndIsrResponse(error_code=StaleBrokerEpoch.code), role_error(InconsistentTopicId.code)]
)
def test_a_role_that_was_refused_is_sent_again_until_it_is_accepted(rejection: LeaderAndIsrResponse) -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        end = rejecting(cluster, 2, LeaderAndIsrRequest, lambda: rejection)
        await cluster.create_topic("orders", [(2, 3)])
        await asyncio.sleep(60)
        asked = len(cluster.requests(LeaderAndIsrRequest, 2))
        assert 5 < asked < 20, "less and less often"
        assert cluster.sent_leadership(2, "orders").is_new
        assert len(cluster.requests(LeaderAndIsrRequest, 3)) == 1
        end()
        await asyncio.sleep(600)
        assert len(cluster.requests(LeaderAndIsrRequest, 2)) == asked + 1
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_refused_role_is_overtaken_by_what_is_decided_later() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        end = rejecting(cluster, 2, LeaderAndIsrRequest, lambda: role_error(UnknownServerError.code))
        await cluster.create_topic("orders", [(2, 3)])
        await cluster.kill_broker(2)
        end()
        cluster.forget_requests()
        await asyncio.sleep(60)
        assert cluster.requests(LeaderAndIsrRequest) == []
        await cluster.start_broker(2)
        assert cluster.sent_leadership(2, "orders").leader == 3
        await cluster.stop()

    on_virtual_time(scenario)


def test_an_answer_of_an_earlier_registration_does_not_fail_a_replica() -> None:
    """A log directory was lost, the broker was started again without it, and what it said before that comes late."""

    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2,)])
        cluster.brokers.failed_replicas = {(2, ORDERS)}
        cluster.brokers.silent = {2}
        await cluster.store.create(
            znodes.LOG_DIRECTORY_EVENT_PREFIX, znodes.encode_log_directory_event(2), sequential=True
        )
        await cluster.settle()
        (late,) = cluster.brokers.held_back
        cluster.brokers.failed_replicas, cluster.brokers.silent = set(), set()
        await cluster.restart_broker(2)
        elected = await cluster.partition("orders")
        assert elected.leader == 2
        late()
        await cluster.settle()
        assert await cluster.partition("orders") == elected, "nothing was decided by it"
        assert cluster.controllers[1].context.failed_replicas == set()
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_replica_that_is_healthy_again_gets_its_offices_back() -> None:
    """Also if the answer that says so has arrived before the one that said otherwise was worked on."""

    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2,)])
        event = znodes.encode_log_directory_event(2)
        cluster.brokers.silent = {2}
        for failed in ({(2, ORDERS)}, set()):
            cluster.brokers.failed_replicas = failed
            await cluster.store.create(znodes.LOG_DIRECTORY_EVENT_PREFIX, event, sequential=True)
            await cluster.settle()
        for response in cluster.brokers.held_back:
            response()
        await cluster.settle()
        assert (await cluster.partition("orders")).leader == 2
        assert cluster.controllers[1].context.failed_replicas == set()
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_broker_may_shut_down_before_the_controller_has_seen_its_latest_registration() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(2, 3)])
        controller = cluster.controllers[1]
        term = controller._term
        assert term is not None
        late: list[Event] = []
        put_event = term._put_event
        term._put_event = lambda event: late.append(event) if isinstance(event, BrokerChange) else put_event(event)
        await cluster.restart_broker(2)
        epoch = cluster.state.nodes[znodes.broker_path(2)].created_id
        assert epoch > controller.context.brokers[2].epoch
        assert await controller.controlled_shutdown(2, epoch) == set()
        put_event(late[0])
        await cluster.settle()
        assert controller.context.shutting_down == {2}, "its registration, seen later, does not take that back"
        await cluster.stop()

    on_virtual_time(scenario)
