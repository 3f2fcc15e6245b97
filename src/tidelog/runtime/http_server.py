"""The HTTP seam: a few pages that tools and people read, one request per connection.

A page is made in pieces while the reader takes them, so that a slow one holds no more than a piece. The protocol is
h11's, which is loaded when the first connection comes.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import h11

logger = logging.getLogger(__name__)

MOST_CONNECTIONS = 16
"""Readers are few. Whoever comes beyond that takes the place of the one that has not finished asking for longest."""
LONGEST_QUESTION_S = 5.0
"""A request is a few hundred bytes."""
LONGEST_EXCHANGE_S = 30.0
LONGEST_GOODBYE_S = 1.0
LARGEST_HEAD_BYTES = 16 * 1024
READ_BYTES = 4096
BUFFERED_BYTES = 64 * 1024

PLAIN_TEXT = "text/plain; charset=utf-8"


class Page(Protocol):
    @property
    def content_type(self) -> str: ...

    def pieces(self) -> Iterator[bytes]:
        """The first is made before the answer begins; an empty one only lets others have their turn."""
        ...


class HttpServer:
    """Takes its address at once, and connections from `start` on."""

    def __init__(self, server: asyncio.Server, host: str) -> None:
        self._server = server
        self.host = host
        self.port: int = server.sockets[0].getsockname()[1]
        self._pages: Mapping[str, Page] = {}
        self._exchanges: dict[asyncio.Task[None], None] = {}
        self._asking: dict[asyncio.Task[None], None] = {}
        """Those whose request is not whole yet, the oldest first."""

    @classmethod
    async def listen(cls, host: str, port: int) -> "HttpServer":
        """Raises OSError. An empty host is every interface."""
        servers: list[HttpServer] = []
        server = await asyncio.start_server(
            lambda reader, writer: servers[0]._accept(reader, writer),
            host or "0.0.0.0",
            port,
            family=socket.AF_INET6 if ":" in host else socket.AF_INET,
            limit=BUFFERED_BYTES,
            start_serving=False,
        )
        servers.append(cls(server, host))
        return servers[0]

    async def start(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        await self._server.start_serving()

    async def close(self) -> None:
        self._server.close()
        exchanges = list(self._exchanges)
        for exchange in exchanges:
            exchange.cancel()
        await asyncio.gather(*exchanges, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._exchanges) >= MOST_CONNECTIONS:
            if not self._asking:
                writer.transport.abort()  # all of them are being answered
                return
            self._drop(next(iter(self._asking)))
        exchange = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._exchanges[exchange] = self._asking[exchange] = None
        exchange.add_done_callback(self._forget)

    def _drop(self, exchange: "asyncio.Task[None]") -> None:
        self._forget(exchange)
        exchange.cancel()

    def _forget(self, exchange: "asyncio.Task[None]") -> None:
        self._exchanges.pop(exchange, None)
        self._asking.pop(exchange, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(BUFFERED_BYTES)
        try:
            exchange = _Exchange(reader, writer, self._pages)
            async with asyncio.timeout(LONGEST_QUESTION_S):
                answer = await exchange.hear()
            self._asking.pop(cast("asyncio.Task[None]", asyncio.current_task()), None)
            async with asyncio.timeout(LONGEST_EXCHANGE_S):
                await answer()
            async with asyncio.timeout(LONGEST_GOODBYE_S):
                await _say_goodbye(reader, writer)
        except (TimeoutError, OSError) as error:
            logger.debug("HTTP connection given up reason=%r", error)
        except Exception:
            logger.exception("HTTP request failed")
        finally:
            writer.transport.abort()


async def _say_goodbye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """To close on a client that still sends would take the answer from it."""
    if writer.can_write_eof():
        writer.write_eof()
    while await reader.read(READ_BYTES):
        pass


async def _nothing() -> None:
    """The client went away without a request."""


class _Exchange:
    """One request and its answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pages: Mapping[str, Page]) -> None:
        import h11

        self._h11 = h11
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=LARGEST_HEAD_BYTES)
        self._reader = reader
        self._writer = writer
        self._pages = pages

    async def hear(self) -> Callable[[], Awaitable[None]]:
        """The request, and what is to be answered."""
        try:
            request = await self._request()
        except self._h11.RemoteProtocolError as error:
            return partial(self._refuse, error.error_status_hint, "this is not a request in HTTP")
        return _nothing if request is None else partial(self._answer, request)

    async def _request(self) -> "h11.Request | None":
        """None if the client went away without one."""
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
        if page is None:
            await self._refuse(404, f"there is {' and '.join(self._pages)}", request.method)
        elif request.method not in (b"GET", b"HEAD"):
            await self._refuse(405, "only GET and HEAD are answered", headers=[("Allow", "GET, HEAD")])
        else:
            await self._give(page, request.method)

    async def _give(self, page: Page, method: bytes) -> None:
        try:
            pieces = page.pieces()
            first = next(pieces)
        except Exception:
            logger.exception("a page could not be made")
            await self._refuse(500, "the page could not be made; the log says why", method)
            return
        self._begin(200, page.content_type, [])
        if method == b"GET":
            await self._send(first)
            for piece in pieces:
                await self._send(piece)
        await self._end()

    async def _refuse(
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
        """HTTP/1.1 gets the page in chunks, HTTP/1.0 until the connection closes: h11 knows which."""
        common = [("Content-Type", content_type), ("Connection", "close"), ("Cache-Control", "no-store")]
        self._write(self._h11.Response(status_code=status, headers=[*common, *headers]))

    async def _send(self, piece: bytes) -> None:
        if piece:
            self._write(self._h11.Data(data=piece))
            await self._writer.drain()
        await asyncio.sleep(0)  # others have their turn between two pieces

    async def _end(self) -> None:
        self._write(self._h11.EndOfMessage())
        await self._writer.drain()

    def _write(self, event: "h11.Response | h11.Data | h11.EndOfMessage") -> None:
        data = self._connection.send(event)
        if data:
            self._writer.write(data)
