"""A listener without descriptors: clients wait in the backlog, and the loop does not spin."""

import asyncio
import errno
import socket

from tidelog.runtime.socket_channel import SocketChannel
from tidelog.runtime.socket_network import ACCEPT_PAUSE_S, SocketListener
from tidelog.runtime.virtual_time import run_virtually


class ShortSocket:
    """There is always somebody to accept, and never a descriptor."""

    def __init__(self) -> None:
        self.accepts = 0
        self.is_short = True

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 9092

    def fileno(self) -> int:
        return 5

    def accept(self) -> tuple[socket.socket, object]:
        self.accepts += 1
        if self.is_short:
            raise OSError(errno.EMFILE, "Too many open files")
        raise BlockingIOError

    def close(self) -> None: ...


class Readiness:
    """The loop, as far as a listener needs it: ready as soon as somebody wants to know."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.is_reading = False

    def add_reader(self, fd: int, callback: object) -> None:
        self.is_reading = True
        self._loop.call_soon(callback)  # type: ignore[arg-type]

    def remove_reader(self, fd: int) -> None:
        self.is_reading = False

    def call_later(self, delay_s: float, callback: object) -> None:
        self._loop.call_later(delay_s, callback)  # type: ignore[arg-type]


def never(_: socket.socket) -> SocketChannel:
    raise AssertionError("nobody was accepted")


def test_a_listener_without_descriptors_pauses_and_goes_on() -> None:
    async def scenario() -> None:
        listening, readiness = ShortSocket(), Readiness()
        listener = SocketListener(listening, readiness, never, lambda _: None)  # type: ignore[arg-type]
        listener.start()
        await asyncio.sleep(100 * ACCEPT_PAUSE_S + 0.001)
        assert 100 <= listening.accepts <= 102
        assert not readiness.is_reading
        listening.is_short = False
        await asyncio.sleep(2 * ACCEPT_PAUSE_S)
        assert readiness.is_reading

    run_virtually(scenario())
