"""The seams that a broker is given, as far as settings shape them."""

import asyncio
import socket
from contextlib import ExitStack

from tidelog.config.broker import BrokerSettings
from tidelog.server.seams import system_seams

CLIENTS = 400


def test_clients_that_come_all_at_once_wait_for_a_busy_broker_without_being_lost() -> None:
    async def come() -> None:
        network = system_seams(BrokerSettings()).network
        listener = await network.listen("127.0.0.1", 0, lambda channel: None)
        with ExitStack() as clients:
            # The broker does not come to accept anybody meanwhile: this is its event loop.
            for _ in range(CLIENTS):
                clients.enter_context(socket.create_connection(("127.0.0.1", listener.port), timeout=0.9))
        listener.close()

    asyncio.run(come())
