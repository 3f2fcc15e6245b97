"""The network seam without sockets: frames pass from one receiver to another through the event loop."""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence

from tidelog.runtime.disk import FileSlice
from tidelog.runtime.network import AcceptChannel, Channel, FramePart, FrameReceiver

FIRST_FREE_PORT = 49152


class MemoryChannel:
    """One end of a connection; `other` is its twin."""

    receiver: FrameReceiver
    other: "MemoryChannel"

    def __init__(self, loop: asyncio.AbstractEventLoop, peer_host: str, peer_port: int) -> None:
        self._loop = loop
        self.peer_host = peer_host
        self.peer_port = peer_port
        self.last_activity = loop.time()
        self.is_closed = False
        self._is_reading = True
        self._outgoing: list[bytearray] = []
        self._incoming: deque[bytearray] = deque()
        self._delivery: asyncio.Handle | None = None

    @property
    def backlog_bytes(self) -> int:
        return sum(map(len, self._outgoing))

    def send(self, parts: Sequence[FramePart]) -> None:
        if not self.is_closed:
            self._outgoing.append(
                bytearray().join(part.read() if isinstance(part, FileSlice) else part for part in parts)
            )

    def flush(self) -> None:
        frames, self._outgoing = self._outgoing, []
        if frames and not self.other.is_closed:
            self.other.arrive(frames)

    def arrive(self, frames: list[bytearray]) -> None:
        self._incoming.extend(frames)
        self._schedule()

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._schedule()

    def _schedule(self) -> None:
        if self._delivery is None and self._incoming and not self.is_closed:
            self._delivery = self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._delivery = None
        self.last_activity = self._loop.time()
        while self._incoming and self._is_reading and not self.is_closed:
            self.receiver.on_frame(memoryview(self._incoming.popleft()))
        if not self.is_closed:
            self.receiver.on_frames_done()

    def close(self, reason: str) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self.receiver.on_closed(reason)
        self._loop.call_soon(self.other.close, "closed by the peer")


class MemoryListener:
    def __init__(self, host: str, port: int, accept: AcceptChannel, close: Callable[[], None]) -> None:
        self.host = host
        self.port = port
        self.accept = accept
        self.started = asyncio.Event()
        self._close = close

    def start(self) -> None:
        self.started.set()

    def close(self) -> None:
        self._close()


class MemoryNetwork:
    """All hosts of one process."""

    def __init__(self) -> None:
        self._listeners: dict[tuple[str, int], MemoryListener] = {}
        self._next_port = FIRST_FREE_PORT

    def host_name(self) -> str:
        return "localhost"

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    async def listen(self, host: str, port: int, accept: AcceptChannel) -> MemoryListener:
        address = (host, port or self._free_port())
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{host}:{port} is in use")
        listener = MemoryListener(*address, accept, lambda: self._forget(address))
        self._listeners[address] = listener
        return listener

    def _forget(self, address: tuple[str, int]) -> None:
        self._listeners.pop(address, None)

    async def connect(self, host: str, port: int, attach: Callable[[Channel], FrameReceiver]) -> MemoryChannel:
        listener = self._listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {host}:{port}")
        await listener.started.wait()
        loop = asyncio.get_running_loop()
        near, far = MemoryChannel(loop, host, port), MemoryChannel(loop, "client", self._free_port())
        near.other, far.other = far, near
        near.receiver = attach(near)
        receiver = listener.accept(far)
        if receiver is None:
            far.is_closed = True
            loop.call_soon(near.close, "closed by the peer")
        else:
            far.receiver = receiver
        return near
