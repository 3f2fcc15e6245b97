"""The network seam: connections that carry whole frames.

A frame is a four-byte length and that many bytes. A receiver sees complete frames only and hands
back complete frames only, so that a simulated network need not know about sockets, and a real one
can read and write as cheaply as the operating system allows.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from tidelog.runtime.disk import FileSlice
from tidelog.types import Buffer

FramePart: TypeAlias = Buffer | FileSlice
"""A piece of a frame to send; a slice of a file leaves its file only on its way into the socket."""


class FrameReceiver(Protocol):
    """What a channel reports to. Calls never overlap."""

    def on_frame(self, frame: memoryview) -> None:
        """One whole frame without its length. The memory is reused as soon as the call returns."""
        ...

    def on_frames_done(self) -> None:
        """Every frame that had arrived was handed over: a good moment to flush."""
        ...

    def on_drained(self) -> None:
        """What was sent has left, after `backlog_bytes` had grown."""
        ...

    def on_closed(self, reason: str) -> None:
        """The last call, whoever closed."""
        ...


class Channel(Protocol):
    """One connection."""

    peer_host: str
    peer_port: int

    @property
    def backlog_bytes(self) -> int:
        """What was sent but has not left yet."""
        ...

    @property
    def backlog_memory_bytes(self) -> int:
        """The part of it that takes memory: slices of files do not."""
        ...

    is_privileged: bool
    """The peer is a broker, or chosen by this process: it never waits for clients to have had their turn."""

    @property
    def last_activity(self) -> float:
        """Loop time at which something last came or went."""
        ...

    def send(self, parts: Sequence[FramePart]) -> None:
        """Queue one frame; its length is put before it. It leaves with the next flush."""
        ...

    def flush(self) -> None:
        """Write everything queued in as few system calls as possible; the rest follows when there is room."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, reason: str) -> None: ...


class Listener(Protocol):
    """An address that is taken. Whoever connects waits until `start`."""

    host: str
    port: int

    def start(self) -> None:
        """Take connections from now on."""
        ...

    def close(self) -> None:
        """Take no new connections; those that exist stay."""
        ...


AcceptChannel: TypeAlias = Callable[[Channel], FrameReceiver | None]
"""Who will receive the frames of a new connection; None turns it away."""


class Network(Protocol):
    def host_name(self) -> str:
        """What others may call this machine."""
        ...

    async def listen(self, host: str, port: int, accept: AcceptChannel) -> Listener: ...

    async def connect(self, host: str, port: int, attach: Callable[[Channel], FrameReceiver]) -> Channel: ...
