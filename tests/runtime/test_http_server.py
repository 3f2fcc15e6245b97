"""The HTTP server over real sockets: good requests, bad ones, slow readers."""

import asyncio
import base64
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.certificates import Authority
from tidelog.config.ssl import SslSettings
from tidelog.runtime import http_server
from tidelog.runtime.http_server import MAX_CONNECTIONS, MAX_HEAD_BYTES, RESPONSE_TIMEOUT_S, HttpServer, Page, _Phase
from tidelog.runtime.tls_context import server_context

PIECE = b"x" * 1000 + b"\n"


class Pieces:
    content_type = "text/plain; version=7"

    def __init__(self, make: Callable[[], Iterator[bytes]]) -> None:
        self.pieces = make
        self.made = 0

    @classmethod
    def of(cls, *pieces: bytes) -> "Pieces":
        return cls(lambda: iter(pieces))


def endless() -> Pieces:
    def make() -> Iterator[bytes]:
        while True:
            page.made += 1
            yield PIECE

    page = Pieces(make)
    return page


def failing_at(position: int) -> Pieces:
    def make() -> Iterator[bytes]:
        for _ in range(position):
            yield PIECE
        raise RuntimeError("secret of the house")

    return Pieces(make)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> bytes:
        async with asyncio.timeout(60):
            response = await self.reader.read(-1)
        self.writer.close()
        return response


class Served:
    def __init__(self, server: HttpServer) -> None:
        self.server = server

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.server.port))

    async def send(self, request: bytes) -> Client:
        client = await self.connect()
        client.writer.write(request)
        return client

    async def get(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body."""
        head, _, body = (await (await self.send(request)).answer()).partition(b"\r\n\r\n")
        status, *headers = head.decode().split("\r\n")
        return int(status.split()[1]), dict(line.lower().split(": ", 1) for line in headers), body


def is_receiving(served: Served) -> bool:
    """Whether a request is not complete."""
    return any(slot.phase is _Phase.RECEIVING for slot in served.server._slots.values())


@asynccontextmanager
async def serving(pages: Mapping[str, Page]) -> AsyncIterator[Served]:
    server = await HttpServer.listen("127.0.0.1", 0)
    await server.start(pages)
    yield Served(server)
    await server.close()


def serve(scenario: Callable[[Served], Awaitable[None]], page: Page | None = None) -> None:
    async def main() -> None:
        async with serving({"/page": page or Pieces.of(b"one\n", b"two\n")}) as served:
            await scenario(served)

    asyncio.run(main())


def test_a_page_comes_in_chunks_and_ends_the_connection() -> None:
    async def scenario(served: Served) -> None:
        status, headers, body = await served.get(b"GET /page?x=1 HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (status, body) == (200, b"4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n")
        assert headers["content-type"] == "text/plain; version=7"
        assert headers["connection"] == "close"

    serve(scenario)


def test_an_old_client_gets_it_as_it_is() -> None:
    async def scenario(served: Served) -> None:
        status, headers, body = await served.get(b"GET /page HTTP/1.0\r\n\r\n")
        assert (status, body) == (200, b"one\ntwo\n")
        assert "transfer-encoding" not in headers

    serve(scenario)


def test_a_request_may_come_byte_by_byte() -> None:
    async def scenario(served: Served) -> None:
        client = await served.connect()
        for byte in b"GET /page HTTP/1.0\r\n\r\n":
            client.writer.write(bytes([byte]))
            await client.writer.drain()
        assert (await client.answer()).endswith(b"one\ntwo\n")

    serve(scenario)


def test_head_gets_no_body() -> None:
    async def scenario(served: Served) -> None:
        assert (await served.get(b"HEAD /page HTTP/1.1\r\nHost: h\r\n\r\n"))[::2] == (200, b"")
        assert (await served.get(b"HEAD /other HTTP/1.1\r\nHost: h\r\n\r\n"))[::2] == (404, b"")

    serve(scenario)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /other HTTP/1.1\r\nHost: h\r\n\r\n", 404),
        (b"GET //page HTTP/1.1\r\nHost: h\r\n\r\n", 404),
        (b"POST /page HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"DELETE /page HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        (b"GET /page HTTP/1.1\r\n\r\n", 400),
        (b"GET /page\r\n\r\n", 400),
        (b"\x00\x00\x00\x10\x00\x12\x00\x00\x00\x00\x00\x01\r\n\r\n", 400),
        (b"GET /page HTTP/1.1\r\nHost: h\r\nX: " + b"x" * MAX_HEAD_BYTES, 431),
        (b"GET /page HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400),
    ],
)
def test_bad_requests_are_refused_in_one_line(
    request_bytes: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(served: Served) -> None:
        found, headers, body = await served.get(request_bytes)
        assert found == status
        assert body.startswith(f"{status}: ".encode())
        assert body.count(b"\n") == 1
        assert int(headers["content-length"]) == len(body)

    with caplog.at_level(logging.INFO):
        serve(scenario)
    assert not caplog.records


def test_a_client_that_sends_a_lot_still_gets_its_refusal() -> None:
    async def scenario(served: Served) -> None:
        client = await served.send(b"POST /page HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n")
        client.writer.write(b"x" * 1_000_000)
        assert (await client.answer()).startswith(b"HTTP/1.1 405 ")

    serve(scenario)


def test_a_client_that_goes_away_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(served: Served) -> None:
        for sent in (b"", b"GET /pa", b"GET /page HTTP/1.1\r\nHost: h\r\n\r\n"):
            client = await served.send(sent)
            client.writer.close()
        assert (await served.get(b"GET /page HTTP/1.0\r\n\r\n"))[0] == 200

    with caplog.at_level(logging.INFO):
        serve(scenario)
    assert not caplog.records


def test_a_page_that_fails_is_reported_in_the_log_and_not_to_the_client(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(served: Served) -> None:
        status, _, body = await served.get(b"GET /page HTTP/1.1\r\nHost: h\r\n\r\n")
        assert status == 500
        assert b"secret" not in body

    serve(scenario, failing_at(0))
    assert "secret of the house" in caplog.text


def test_a_page_that_fails_half_way_is_seen_to_be_cut(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(served: Served) -> None:
        client = await served.send(b"GET /page HTTP/1.1\r\nHost: h\r\n\r\n")
        try:
            response = await client.answer()
        except ConnectionResetError:
            return
        assert not response.endswith(b"0\r\n\r\n")

    serve(scenario, failing_at(2))
    assert "secret of the house" in caplog.text


def test_a_slow_reader_holds_a_few_pieces_only() -> None:
    page = endless()

    async def scenario(served: Served) -> None:
        client = await served.send(b"GET /page HTTP/1.1\r\nHost: h\r\n\r\n")
        made = -1
        while page.made != made:
            made = page.made
            await asyncio.sleep(0.1)
        assert page.made * len(PIECE) < 20_000_000, "what the sockets and the two buffers hold"
        client.writer.transport.abort()

    serve(scenario, page)


def test_who_asks_nothing_or_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_TIMEOUT_S", 0.05)
    monkeypatch.setattr(http_server, "RESPONSE_TIMEOUT_S", 0.05)

    async def scenario(served: Served) -> None:
        silent = await served.connect()
        assert await silent.answer() == b""
        deaf = await served.send(b"GET /page HTTP/1.1\r\nHost: h\r\n\r\n")
        while served.server._slots:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        deaf.writer.transport.abort()

    serve(scenario, endless())


def test_half_sent_requests_shut_nobody_out() -> None:
    async def scenario(served: Served) -> None:
        halves = [await served.send(b"GET /page HTTP/1.1\r\nHost: ") for _ in range(MAX_CONNECTIONS)]
        while len(served.server._slots) < MAX_CONNECTIONS:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (await served.get(b"GET /page HTTP/1.0\r\n\r\n"))[0] == 200
        assert await halves[0].answer() == b"", "the oldest gave way"
        for half in halves:
            half.writer.transport.abort()

    serve(scenario)


def test_clients_that_take_nothing_shut_nobody_out() -> None:
    pages = [endless() for _ in range(MAX_CONNECTIONS)]

    async def scenario(served: Served) -> None:
        deaf = [await served.send(b"GET /page HTTP/1.0\r\n\r\n") for _ in range(MAX_CONNECTIONS)]
        while is_receiving(served) or len(served.server._slots) < MAX_CONNECTIONS:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (await served.get(b"GET /other HTTP/1.0\r\n\r\n"))[0] == 404
        for client in deaf:
            client.writer.transport.abort()

    serve(scenario, Pieces(lambda: pages.pop().pieces()))


def test_clients_that_were_answered_and_stay_shut_nobody_out() -> None:
    async def scenario(served: Served) -> None:
        staying = [await served.send(b"GET /page HTTP/1.0\r\n\r\n") for _ in range(MAX_CONNECTIONS)]
        for client in staying:
            await client.reader.read(-1)
        half = await served.send(b"GET /page HTTP/1.0\r\n")
        while not is_receiving(served):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        more = [await served.send(b"GET /page HTTP/1.0\r\n\r\n") for _ in range(MAX_CONNECTIONS)]
        for client in more:
            await client.reader.read(-1)
        half.writer.write(b"\r\n")
        assert (await half.answer()).endswith(b"one\ntwo\n"), (
            "a client that asks is worth more than one that was answered"
        )
        for client in staying + more:
            client.writer.transport.abort()

    serve(scenario)


def test_a_burst_of_connections_shuts_out_nobody_who_has_asked() -> None:
    """Its request is there before it is accepted, and so are the connections behind it."""

    async def scenario(served: Served) -> None:
        loop, address = asyncio.get_running_loop(), ("127.0.0.1", served.server.port)
        sockets = [
            socket.create_connection(address) for _ in range(4 * MAX_CONNECTIONS)
        ]  # nobody is accepted meanwhile
        asking = sockets[2]
        asking.sendall(b"GET /page HTTP/1.0\r\n\r\n")
        asking.setblocking(False)
        answer = b""
        while piece := await loop.sock_recv(asking, 1000):
            answer += piece
        assert answer.endswith(b"one\ntwo\n")
        for each in sockets:
            each.close()

    serve(scenario)


def test_the_host_with_the_most_connections_gives_way() -> None:
    async def scenario(served: Served) -> None:
        loop = asyncio.get_running_loop()
        slow = socket.create_connection(("127.0.0.1", served.server.port), source_address=("127.0.0.2", 0))
        while not is_receiving(served):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        halves = [await served.send(b"GET /page HTTP/1.0\r\n") for _ in range(2 * MAX_CONNECTIONS)]
        for half in halves[: MAX_CONNECTIONS + 1]:
            with suppress(ConnectionResetError):
                assert await half.answer() == b"", "the oldest gave way"
        slow.sendall(b"GET /page HTTP/1.0\r\n\r\n")
        slow.setblocking(False)
        assert (await loop.sock_recv(slow, 1000)).startswith(b"HTTP/1.1 200")
        slow.close()
        for half in halves:
            half.writer.transport.abort()

    serve(scenario)


def test_handshakes_that_nobody_completes_shut_nobody_out(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).sign("broker")
    settings = SslSettings(ssl_keystore_location=str(certificate.location))

    async def main() -> None:
        server = await HttpServer.listen("127.0.0.1", 0, tls=server_context(settings))
        await server.start({"/page": Pieces.of(b"one\n")})
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2 * MAX_CONNECTIONS)]
        trusting = ssl.create_default_context(cafile=str(certificate.authority))
        reader, writer = await asyncio.open_connection("localhost", server.port, ssl=trusting)
        assert len(server._slots) <= MAX_CONNECTIONS
        writer.write(b"GET /page HTTP/1.0\r\n\r\n")
        assert (await reader.read()).endswith(b"one\n")
        writer.close()
        assert await silent[0][0].read() == b"", "the oldest gave way"
        for _, other in silent:
            other.transport.abort()
        await server.close()

    asyncio.run(main())


def test_a_connection_that_gives_way_at_once_is_closed() -> None:
    async def scenario(served: Served) -> None:
        crowd = await asyncio.gather(*(served.connect() for _ in range(3 * MAX_CONNECTIONS)))
        while len(served.server._slots) < MAX_CONNECTIONS:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for client in crowd[:MAX_CONNECTIONS]:
            with suppress(ConnectionResetError):
                assert await client.answer() == b"", "not left open without anybody who serves it"
        for client in crowd:
            client.writer.transport.abort()

    serve(scenario)


@pytest.mark.parametrize("turns", [3, 4, 5, 6])
def test_a_connection_that_has_just_come_is_closed_with_the_server(turns: int) -> None:
    """However far it has come: accepted, or with a task that has not begun."""

    async def scenario() -> None:
        server = await HttpServer.listen("127.0.0.1", 0)
        await server.start({})
        with socket.socket() as client:
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", server.port))
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.close()
            with suppress(ConnectionResetError):
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""

    asyncio.run(scenario())


def test_nobody_is_answered_before_the_start_and_a_taken_address_is_an_error() -> None:
    async def main() -> None:
        server = await HttpServer.listen("127.0.0.1", 0)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)
        await server.start({})
        with pytest.raises(OSError, match="Address already in use"):
            await HttpServer.listen("127.0.0.1", server.port)
        await server.close()

    asyncio.run(main())


def test_a_page_with_a_password() -> None:
    async def main() -> None:
        server = await HttpServer.listen("127.0.0.1", 0, basic_auth="scraper:s:esame")
        await server.start({"/page": Pieces.of(b"one\n")})
        served = Served(server)
        statuses = []
        for given in (None, "scraper:wrong", "scraper:s:esame"):
            encoded = base64.b64encode((given or "").encode()).decode()
            header = "" if given is None else f"Authorization: Basic {encoded}\r\n"
            status, headers, body = await served.get(f"GET /page HTTP/1.0\r\n{header}\r\n".encode())
            statuses.append(status)
            assert ("www-authenticate" in headers) == (status == 401)
            assert (body == b"one\n") == (status == 200)
        assert statuses == [401, 401, 200]
        await server.close()

    asyncio.run(main())


def test_a_page_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.sign("broker")
    settings = SslSettings(ssl_keystore_location=str(certificate.location))

    async def main() -> None:
        server = await HttpServer.listen("127.0.0.1", 0, tls=server_context(settings))
        await server.start({"/page": Pieces.of(b"one\n")})
        trusting = ssl.create_default_context(cafile=str(certificate.authority))
        reader, writer = await asyncio.open_connection("localhost", server.port, ssl=trusting)
        writer.write(b"GET /page HTTP/1.0\r\n\r\n")
        async with asyncio.timeout(RESPONSE_TIMEOUT_S / 2):  # it does not wait until the response times out
            assert (await reader.read()).endswith(b"one\n")
        writer.close()
        await server.close()

    asyncio.run(main())
