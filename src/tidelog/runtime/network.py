"""Network seam: connections that carry whole frames.

A frame is a four-byte length and that many bytes. Receivers get and send complete frames only. A
simulated network therefore needs no sockets, and a real one can read and write as cheaply as the
operating system allows.
"""

import ssl
import struct
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from tidelog.runtime.disk import FileSlice
from tidelog.types import Buffer

LENGTH = struct.Struct(">i")
LENGTH_BYTES = 4

FramePart: TypeAlias = Buffer | FileSlice
"""A part of a frame to send. A file slice is sent from its file (sendfile)."""


class HandshakeFailed(str):
    """Reason of a connection that was closed before it was encrypted."""

    __slots__ = ()


class FrameTooLarge(str):
    """Reason of a connection that was closed because its peer announced a frame above the limit, or below zero."""

    __slots__ = ("announced_bytes",)
    announced_bytes: int

    @classmethod
    def of(cls, announced_bytes: int, limit_bytes: int) -> "FrameTooLarge":
        reason = cls(f"frame of {announced_bytes} bytes, the limit is {limit_bytes}")
        reason.announced_bytes = announced_bytes
        return reason


class FrameReceiver(Protocol):
    """Callbacks of a channel. Calls never overlap."""

    def on_frame(self, frame: memoryview) -> None:
        """One whole frame without its length. The memory is reused as soon as the call returns."""
        ...

    def on_frames_done(self) -> None:
        """All frames received so far were delivered: flush now."""
        ...

    def on_drained(self) -> None:
        """The backlog has been sent."""
        ...

    def on_closed(self, reason: str) -> None:
        """The channel is closed, by either side. This is the last call. Some reasons have a type, see above."""
        ...


class Channel(Protocol):
    """One connection."""

    peer_host: str
    peer_port: int

    @property
    def backlog_bytes(self) -> int:
        """Bytes that are queued and not sent yet."""
        ...

    @property
    def backlog_memory_bytes(self) -> int:
        """The part of the backlog in memory, without file slices."""
        ...

    @property
    def peer_subject(self) -> str | None:
        """Distinguished name in the peer's verified certificate. Known when the first frame is delivered."""
        ...

    is_privileged: bool
    """The peer is a broker, or this process connected to it: it is never scheduled behind clients."""

    @property
    def last_activity(self) -> float:
        """Loop time of the last received or sent bytes."""
        ...

    def send(self, parts: Sequence[FramePart]) -> None:
        """Queue one frame, preceded by its length. It is sent with the next flush."""
        ...

    def flush(self) -> None:
        """Send the queue in as few system calls as possible; the rest follows when the socket is writable."""
        ...

    def limit_frames(self, max_bytes: int) -> None:
        """A longer frame closes the connection from now on."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, reason: str) -> None: ...


class Listener(Protocol):
    """A bound address. Connections wait until `start`."""

    host: str
    port: int

    def start(self) -> None:
        """Accept connections."""
        ...

    def close(self) -> None:
        """Accept no new connections; existing ones stay."""
        ...


AcceptChannel: TypeAlias = Callable[[Channel], FrameReceiver | None]
"""Returns the receiver of a new connection, or None to refuse it."""


class Tls(Protocol):
    """TLS of a listener, or of connections to one. The contexts change when certificates are reloaded."""

    @property
    def server_context(self) -> ssl.SSLContext: ...

    @property
    def client_context(self) -> ssl.SSLContext: ...


class Network(Protocol):
    def host_name(self) -> str:
        """The name of this machine for other machines."""
        ...

    async def listen(self, host: str, port: int, accept: AcceptChannel, tls: Tls | None = None) -> Listener: ...

    async def connect(self, host: str, port: int, attach: Callable[[Channel], FrameReceiver]) -> Channel: ...
