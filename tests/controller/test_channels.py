"""The controller's channels: in order, again until answered, and silent about brokers that left."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.controller.peer import HOST, Peer
from tidelog.cluster.image import BrokerRegistration
from tidelog.config.listeners import Endpoint
from tidelog.controller.channels import ControllerChannels, merged_metadata
from tidelog.controller.request_batch import WHOLE_CLUSTER
from tidelog.errors import NO_ERROR, StaleBrokerEpoch
from tidelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from tidelog.protocol.messages.stop_replica import StopReplicaRequest
from tidelog.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.memory_network import MemoryNetwork
from tidelog.runtime.virtual_time import run_virtually

PORT = 9092


def broker(broker_id: int = 2, port: int = PORT) -> BrokerRegistration:
    return BrokerRegistration(broker_id, (Endpoint("PLAINTEXT", HOST, port, "PLAINTEXT"),), epoch=5)


def leadership(controller_epoch: int) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(controller_id=1, controller_epoch=controller_epoch)


def metadata(*leader_epochs: tuple[str, int, int], controller_epoch: int = 1, type_: int = 0) -> UpdateMetadataRequest:
    topics: dict[str, UpdateMetadataTopicState] = {}
    for name, index, leader_epoch in leader_epochs:
        topic = topics.setdefault(name, UpdateMetadataTopicState(topic_name=name, topic_id=name.encode() * 16))
        topic.partition_states.append(UpdateMetadataPartitionState(partition_index=index, leader_epoch=leader_epoch))
    return UpdateMetadataRequest(
        controller_id=1, controller_epoch=controller_epoch, topic_states=list(topics.values()), type=type_
    )


def leader_epochs(request: Request) -> dict[tuple[str, int], int]:
    assert isinstance(request, UpdateMetadataRequest)
    return {
        (topic.topic_name, state.partition_index): state.leader_epoch
        for topic in request.topic_states
        for state in topic.partition_states
    }


def with_peer(scenario: Callable[[MemoryNetwork, ControllerChannels, Peer], Awaitable[None]]) -> None:
    """Not listening yet."""

    async def main() -> None:
        network = MemoryNetwork()
        channels = ControllerChannels(network, "controller-1")
        await scenario(network, channels, Peer())
        await channels.close()

    run_virtually(main())


def _answer_to(epoch: int) -> LeaderAndIsrResponse:
    return LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(bytes([epoch]) * 16)])


def test_requests_arrive_in_order_and_each_answer_goes_to_who_asked() -> None:
    async def scenario(network: MemoryNetwork, channels: ControllerChannels, peer: Peer) -> None:
        await peer.listen(network, PORT)
        peer.answer = lambda request: _answer_to(request.controller_epoch)  # type: ignore[attr-defined]
        responses: list[Response] = []
        channels.add(broker())
        for epoch in range(5):
            channels.send(2, leadership(epoch), responses.append)
        await asyncio.sleep(1)
        assert peer.requests == [leadership(epoch) for epoch in range(5)]
        assert responses == [_answer_to(epoch) for epoch in range(5)]
        assert set(peer.client_ids) == {"controller-1-to-broker-2"}
        assert len(peer.connections) == 1

    with_peer(scenario)


def test_a_broker_that_is_not_up_yet_gets_its_requests_when_it_is() -> None:
    async def scenario(network: MemoryNetwork, channels: ControllerChannels, peer: Peer) -> None:
        channels.add(broker())
        channels.send(2, leadership(1))
        await asyncio.sleep(5)
        await peer.listen(network, PORT)
        await asyncio.sleep(1)
        assert peer.requests == [leadership(1)]
        assert channels.waiting_requests(2) == 0

    with_peer(scenario)


def test_a_request_whose_answer_was_lost_is_sent_again_before_those_behind_it() -> None:
    async def scenario(network: MemoryNetwork, channels: ControllerChannels, peer: Peer) -> None:
        def cut_once(request: Request) -> Response | None:
            if len(peer.requests) == 1:
                peer.connections[0].channel.close("cut")
                return None
            return LeaderAndIsrResponse()

        peer.answer = cut_once
        await peer.listen(network, PORT)
        channels.add(broker())
        responses: list[Response] = []
        channels.send(2, leadership(1), responses.append)
        channels.send(2, leadership(2), responses.append)
        await asyncio.sleep(1)
        assert peer.requests == [leadership(1), leadership(1), leadership(2)]
        assert len(responses) == 2

    with_peer(scenario)


def test_what_a_broker_refuses_is_sent_again_before_anything_else_until_it_is_accepted() -> None:
    async def scenario(network: MemoryNetwork, channels: ControllerChannels, peer: Peer) -> None:
        def reject_at_first(request: Request) -> Response:
            return LeaderAndIsrResponse(error_code=StaleBrokerEpoch.code if len(peer.requests) <= 3 else NO_ERROR)

        peer.answer = reject_at_first
        await peer.listen(network, PORT)
        channels.add(broker())
        responses: list[Response] = []
        channels.send(2, leadership(1), responses.append)
        channels.send(2, leadership(2), responses.append)
        await asyncio.sleep(1)
        assert peer.requests == [leadership(1)] * 4 + [leadership(2)]
        assert responses == [LeaderAndIsrResponse()] * 2

    with_peer(scenario)


def test_a_broker_that_refuses_for_ever_is_asked_less_and_less_often_until_it_registers_again() -> None:
    async def scenario(network: MemoryNetwork, channels: ControllerChannels, peer: Peer) -> None:
        peer.answer = lambda request: LeaderAndIsrResponse(error_code=StaleBrokerEpoch.code)
        await peer.listen(network, PORT)
        channels.add(broker())
        responses: list[Response] = []
        channels.send(2, leadership(1), responses.append)
        await asyncio.sleep(600)
        assert 120 < len(peer.requests) < 130
        channels.add(broker())
        peer.requests.clear()
        await asyncio.sleep(600)
        assert (peer.requests, responses) == ([], [])

    with_peer(scenario)


def test_a_broker_that_hangs_is_asked_again_on_a_new_connection() -> None:
    async def scenario(network: MemoryNetwork, channels: ControllerChannels, peer: Peer) -> None:
        peer.answer = lambda request: LeaderAndIsrResponse() if len(peer.connections) > 1 else None
        await peer.listen(network, PORT)
        channels.add(broker())
        channels.send(2, leadership(1))
        await asyncio.sleep(29)
        assert len(peer.connections) == 1
        await asyncio.sleep(2)
        assert len(peer.connections) == 2
        assert channels.waiting_requests(2) == 0

    with_peer(scenario)


def test_a_silent_broker_does_not_hold_up_the_others() -> None:
    async def scenario(network: MemoryNetwork, channels: ControllerChannels, peer: Peer) -> None:
        await peer.listen(network, PORT)
        channels.add(broker(2))
        channels.add(broker(3, port=1))
        channels.send(3, leadership(1))
        channels.send(2, leadership(1))
        await asyncio.sleep(1)
        assert peer.requests == [leadership(1)]
        assert channels.waiting_requests(3) == 1

    with_peer(scenario)


def test_what_is_sent_to_a_broker_that_left_is_dropped() -> None:
    async def scenario(network: MemoryNetwork, channels: ControllerChannels, peer: Peer) -> None:
        responses: list[Response] = []
        channels.add(broker())
        channels.send(2, leadership(1), responses.append)
        channels.remove(2)
        channels.send(2, leadership(2), responses.append)
        await peer.listen(network, PORT)
        await asyncio.sleep(5)
        assert (peer.requests, responses) == ([], [])

    with_peer(scenario)


def test_a_broker_that_came_back_does_not_get_requests_for_its_earlier_incarnation() -> None:
    async def scenario(network: MemoryNetwork, channels: ControllerChannels, peer: Peer) -> None:
        channels.add(broker(port=1))
        channels.send(2, leadership(1))
        await asyncio.sleep(1)
        channels.add(broker())
        channels.send(2, leadership(2))
        await peer.listen(network, PORT)
        await asyncio.sleep(1)
        assert peer.requests == [leadership(2)]

    with_peer(scenario)


def test_an_answer_that_its_receiver_fails_on_does_not_stop_the_channel() -> None:
    async def scenario(network: MemoryNetwork, channels: ControllerChannels, peer: Peer) -> None:
        def fail(response: Response) -> None:
            raise ValueError

        await peer.listen(network, PORT)
        channels.add(broker())
        channels.send(2, leadership(1), fail)
        channels.send(2, leadership(2))
        await asyncio.sleep(1)
        assert peer.requests == [leadership(1), leadership(2)]

    with_peer(scenario)


def test_metadata_that_waits_is_merged_into_the_newest_state() -> None:
    async def scenario(network: MemoryNetwork, channels: ControllerChannels, peer: Peer) -> None:
        channels.add(broker())
        channels.send(2, leadership(1))
        await asyncio.sleep(0.01)
        for epoch in range(100):
            channels.send(2, metadata(("a", 0, epoch), ("b", epoch % 2, epoch)))
        channels.send(2, leadership(2))
        channels.send(2, StopReplicaRequest(controller_id=1))
        channels.send(2, metadata(("a", 1, 7)))
        assert channels.waiting_requests(2) == 4
        await peer.listen(network, PORT)
        await asyncio.sleep(1)
        *others, last = peer.requests
        assert others == [leadership(1), leadership(2), StopReplicaRequest(controller_id=1)]
        assert leader_epochs(last) == {("a", 0): 99, ("a", 1): 7, ("b", 0): 98, ("b", 1): 99}

    with_peer(scenario)


def test_metadata_of_the_whole_cluster_needs_nothing_from_before() -> None:
    whole = metadata(("a", 0, 1), type_=WHOLE_CLUSTER)
    assert merged_metadata(metadata(("gone", 0, 1)), whole) is whole
    merged = merged_metadata(whole, metadata(("b", 0, 2), controller_epoch=3))
    assert (merged.type, merged.controller_epoch) == (WHOLE_CLUSTER, 3)
    assert leader_epochs(merged) == {("a", 0): 1, ("b", 0): 2}


def test_merging_leaves_the_requests_alone_that_other_brokers_get() -> None:
    earlier, later = metadata(("a", 0, 1)), metadata(("a", 0, 2), ("a", 1, 1))
    merged_metadata(earlier, later)
    assert (earlier, later) == (metadata(("a", 0, 1)), metadata(("a", 0, 2), ("a", 1, 1)))


def test_settling_waits_for_the_answers_of_those_that_can_be_reached() -> None:
    async def scenario(network: MemoryNetwork, channels: ControllerChannels, peer: Peer) -> None:
        await peer.listen(network, PORT)
        network.latency_s = 0.1
        channels.add(broker(2))
        channels.add(broker(3, port=1))
        channels.send(3, leadership(1))
        await asyncio.sleep(1)
        channels.send(2, leadership(1))
        channels.send(2, metadata())
        loop = asyncio.get_running_loop()
        began = loop.time()
        await channels.settle(5)
        assert peer.requests == [leadership(1), metadata()]
        assert loop.time() - began < 1
        await channels.settle(5)
        channels.send(2, leadership(2))
        peer.answer = lambda request: None
        began = loop.time()
        await channels.settle(5)
        assert loop.time() - began == pytest.approx(5)

    with_peer(scenario)
