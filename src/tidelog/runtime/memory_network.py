"""In-memory network for tests and the simulator: frames pass between receivers through the event loop.

`at` returns the network as another host sees it. Links between hosts have a latency and can be cut. Frames sent over a
cut link arrive when it is repaired, as with TCP.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import TypeAlias

from tidelog.runtime.disk import FileSlice
from tidelog.runtime.network import AcceptChannel, Channel, FramePart, FrameReceiver, Tls
from tidelog.types import Buffer

ObserveFrames: TypeAlias = Callable[[str, str, Sequence[Buffer]], None]
"""Called with source host, target host and frames when they are sent."""

FIRST_FREE_PORT = 49152
CLIENT_HOST = "client"


class MemoryChannel:
    """One end of a connection; `other` is the other end. The receiver runs in the context of its own host."""

    receiver: FrameReceiver
    other: "MemoryChannel"

    def __init__(
        self, hub: "_Hub", context: Context, host: str, peer_host: str, peer_port: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._hub = hub
        self._context = context
        self._loop = loop
        self.host = host
        self.peer_host = peer_host
        self.peer_port = peer_port
        self.last_activity = loop.time()
        self.is_privileged = False
        self.peer_subject: str | None = None
        self.is_closed = False
        self._is_reading = True
        self._outgoing: list[bytearray] = []
        self._incoming: deque[bytearray] = deque()
        self._delivery: asyncio.Handle | None = None
        self._stream = _Stream(loop)

    @property
    def backlog_bytes(self) -> int:
        return sum(map(len, self._outgoing)) if self._outgoing else 0

    backlog_memory_bytes = backlog_bytes

    def send(self, parts: Sequence[FramePart]) -> None:
        if not self.is_closed:
            try:
                frame = bytearray().join(parts)  # type: ignore[arg-type]
            except TypeError:
                frame = bytearray().join([part.read() if isinstance(part, FileSlice) else part for part in parts])
            self._outgoing.append(frame)

    def flush(self) -> None:
        frames = self._outgoing
        if not frames or self.is_closed:
            return
        self._outgoing = []
        other = self.other
        for observe in self._hub.on_sent:
            observe(self.host, other.host, frames)
        self._hub.carry(self._stream, self.host, other.host, partial(other.arrive, frames))

    def arrive(self, frames: list[bytearray]) -> None:
        self._incoming.extend(frames)
        self._schedule()

    def limit_frames(self, max_bytes: int) -> None:
        """Frames are whole here, whatever their length."""

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._schedule()

    def _schedule(self) -> None:
        if self._delivery is None and self._incoming and not self.is_closed:
            self._delivery = self._loop.call_soon(self._deliver, context=self._context)

    def _deliver(self) -> None:
        self._delivery = None
        self.last_activity = self._loop.time()
        incoming, on_frame = self._incoming, self.receiver.on_frame
        while incoming and self._is_reading and not self.is_closed:
            on_frame(memoryview(incoming.popleft()))
        if not self.is_closed:
            self.receiver.on_frames_done()

    def close(self, reason: str) -> None:
        if self.is_closed:
            return
        self.flush()
        self.abandon()
        self.receiver.on_closed(reason)

    def abandon(self) -> None:
        """The process of this end is dead: only the other end is notified."""
        self.is_closed = True
        self._hub.channels.pop(self, None)
        self._hub.carry(self._stream, self.host, self.other.host, self.other.close_by_peer)

    def reset(self) -> None:
        """The connection breaks: frames in flight are lost, and this end is notified now."""
        if not self.is_closed:
            self._incoming.clear()
            self._loop.call_soon(self.close, "connection reset", context=self._context)

    def close_by_peer(self) -> None:
        self._loop.call_soon(self._close_by_peer, context=self._context)

    def _close_by_peer(self) -> None:
        if self._incoming and self._is_reading and not self.is_closed:
            self._deliver()
        self.close("closed by the peer")


class MemoryListener:
    def __init__(self, owner: str, host: str, port: int, accept: AcceptChannel, hub: "_Hub") -> None:
        self.owner = owner
        self.host = host
        self.port = port
        self.accept = accept
        self.started = asyncio.Event()
        self.context = copy_context()
        self.is_closed = False
        self._hub = hub

    def start(self) -> None:
        self.started.set()

    def close(self) -> None:
        self._hub.listeners.pop((self.host, self.port), None)
        self.is_closed = True
        self.started.set()  # waiting connection attempts are refused


class _Stream:
    """Messages in flight in one direction of one connection. They arrive in order, as with TCP."""

    __slots__ = ("arrivals", "last_arrival_s", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.arrivals: deque[Callable[[], None]] = deque()
        self.last_arrival_s = 0.0


class _Hub:
    """State shared by all hosts: listeners, channels and links."""

    def __init__(self) -> None:
        self.listeners: dict[tuple[str, int], MemoryListener] = {}
        self.channels: dict[MemoryChannel, None] = {}
        self.latency_s = 0.0
        self.draw_latency_s: Callable[[str, str], float] | None = None
        """Latency of one message between two hosts; if None, `latency_s`."""
        self.on_sent: list[ObserveFrames] = []
        self._context = Context()
        """Belongs to no process: messages in flight arrive even if their sender is stopped or killed."""
        self._next_port = FIRST_FREE_PORT
        self._cut: dict[tuple[str, str], None] = {}
        self._held: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self._delays_s: dict[tuple[str, str], float] = {}

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def carry(self, stream: _Stream, source: str, target: str, arrive: Callable[[], None]) -> None:
        """Deliver after the latency, in order; if the link is cut, after its repair."""
        latency_s = 0.0
        if source != target:
            draw_latency_s = self.draw_latency_s
            latency_s = self.latency_s if draw_latency_s is None else draw_latency_s(source, target)
            if self._delays_s:
                latency_s += self._delays_s.get((source, target), 0.0)
        if latency_s <= 0 and not stream.arrivals:
            self._pass(source, target, arrive)
            return
        # Some loops run timers of one instant in any order. A timer therefore delivers the next message, not its own.
        stream.arrivals.append(arrive)
        loop = stream.loop
        arrival_s = loop.time() + latency_s
        if arrival_s > stream.last_arrival_s:
            stream.last_arrival_s = arrival_s
        loop.call_at(stream.last_arrival_s, self._pass_next, stream, source, target, context=self._context)

    def _pass_next(self, stream: _Stream, source: str, target: str) -> None:
        arrive = stream.arrivals.popleft()
        if self._cut:
            self._pass(source, target, arrive)
        else:
            arrive()

    def _pass(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        if (source, target) in self._cut:
            self._held.setdefault((source, target), []).append(arrive)
        else:
            arrive()

    def cut(self, source: str, target: str) -> None:
        self._cut[source, target] = None

    def mend(self, source: str, target: str) -> None:
        self._cut.pop((source, target), None)
        for arrive in self._held.pop((source, target), []):
            arrive()

    def mend_all(self) -> None:
        self._delays_s.clear()
        for link in list(self._cut):
            self.mend(*link)

    def delay(self, source: str, target: str, delay_s: float) -> None:
        self._delays_s[source, target] = delay_s

    def reset(self, one: str, other: str) -> None:
        for channel in [found for found in self.channels if {found.host, found.other.host} == {one, other}]:
            channel.reset()


class MemoryNetwork:
    """The network seen from one host."""

    def __init__(self, host: str = CLIENT_HOST, hub: _Hub | None = None) -> None:
        self._host = host
        self._hub = _Hub() if hub is None else hub

    def at(self, host: str) -> "MemoryNetwork":
        """The same network seen from another host."""
        return MemoryNetwork(host, self._hub)

    def host_name(self) -> str:
        return "localhost"

    async def listen(self, host: str, port: int, accept: AcceptChannel, tls: Tls | None = None) -> MemoryListener:
        hub = self._hub
        address = (host, port or hub.free_port())
        if address in hub.listeners:
            raise OSError(errno.EADDRINUSE, f"{host}:{port} is in use")
        listener = hub.listeners[address] = MemoryListener(self._host, *address, accept, hub)
        return listener

    async def connect(self, host: str, port: int, attach: Callable[[Channel], FrameReceiver]) -> MemoryChannel:
        hub = self._hub
        listener = hub.listeners.get((host, port))
        if listener is not None:
            await self._travel_to(listener.owner)
            await listener.started.wait()
        if listener is None or listener.is_closed:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"no listener on {host}:{port}")
        loop = asyncio.get_running_loop()
        near = MemoryChannel(hub, copy_context(), self._host, host, port, loop)
        far = MemoryChannel(hub, listener.context, listener.owner, self._host, hub.free_port(), loop)
        near.other, far.other = far, near
        near.receiver = attach(near)
        receiver = listener.context.copy().run(listener.accept, far)
        if receiver is None:
            far.is_closed = True
            loop.call_soon(near.close, "closed by the peer")
        else:
            far.receiver = receiver
            hub.channels |= {near: None, far: None}
        return near

    async def _travel_to(self, host: str) -> None:
        loop = asyncio.get_running_loop()
        arrived = loop.create_future()
        self._hub.carry(_Stream(loop), self._host, host, lambda: None if arrived.done() else arrived.set_result(None))
        await arrived

    # ---- for tests and the simulation

    @property
    def latency_s(self) -> float:
        return self._hub.latency_s

    @latency_s.setter
    def latency_s(self, latency_s: float) -> None:
        self._hub.latency_s = latency_s

    def draw_latencies(self, draw_latency_s: Callable[[str, str], float]) -> None:
        """Draw the latency of each message by its source and target."""
        self._hub.draw_latency_s = draw_latency_s

    def on_sent(self, observe: ObserveFrames) -> None:
        """Observe the frames on all links."""
        self._hub.on_sent.append(observe)

    def cut(self, one: str, other: str) -> None:
        """Cut the link between two hosts; connections stay open."""
        self._hub.cut(one, other)
        self._hub.cut(other, one)

    def cut_one_way(self, source: str, target: str) -> None:
        """Cut one direction of a link."""
        self._hub.cut(source, target)

    def slow_down(self, source: str, target: str, delay_s: float) -> None:
        """Add `delay_s` to the latency of every message."""
        self._hub.delay(source, target, delay_s)

    def reset(self, one: str, other: str) -> None:
        """Break the connections between two hosts."""
        self._hub.reset(one, other)

    def mend(self, one: str, other: str) -> None:
        for source, target in ((one, other), (other, one)):
            self._hub.delay(source, target, 0.0)
            self._hub.mend(source, target)

    def mend_all(self) -> None:
        self._hub.mend_all()

    def power_off(self, host: str) -> None:
        """Kill the process on this host; its peers see their connections close."""
        for listener in [found for found in self._hub.listeners.values() if found.owner == host]:
            listener.close()
        for channel in [found for found in self._hub.channels if found.host == host]:
            channel.abandon()
