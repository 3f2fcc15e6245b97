"""The way to the controller: found, changed, lost; and leaving the cluster by its help."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tests.controller.peer import HOST, Peer
from tidelog.cluster.image import BrokerRegistration, ClusterImage
from tidelog.config.broker import BrokerSettings
from tidelog.config.listeners import Endpoint
from tidelog.errors import NotController, RequestTimedOut
from tidelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.memory_network import MemoryNetwork
from tidelog.runtime.virtual_time import VirtualClock, VirtualTimeLoop, run_virtually
from tidelog.server.cluster_state import ClusterState
from tidelog.server.controlled_shutdown import ControlledShutdown
from tidelog.server.controller_link import CLIENT_ID_PREFIX, ControllerLink

REQUEST = CreateTopicsRequest(timeout_ms=7)


class Replicas:
    def on_brokers_changed(self, broker_epochs: object) -> None: ...


class Member:
    """Broker 1 of a cluster of three; brokers 2 and 3 are peers that can be controller."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        self.loop = loop
        self.network = MemoryNetwork()
        self.peers = {2: Peer(), 3: Peer()}
        self.cluster = ClusterState(1, BrokerSettings(broker_id=1), ClusterImage("c"))
        self.cluster.start(Replicas())  # type: ignore[arg-type]
        self.link = ControllerLink(self.network, VirtualClock(loop), self.cluster, 1)

    def see(self, controller_id: int, brokers: tuple[int, ...] = (1, 2, 3)) -> None:
        known = {each: BrokerRegistration(each, (Endpoint("PLAINTEXT", HOST, each, "PLAINTEXT"),)) for each in brokers}
        self.cluster.apply(replace(self.cluster.image, brokers=known, controller_id=controller_id))

    async def ask(self, timeout_s: float = 5) -> CreateTopicsResponse:
        return await self.link.ask(REQUEST, CreateTopicsResponse, timeout_s)

    async def leave(self) -> bool:
        return await ControlledShutdown(self.link, self.cluster, 1, 40).run()


def with_member(scenario: Callable[[Member], Awaitable[None]]) -> None:
    async def main() -> None:
        member = Member()
        for broker_id, peer in member.peers.items():
            await peer.listen(member.network, broker_id)
        member.see(2)
        await scenario(member)
        member.link.close()

    run_virtually(main())


def test_the_controller_is_asked_over_one_connection() -> None:
    async def scenario(member: Member) -> None:
        await asyncio.gather(member.ask(), member.ask())
        await member.ask()
        assert member.peers[2].requests == [REQUEST] * 3
        assert len(member.peers[2].connections) == 1
        assert set(member.peers[2].client_ids) == {f"{CLIENT_ID_PREFIX}1"}
        assert member.peers[3].requests == []

    with_member(scenario)


def test_another_controller_is_asked_from_then_on() -> None:
    async def scenario(member: Member) -> None:
        await member.ask()
        member.see(3)
        await member.ask()
        assert (len(member.peers[2].requests), len(member.peers[3].requests)) == (1, 1)

    with_member(scenario)


def test_a_question_waits_for_the_next_controller() -> None:
    async def scenario(member: Member) -> None:
        member.see(-1)
        asking = asyncio.ensure_future(member.ask())
        await asyncio.sleep(3)
        member.see(3)
        await asking
        assert len(member.peers[3].requests) == 1

    with_member(scenario)


def test_a_controller_that_is_gone_is_tried_again_until_another_is_known() -> None:
    async def scenario(member: Member) -> None:
        member.peers[2].leave()
        asking = asyncio.ensure_future(member.ask())
        await asyncio.sleep(3)
        member.see(3)
        await asking
        assert len(member.peers[3].requests) == 1

    with_member(scenario)


@pytest.mark.parametrize("controller_id", [-1, 2, 9])
def test_without_a_controller_in_time_it_is_said_so(controller_id: int) -> None:
    async def scenario(member: Member) -> None:
        member.peers[2].leave()
        member.see(controller_id)
        began = member.loop.time()
        with pytest.raises(NotController):
            await member.ask(timeout_s=2)
        assert 2 <= member.loop.time() - began < 2.2

    with_member(scenario)


def test_a_question_whose_answer_was_lost_is_not_asked_twice() -> None:
    async def scenario(member: Member) -> None:
        def cut(request: Request) -> Response | None:
            member.peers[2].connections[-1].channel.close("cut")
            return None

        member.peers[2].answer = cut
        with pytest.raises(RequestTimedOut):
            await member.ask()
        assert len(member.peers[2].requests) == 1
        member.peers[2].answer = lambda request: CreateTopicsResponse()
        await member.ask()

    with_member(scenario)


def test_a_controller_that_does_not_answer_in_time() -> None:
    async def scenario(member: Member) -> None:
        member.peers[2].answer = lambda request: None
        with pytest.raises(RequestTimedOut):
            await member.ask(timeout_s=2)

    with_member(scenario)


# -- leaving


def remaining(*counts: int) -> Callable[[Request], Response]:
    """Answers with so many partitions, one answer after another; the last one again and again."""
    left = list(counts)

    def answer(request: Request) -> Response:
        assert request == ControlledShutdownRequest(broker_id=1, broker_epoch=40)
        count = left.pop(0) if len(left) > 1 else left[0]
        return ControlledShutdownResponse(remaining_partitions=[RemainingPartition("t", each) for each in range(count)])

    return answer


def leaving(
    response: Callable[[Request], Response | None],
    *,
    is_moved: bool,
    within_s: float,
    asked: int,
    prepare: Callable[[Member], object] = lambda member: None,
) -> None:
    async def scenario(member: Member) -> None:
        member.peers[2].answer = response
        prepare(member)
        began = member.loop.time()
        assert await member.leave() == is_moved
        assert member.loop.time() - began < within_s
        assert len(member.peers[2].requests) == asked

    with_member(scenario)


def test_a_broker_leaves_when_its_leaders_have_moved() -> None:
    leaving(remaining(0), is_moved=True, within_s=0.01, asked=1)


def test_while_leaders_move_the_leaving_broker_looks_again_soon() -> None:
    leaving(remaining(9, 5, 2, 0), is_moved=True, within_s=0.3, asked=4)


def test_leaders_that_cannot_move_are_left_behind_after_some_tries() -> None:
    leaving(remaining(1), is_moved=False, within_s=15.2, asked=4)


def test_a_broker_that_nobody_is_left_to_take_over_from_does_not_wait() -> None:
    def others_leave_later(member: Member) -> None:
        member.loop.call_later(1, member.see, 1, (1,))

    leaving(remaining(1), is_moved=False, within_s=1.1, asked=2, prepare=others_leave_later)


def test_a_single_broker_just_leaves() -> None:
    leaving(remaining(0), is_moved=False, within_s=0.001, asked=0, prepare=lambda member: member.see(1, (1,)))


def test_a_broker_without_controller_leaves_at_once() -> None:
    leaving(remaining(0), is_moved=False, within_s=0.1, asked=0, prepare=lambda member: member.see(-1))


def test_a_broker_whose_controller_is_dead_leaves_at_once() -> None:
    leaving(remaining(0), is_moved=False, within_s=0.1, asked=0, prepare=lambda member: member.peers[2].leave())


def test_a_controller_that_refuses_is_not_asked_again() -> None:
    leaving(
        lambda request: ControlledShutdownResponse(error_code=NotController.code),
        is_moved=False,
        within_s=0.01,
        asked=1,
    )


def test_the_orderly_way_out_can_be_switched_off() -> None:
    def switch_off(member: Member) -> None:
        member.cluster.settings = BrokerSettings(broker_id=1, controlled_shutdown_enable=False)

    leaving(remaining(0), is_moved=False, within_s=0.001, asked=0, prepare=switch_off)
