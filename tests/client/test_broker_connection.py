"""A kept connection: lazy, shared, opened again, and following its broker to another address."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.controller.peer import HOST, Peer
from tidelog.client.network.bootstrap import Address
from tidelog.client.network.broker_connection import BrokerConnection
from tidelog.client.network.connection import ConnectionLost
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.runtime.memory_network import MemoryNetwork
from tidelog.runtime.virtual_time import run_virtually


class Kept:
    """A connection to one of two peers."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.peers = {1: Peer(), 2: Peer()}
        self.port: int | None = 1
        self.connection = BrokerConnection(self.network, "test", self._address)

    def _address(self) -> Address:
        if self.port is None:
            raise ConnectionLost("nobody knows where it is")
        return Address(HOST, self.port)

    async def ask(self) -> CreateTopicsResponse:
        return await self.connection.ask(CreateTopicsRequest(timeout_ms=7), CreateTopicsResponse, 5)


def with_kept(scenario: Callable[[Kept], Awaitable[None]]) -> None:
    async def main() -> None:
        kept = Kept()
        for port, peer in kept.peers.items():
            await peer.listen(kept.network, port)
        await scenario(kept)
        kept.connection.close()

    run_virtually(main())


def test_it_is_opened_by_the_first_request_and_shared_by_all() -> None:
    async def scenario(kept: Kept) -> None:
        assert kept.peers[1].connections == []
        await asyncio.gather(kept.ask(), kept.ask())
        await kept.ask()
        assert len(kept.peers[1].connections) == 1

    with_kept(scenario)


def test_it_is_opened_again_after_it_was_lost() -> None:
    async def scenario(kept: Kept) -> None:
        await kept.ask()
        (await kept.connection.connected()).close("lost")
        assert not kept.connection.is_open
        await kept.ask()
        assert len(kept.peers[1].connections) == 2

    with_kept(scenario)


def test_it_follows_its_broker_to_another_address_and_leaves_the_old_one() -> None:
    async def scenario(kept: Kept) -> None:
        old = await kept.connection.connected()
        kept.port = 2
        await kept.ask()
        assert old.is_closed
        assert len(kept.peers[2].connections) == 1

    with_kept(scenario)


def test_a_broker_that_nobody_can_find_is_a_lost_connection() -> None:
    async def scenario(kept: Kept) -> None:
        await kept.ask()
        kept.port = None
        with pytest.raises(ConnectionLost, match="nobody knows"):
            await kept.ask()

    with_kept(scenario)
