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
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import h11

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 16
"""A further connection replaces one that was answered, else the oldest one whose request is not complete, else the one
whose client has read nothing for the longest time."""
REQUEST_TIMEOUT_S = 5.0
"""Time for the whole request, which is a few hundred bytes."""
RESPONSE_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 1.0
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


class HttpServer:
    """Binds its address at once, and accepts connections after `start`."""

    def __init__(self, server: asyncio.Server, host: str, basic_auth: str | None = None) -> None:
        self._server = server
        self._authorization = None if basic_auth is None else b"Basic " + base64.b64encode(basic_auth.encode())
        self.host = host
        self.port: int = server.sockets[0].getsockname()[1]
        self._pages: Mapping[str, Page] = {}
        self._exchanges: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._is_closed = False
        self._closing: dict[asyncio.Task[None], None] = {}
        """Connections whose response is sent, oldest first."""
        self._receiving: dict[asyncio.Task[None], None] = {}
        """Connections whose request is not complete, oldest first."""
        self._answering: dict[asyncio.Task[None], None] = {}
        """Connections that are being answered; those whose client reads are last."""

    @classmethod
    async def listen(
        cls, host: str, port: int, *, tls: ssl.SSLContext | None = None, basic_auth: str | None = None
    ) -> "HttpServer":
        """Bind the address; an empty host means all interfaces. `basic_auth` is NAME:PASSWORD. Raises OSError."""
        servers: list[HttpServer] = []
        server = await asyncio.start_server(
            lambda reader, writer: servers[0]._accept(reader, writer),
            host or "0.0.0.0",
            port,
            family=socket.AF_INET6 if ":" in host else socket.AF_INET,
            limit=BUFFERED_BYTES,
            start_serving=False,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else REQUEST_TIMEOUT_S,
        )
        servers.append(cls(server, host, basic_auth))
        return servers[0]

    async def start(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        await self._server.start_serving()

    async def close(self) -> None:
        self._server.close()
        self._is_closed = True
        exchanges = list(self._exchanges)
        for exchange in exchanges:
            self._drop(exchange)
        await asyncio.gather(*exchanges, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closed:  # the connection was accepted before
            writer.transport.abort()
            return
        if len(self._exchanges) >= MAX_CONNECTIONS:
            self._drop(next(chain(self._closing, self._receiving, self._answering)))
        exchange = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._exchanges[exchange] = writer
        self._receiving[exchange] = None
        exchange.add_done_callback(self._forget)

    def _drop(self, exchange: "asyncio.Task[None]") -> None:
        self._exchanges[exchange].transport.abort()  # a task that has not begun would never do it
        self._forget(exchange)
        exchange.cancel()

    def _forget(self, exchange: "asyncio.Task[None]") -> None:
        self._exchanges.pop(exchange, None)
        for phase in (self._closing, self._receiving, self._answering):
            phase.pop(exchange, None)

    def _on_progress(self, exchange: "asyncio.Task[None]") -> None:
        if exchange in self._answering:
            del self._answering[exchange]
            self._answering[exchange] = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(BUFFERED_BYTES)
        task = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            on_progress = partial(self._on_progress, task)
            exchange = _Exchange(reader, writer, self._pages, self._authorization, on_progress)
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                response = await exchange.receive()
            self._receiving.pop(task, None)
            self._answering[task] = None
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                await response()
            self._answering.pop(task, None)
            self._closing[task] = None
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await _close_gracefully(reader, writer)
        except (TimeoutError, OSError) as error:
            logger.debug("HTTP connection given up reason=%r", error)
        except Exception:
            logger.exception("HTTP request failed")
        finally:
            writer.transport.abort()


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
        on_progress: Callable[[], None],
    ) -> None:
        import h11

        self._h11 = h11
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._reader = reader
        self._writer = writer
        self._pages = pages
        self._on_progress = on_progress
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
            self._on_progress()
        await asyncio.sleep(0)  # let other work run between two pieces

    async def _end(self) -> None:
        self._write(self._h11.EndOfMessage())
        await self._writer.drain()

    def _write(self, event: "h11.Response | h11.Data | h11.EndOfMessage") -> None:
        data = self._connection.send(event)
        if data:
            self._writer.write(data)
