"""Requests on one channel and their answers, which a broker gives in the order it was asked."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from tidelog.config.listeners import host_and_port
from tidelog.protocol.codec import Decoder, encoder
from tidelog.protocol.errors import MalformedMessage
from tidelog.protocol.header import read_response_header, request_header
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.network import Channel, FramePart

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_CORRELATION_ID = 2**31 - 1


class ConnectionLost(Exception):
    """The connection ended, or never began; the message is the reason as a sentence."""


class AwaitedAnswer:
    """A request that was sent. One of `on_answer` and `on_lost` is called, once."""

    __slots__ = ("api_key", "correlation_id", "decode", "is_kept", "on_answer", "on_lost", "version")

    def __init__(
        self,
        request: Request,
        version: int,
        decode: Decoder[Response],
        on_answer: Callable[[Response], None],
        on_lost: Callable[[ConnectionLost], None],
        is_kept: bool,
    ) -> None:
        self.api_key = request.__api_key__
        self.version = version
        self.correlation_id = -1
        self.decode = decode
        self.on_answer = on_answer
        self.on_lost = on_lost
        self.is_kept = is_kept  # the answer outlives its frame


class Pipeline:
    """Receives the frames of one channel. What is sent within one turn of the loop leaves in one write."""

    def __init__(self, channel: Channel, client_id: str) -> None:
        self._channel = channel
        self._client_id = client_id
        self.peer = host_and_port(channel.peer_host, channel.peer_port)
        self._awaited: deque[AwaitedAnswer] = deque()
        self._last_id = 0
        self._in_wake_up = False
        self._is_flush_due = False
        self._drained = asyncio.Event()
        self.closed_because: str | None = None
        self.on_closed_hook: Callable[[str], None] | None = None

    @property
    def requests_in_flight(self) -> int:
        return len(self._awaited)

    # -- sending

    def send(self, request: Request, version: int, awaited: AwaitedAnswer | None) -> None:
        """Raises UnencodableMessage, and then nothing was sent."""
        correlation_id = self._last_id + 1 if self._last_id < MAX_CORRELATION_ID else 0
        parts: list[FramePart] = [request_header(request.__api_key__, version, correlation_id, self._client_id)]
        encoder(type(request), version)(request, parts.append)
        if self.closed_because is not None:
            if awaited is not None:
                asyncio.get_running_loop().call_soon(awaited.on_lost, self.lost())
            return
        self._last_id = correlation_id
        if awaited is not None:
            awaited.correlation_id = correlation_id
            self._awaited.append(awaited)
        self._queue(parts)

    def _queue(self, parts: Sequence[FramePart]) -> None:
        self._channel.send(parts)
        if not self._in_wake_up and not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        self._channel.flush()

    async def drained(self) -> None:
        self._channel.flush()
        while self._channel.backlog_bytes and self.closed_because is None:
            self._drained.clear()
            await self._drained.wait()

    # -- FrameReceiver

    def on_frame(self, frame: memoryview) -> None:
        self._in_wake_up = True
        if not self._awaited:
            self.close("the broker sent an answer to nothing")
            return
        awaited = self._awaited[0]
        try:
            response = _read(memoryview(bytes(frame)) if awaited.is_kept else frame, awaited)
        except MalformedMessage as error:
            self.close(f"the broker sent a malformed answer: {error}")
            return
        self._awaited.popleft()
        try:
            awaited.on_answer(response)
        except Exception:
            logger.exception("connection closed: failed on an answer peer=%s api_key=%d", self.peer, awaited.api_key)
            self.close("failed on an answer")

    def on_frames_done(self) -> None:
        self._in_wake_up = False
        self._channel.flush()

    def on_drained(self) -> None:
        self._drained.set()

    def on_closed(self, reason: str) -> None:
        if self.closed_because is not None:
            return
        self.closed_because = reason
        self._drained.set()
        awaited, self._awaited = self._awaited, deque()
        for one in awaited:
            _call(one.on_lost, self.lost())
        if self.on_closed_hook is not None:
            _call(self.on_closed_hook, reason)
            self.on_closed_hook = None

    def lost(self) -> ConnectionLost:
        return ConnectionLost(f"the connection to {self.peer} is gone: {self.closed_because}")

    def close(self, reason: str) -> None:
        if self.closed_because is None:
            self._channel.flush()
            self._channel.close(reason)


def _read(frame: memoryview, awaited: AwaitedAnswer) -> Response:
    correlation_id, position = read_response_header(frame, awaited.api_key, awaited.version)
    if correlation_id != awaited.correlation_id:
        raise MalformedMessage(f"it has correlation id {correlation_id} instead of {awaited.correlation_id}")
    response, _ = awaited.decode(frame, position)
    return response


def _call(function: Callable[[T], None], argument: T) -> None:
    try:
        function(argument)
    except Exception:
        logger.exception("a listener failed on the end of its connection")
