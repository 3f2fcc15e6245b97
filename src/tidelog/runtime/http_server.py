"""HTTP seam: serves a few pages, one request per connection.

A page is generated in pieces while the client reads them: a slow client holds no more than one piece. h11, which
implements the protocol, is imported with the first connection.
"""

import asyncio
import base64
import hmac
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import h11

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 16
"""A further connection replaces one that was answered, else one of the host with the most connections: the oldest one
whose request is not complete, else the one whose client has read nothing for the longest time."""
MIN_CONNECTION_S = 0.05
"""Time that each connection has to send its request, or to read on, before another replaces it, which waits."""
REQUEST_TIMEOUT_S = 5.0
"""Time for the TLS handshake and the whole request, which is a few hundred bytes."""
RESPONSE_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 1.0
ACCEPT_PAUSE_S = 1.0
"""Pause after a connection that could not be accepted, for lack of descriptors."""
BACKLOG = 128
MAX_HEAD_BYTES = 16 * 1024
READ_BYTES = 4096
BUFFERED_BYTES = 64 * 1024

PLAIN_TEXT = "text/plain; charset=utf-8"


class Unavailable(Exception):
    """Raised by a page that is not available at the moment: status 503 with this reason."""


class Page(Protocol):
    @property
    def content_type(self) -> str: ...

    def pieces(self) -> Iterator[bytes]:
        """The first piece is generated before the response begins. An empty piece only yields to other work."""
        ...


class _Phase(IntEnum):
    """In the order in which connections give way to others."""

    CLOSING = 0
    """The response is sent."""
    RECEIVING = 1
    """The request is not complete."""
    ANSWERING = 2


class _Slot:
    """One of the connections that are served at the same time."""

    def __init__(self, connection: socket.socket, host: str, now_s: float) -> None:
        self.connection = connection
        self.host = host
        self.transport: asyncio.Transport | None = None
        """None until the TLS handshake is complete."""
        self.phase = _Phase.RECEIVING
        self.since_s = now_s
        """When the phase began, or when the client last read something."""

    def enter(self, phase: _Phase) -> None:
        self.phase = phase
        self.since_s = asyncio.get_running_loop().time()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()
        else:
            self.connection.close()


class HttpServer:
    """Binds its address at once, and accepts connections after `start`."""

    def __init__(
        self,
        listening: socket.socket,
        host: str,
        *,
        tls: ssl.SSLContext | None = None,
        basic_auth: str | None = None,
    ) -> None:
        self._listening = listening
        self._tls = tls
        self._authorization = None if basic_auth is None else b"Basic " + base64.b64encode(basic_auth.encode())
        self.host = host
        self.port: int = listening.getsockname()[1]
        self._pages: Mapping[str, Page] = {}
        self._accepting: asyncio.Task[None] | None = None
        self._slots: dict[asyncio.Task[None], _Slot] = {}
        self._has_changed = asyncio.Event()
        """A connection may have to give way, or has gone."""

    @classmethod
    async def listen(
        cls, host: str, port: int, *, tls: ssl.SSLContext | None = None, basic_auth: str | None = None
    ) -> "HttpServer":
        """Bind the address; an empty host means all interfaces. `basic_auth` is NAME:PASSWORD. Raises OSError."""
        listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host or "0.0.0.0", port))
        except BaseException:
            listening.close()
            raise
        return cls(listening, host, tls=tls, basic_auth=basic_auth)

    async def start(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        self._listening.listen(BACKLOG)
        self._accepting = asyncio.get_running_loop().create_task(self._accept_all())

    async def close(self) -> None:
        tasks = list(self._slots)
        if self._accepting is not None:
            tasks.append(self._accepting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listening.close()

    # ---- connections

    async def _accept_all(self) -> None:
        """Accept one connection after the other: those that have to wait are left to the kernel."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._listening)
            except OSError as error:
                logger.warning("HTTP connection not accepted reason=%r", error)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            try:
                await self._make_room()
            except BaseException:
                connection.close()
                raise
            slot = _Slot(connection, str(address[0]), loop.time())
            exchange = loop.create_task(self._serve(slot))
            self._slots[exchange] = slot
            exchange.add_done_callback(partial(self._forget, slot))

    async def _make_room(self) -> None:
        while len(self._slots) >= MAX_CONNECTIONS:
            exchange = self._next_to_go()
            slot = self._slots[exchange]
            wait_s = slot.since_s + MIN_CONNECTION_S - asyncio.get_running_loop().time()
            if slot.phase is _Phase.CLOSING or wait_s <= 0:
                del self._slots[exchange]
                exchange.cancel()
                return
            self._has_changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._has_changed.wait()

    def _next_to_go(self) -> "asyncio.Task[None]":
        of_host = Counter(slot.host for slot in self._slots.values())

        def order(exchange: "asyncio.Task[None]") -> tuple[bool, int, _Phase, float]:
            slot = self._slots[exchange]
            return slot.phase is not _Phase.CLOSING, -of_host[slot.host], slot.phase, slot.since_s

        return min(self._slots, key=order)

    def _forget(self, slot: _Slot, exchange: "asyncio.Task[None]") -> None:
        """Also of a task that was cancelled before it began."""
        self._slots.pop(exchange, None)
        slot.abort()
        self._has_changed.set()

    async def _serve(self, slot: _Slot) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                reader, writer = await self._open(slot)
                exchange = _Exchange(reader, writer, self._pages, self._authorization, slot)
                response = await exchange.receive()
            slot.enter(_Phase.ANSWERING)
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                await response()
            slot.enter(_Phase.CLOSING)
            self._has_changed.set()
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await _close_gracefully(reader, writer)
        except (TimeoutError, OSError) as error:
            logger.debug("HTTP connection given up reason=%r", error)
        except Exception:
            logger.exception("HTTP request failed")
        finally:
            slot.abort()

    async def _open(self, slot: _Slot) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Ends when the TLS handshake is complete, if there is one."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=BUFFERED_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        slot.transport, _ = await loop.connect_accepted_socket(lambda: protocol, slot.connection, ssl=self._tls)
        slot.transport.set_write_buffer_limits(BUFFERED_BYTES)
        return reader, asyncio.StreamWriter(slot.transport, protocol, reader, loop)


async def _close_gracefully(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read until the client closes: closing while it still sends would reset the connection and lose the response."""
    if writer.can_write_eof():
        writer.write_eof()
    while await reader.read(READ_BYTES):
        pass


async def _nothing() -> None:
    """The client disconnected without a request."""


class _Exchange:
    """One request and its response."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pages: Mapping[str, Page],
        authorization: bytes | None,
        slot: _Slot,
    ) -> None:
        import h11

        self._h11 = h11
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._reader = reader
        self._writer = writer
        self._pages = pages
        self._slot = slot
        self._authorization = authorization

    async def receive(self) -> Callable[[], Awaitable[None]]:
        """Read the request. Returns the function that sends the response."""
        try:
            request = await self._request()
        except self._h11.RemoteProtocolError as error:
            return partial(self._reject, error.error_status_hint, "not an HTTP request")
        return _nothing if request is None else partial(self._answer, request)

    async def _request(self) -> "h11.Request | None":
        """None if the client disconnected without a request."""
        while True:
            event = self._connection.next_event()
            if isinstance(event, self._h11.Request):
                return event
            if event is not self._h11.NEED_DATA:
                return None
            self._connection.receive_data(await self._reader.read(READ_BYTES))

    async def _answer(self, request: "h11.Request") -> None:
        path = request.target.decode("ascii", "replace").partition("?")[0]
        page = self._pages.get(path)
        if not self._is_authorized(request):
            challenge = [("WWW-Authenticate", 'Basic realm="tidelog"')]
            await self._reject(401, "a name and a password are needed", request.method, challenge)
        elif page is None:
            await self._reject(404, f"available pages: {', '.join(self._pages)}", request.method)
        elif request.method not in (b"GET", b"HEAD"):
            await self._reject(405, "use GET or HEAD", headers=[("Allow", "GET, HEAD")])
        else:
            await self._send_page(page, request.method)

    def _is_authorized(self, request: "h11.Request") -> bool:
        if self._authorization is None:
            return True
        given = next((value for name, value in request.headers if name == b"authorization"), b"")
        return hmac.compare_digest(given, self._authorization)

    async def _send_page(self, page: Page, method: bytes) -> None:
        try:
            pieces = page.pieces()
            first = next(pieces)
        except Unavailable as reason:
            await self._reject(503, str(reason), method)
            return
        except Exception:
            logger.exception("cannot generate page")
            await self._reject(500, "cannot generate the page; see the log of the broker", method)
            return
        self._begin(200, page.content_type, [])
        if method == b"GET":
            await self._send(first)
            for piece in pieces:
                await self._send(piece)
        await self._end()

    async def _reject(
        self, status: int, reason: str, method: bytes = b"GET", headers: list[tuple[str, str]] | None = None
    ) -> None:
        if self._connection.our_state not in (self._h11.IDLE, self._h11.SEND_RESPONSE):
            return
        body = f"{status}: {reason}\n".encode()
        self._begin(status, PLAIN_TEXT, [("Content-Length", str(len(body))), *(headers or [])])
        if method != b"HEAD":
            await self._send(body)
        await self._end()

    def _begin(self, status: int, content_type: str, headers: list[tuple[str, str]]) -> None:
        """h11 sends chunks to HTTP/1.1 clients, and to HTTP/1.0 clients until the connection closes."""
        common = [("Content-Type", content_type), ("Connection", "close"), ("Cache-Control", "no-store")]
        self._write(self._h11.Response(status_code=status, headers=[*common, *headers]))

    async def _send(self, piece: bytes) -> None:
        if piece:
            self._write(self._h11.Data(data=piece))
            await self._writer.drain()
            self._slot.enter(_Phase.ANSWERING)
        await asyncio.sleep(0)  # let other work run between two pieces

    async def _end(self) -> None:
        """The response is sent when all of it has left the buffer: who is answered is the first to give way."""
        self._write(self._h11.EndOfMessage())
        # Not 0: over TLS, asyncio then counts an empty buffer as full, and `drain` waits until the response times out.
        self._writer.transport.set_write_buffer_limits(high=1, low=0)
        await self._writer.drain()

    def _write(self, event: "h11.Response | h11.Data | h11.EndOfMessage") -> None:
        data = self._connection.send(event)
        if data:
            self._writer.write(data)
