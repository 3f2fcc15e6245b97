"""In-flight requests of one channel. A broker sends the responses in the order of the requests."""

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
from tidelog.runtime.broker_loop import call_at_end_of_turn
from tidelog.runtime.network import Channel, FramePart, FrameTooLarge

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOGIN_API_KEYS = (17, 36)
"""SaslHandshake and SaslAuthenticate."""
MAX_CORRELATION_ID = 2**31 - 1
HTTP_AS_LENGTH = int.from_bytes(b"HTTP", "big")
"""Length of the frame that the answer of an HTTP server seems to announce."""
TLS_ALERT_START = 0x1503
"""First two bytes of the answer of a TLS listener to a client that speaks no TLS."""


class ConnectionLost(Exception):
    """The connection was closed or could not be opened. The message is the reason as a sentence."""


class LoginFailed(ConnectionLost):
    """The broker refused the login. Trying again with the same credentials is of no use."""


class InFlightRequest:
    """A request without its response. Exactly one of `on_response` and `on_lost` is called, once."""

    __slots__ = ("api_key", "correlation_id", "decode", "is_kept", "on_lost", "on_response", "version")

    def __init__(
        self,
        request: Request,
        version: int,
        decode: Decoder[Response],
        on_response: Callable[[Response], None],
        on_lost: Callable[[ConnectionLost], None],
        is_kept: bool,
    ) -> None:
        self.api_key = request.__api_key__
        self.version = version
        self.correlation_id = -1
        self.decode = decode
        self.on_response = on_response
        self.on_lost = on_lost
        self.is_kept = is_kept
        """The caller keeps the response after its callback: decode it from a copy of the frame."""


class InFlightRequests:
    """Sends requests and receives frames of one channel. Requests of one loop turn leave in one write."""

    def __init__(self, channel: Channel, client_id: str) -> None:
        self._channel = channel
        self._client_id = client_id
        self.peer = host_and_port(channel.peer_host, channel.peer_port)
        self._pending: deque[InFlightRequest] = deque()
        self._last_id = 0
        self._in_wake_up = False
        self._is_flush_due = False
        self._held: deque[tuple[Request, int, InFlightRequest | None]] | None = None
        """Requests that wait until a re-authentication is over."""
        self._drained = asyncio.Event()
        self.closed_because: str | None = None
        self.on_closed_hook: Callable[[str], None] | None = None

    @property
    def requests_in_flight(self) -> int:
        """Of the users of the connection: without those of a re-authentication, with those that it holds back."""
        if self._held is None:
            return len(self._pending)
        return len(self._held) + sum(each.api_key not in LOGIN_API_KEYS for each in self._pending)

    # ---- sending

    def hold(self) -> None:
        """Only requests of a login are sent until `release`: nothing else may come between them."""
        self._held = deque()

    def release(self) -> None:
        held, self._held = self._held, None
        for request, version, pending in held or ():
            self.send(request, version, pending)

    def send(self, request: Request, version: int, pending: InFlightRequest | None) -> None:
        """Raises UnencodableMessage before anything is sent."""
        if self._held is not None and request.__api_key__ not in LOGIN_API_KEYS:
            encoder(type(request), version)(request, _discard)
            self._held.append((request, version, pending))
            return
        correlation_id = self._last_id + 1 if self._last_id < MAX_CORRELATION_ID else 0
        parts: list[FramePart] = [request_header(request.__api_key__, version, correlation_id, self._client_id)]
        encoder(type(request), version)(request, parts.append)
        if self.closed_because is not None:
            if pending is not None:
                asyncio.get_running_loop().call_soon(pending.on_lost, self.lost())
            return
        self._last_id = correlation_id
        if pending is not None:
            pending.correlation_id = correlation_id
            self._pending.append(pending)
        self._queue(parts)

    def _queue(self, parts: Sequence[FramePart]) -> None:
        self._channel.send(parts)
        if not self._in_wake_up and not self._is_flush_due:
            self._is_flush_due = True
            call_at_end_of_turn(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        self._channel.flush()

    async def drained(self) -> None:
        self._channel.flush()
        while self._channel.backlog_bytes and self.closed_because is None:
            self._drained.clear()
            await self._drained.wait()

    # ---- FrameReceiver

    def on_frame(self, frame: memoryview) -> None:
        self._in_wake_up = True
        if not self._pending:
            self.close("the broker sent a response without a request")
            return
        pending = self._pending[0]
        try:
            response = _read(memoryview(bytes(frame)) if pending.is_kept else frame, pending)
        except MalformedMessage as error:
            self.close(f"the broker sent a malformed response: {error}")
            return
        self._pending.popleft()
        try:
            pending.on_response(response)
        except Exception:
            logger.exception(
                "connection closed: cannot process response peer=%s api_key=%d", self.peer, pending.api_key
            )
            self.close("cannot process a response")

    def on_frames_done(self) -> None:
        self._in_wake_up = False
        self._channel.flush()

    def on_drained(self) -> None:
        self._drained.set()

    def on_closed(self, reason: str) -> None:
        if self.closed_because is not None:
            return
        self.closed_because = reason = _explained(reason)
        self._drained.set()
        pending, self._pending = self._pending, deque()
        pending.extend(each for _, _, each in self._held or () if each is not None)
        self._held = None
        for one in pending:
            _call(one.on_lost, self.lost())
        if self.on_closed_hook is not None:
            _call(self.on_closed_hook, reason)
            self.on_closed_hook = None

    def lost(self) -> ConnectionLost:
        return ConnectionLost(f"the connection to {self.peer} is closed: {self.closed_because}")

    def close(self, reason: str) -> None:
        if self.closed_because is None:
            self._channel.flush()
            self._channel.close(reason)


def _read(frame: memoryview, pending: InFlightRequest) -> Response:
    correlation_id, position = read_response_header(frame, pending.api_key, pending.version)
    if correlation_id != pending.correlation_id:
        raise MalformedMessage(f"correlation id {correlation_id} instead of {pending.correlation_id}")
    response, _ = pending.decode(frame, position)
    return response


def _discard(_: object) -> None:
    """For requests that are encoded only to find out whether they can be."""


def _explained(reason: str) -> str:
    if isinstance(reason, FrameTooLarge):
        if reason.announced_bytes == HTTP_AS_LENGTH:
            return "an HTTP server answers there, probably the metrics port of a broker"
        if reason.announced_bytes >> 16 == TLS_ALERT_START:
            return "a TLS listener answers there; set security.protocol=SSL, or SASL_SSL"
    return reason


def _call(function: Callable[[T], None], argument: T) -> None:
    try:
        function(argument)
    except Exception:
        logger.exception("close callback of a connection failed")
