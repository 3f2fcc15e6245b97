"""One ZooKeeper session through kazoo, whose thread talks to the server.

Responses, watch events and connection changes reach the event loop in the order in which kazoo read them: a watch event
never overtakes the response to the request that set the watch.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState, WatchedEvent

from tidelog.store.kazoo_login import KazooLogin
from tidelog.store.kazoo_multi_read import MultiRead
from tidelog.store.zookeeper_login import LoginRefused

T = TypeVar("T")

RECONNECT_POLICY = {"max_tries": -1, "delay": 0.02, "backoff": 2, "max_delay": 0.5, "max_jitter": 0.4}
HANDSHAKE_TIMEOUT_PART = 1 / 6
"""Share of the session timeout that a server has to answer a new connection. A server that is starting may never
answer, and kazoo would wait until the session has ended."""
MIN_HANDSHAKE_S = 0.5
READ_TIMEOUT_PART = 2 / 3
"""Share of the negotiated session timeout that kazoo uses as its read timeout."""

kazoo_logger = logging.getLogger(f"{__name__}.kazoo")
kazoo_logger.setLevel(logging.ERROR)  # kazoo warns at every connection attempt


class SessionOwner(Protocol):
    """Called on the event loop."""

    def on_connected(self, session_id: int, timeout_s: float) -> None: ...

    def on_disconnected(self) -> None: ...

    def on_expired(self) -> None: ...

    def on_login_refused(self, reason: str) -> None:
        """`on_expired` follows."""
        ...

    def on_watch_event(self, event: WatchedEvent) -> None: ...


class KazooSession:
    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        owner: SessionOwner,
        tls: Callable[[], ssl.SSLContext] | None = None,
        login: KazooLogin | None = None,
    ) -> None:
        """`tls` makes the context of each connection: certificates may be exchanged meanwhile."""
        self._owner = owner
        self._login = login
        self._queue = _LoopQueue(asyncio.get_running_loop())
        self._handler = _LoopHandler(self._queue, tls)
        self.client = KazooClient(
            hosts=hosts,
            timeout=session_timeout_ms / 1000,
            handler=self._handler,
            connection_retry=RECONNECT_POLICY,
            logger=kazoo_logger,
        )
        self.client.add_listener(self._on_state)
        # kazoo does not expose the session timeout granted by the server, and opens a new session when one has expired.
        connection = self.client._connection
        self._kazoo_connect, self._kazoo_invoke = connection._connect, connection._invoke
        connection._connect, connection._invoke = self._connect, self._invoke
        self._handshake_s = max(MIN_HANDSHAKE_S, session_timeout_ms / 1000 * HANDSHAKE_TIMEOUT_PART)
        self._is_over = False

    def start(self) -> None:
        self.client.start_async()

    def stop(self) -> None:
        """Ends the session and waits for kazoo's thread; must not run on the event loop."""
        # If no server can be reached, the session ends with its timeout.
        with suppress(Exception):
            self.client.stop()
        with suppress(Exception):
            self.client.close()

    def ask(self, request: Callable[[], Any], on_response: Callable[[Any], T]) -> asyncio.Future[T]:
        """The result of `on_response`, which runs before any later event is delivered; or kazoo's exception."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def settle(result: Any) -> None:
            if future.done():
                return
            if result.exception is not None:
                future.set_exception(result.exception)
                return
            try:
                future.set_result(on_response(result.value))
            except Exception as error:  # noqa: BLE001 - the waiting caller gets it
                future.set_exception(error)

        with self._handler.linking(settle):
            request()
        return future

    def ask_for_many(self, paths: Sequence[str], on_response: Callable[[Any], T]) -> asyncio.Future[T]:
        def request() -> Any:
            result = self.client.handler.async_result()
            self.client._call(MultiRead(paths), result)
            return result

        return self.ask(request, on_response)

    def request_data(self, path: str, *, has_watch: bool) -> Any:
        return self.client.get_async(path, watch=self.on_watch if has_watch else None)

    def request_stat(self, path: str, *, has_watch: bool) -> Any:
        return self.client.exists_async(path, watch=self.on_watch if has_watch else None)

    def request_children(self, path: str, *, has_watch: bool) -> Any:
        return self.client.get_children_async(path, watch=self.on_watch if has_watch else None, include_data=True)

    def on_watch(self, event: WatchedEvent) -> None:
        """The only watch function, so that kazoo keeps one per node."""
        self._owner.on_watch_event(event)

    # The methods below run in kazoo's thread.

    def _connect(self, host: str, address: str, port: int) -> tuple[float, float]:
        if self._is_over:
            raise ConnectionDropped("the session has expired")
        read_timeout_ms, connect_timeout_ms = self._kazoo_connect(host, address, port)
        self._log_in()
        timeout_s = read_timeout_ms / READ_TIMEOUT_PART / 1000
        session_id = self.client._session_id
        self._queue.put(lambda: self._owner.on_connected(session_id, timeout_s))
        return read_timeout_ms, connect_timeout_ms

    def _log_in(self) -> None:
        if self._login is None:
            return
        try:
            self._login.log_in(self.client._connection, self._handshake_s)
        except LoginRefused as refused:
            reason = f"login of {self._login.user} failed: {refused}"
            self._queue.put(lambda: self._owner.on_login_refused(reason))
            raise AuthFailedError(reason) from refused

    def _invoke(self, timeout_s: float, *request: Any) -> Any:
        return self._kazoo_invoke(min(timeout_s, self._handshake_s), *request)

    def _on_state(self, state: str) -> None:
        if state == KazooState.SUSPENDED:
            self._queue.put(self._owner.on_disconnected)
        elif state == KazooState.LOST:
            self._is_over = True
            self._queue.put(self._owner.on_expired)


class _LoopQueue:
    """Passes work to the event loop that kazoo would give to its worker threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def put(self, work: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing waits for it
            self._loop.call_soon_threadsafe(work)


class _LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler without worker threads."""

    def __init__(self, queue: _LoopQueue, tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        super().__init__()
        self._tls = tls
        self.callback_queue = self.completion_queue = queue
        self._running = True
        self._link: Callable[[Any], None] | None = None

    @contextmanager
    def linking(self, callback: Callable[[Any], None]) -> Iterator[None]:
        """Registers `callback` before the request within the block is sent.

        Registered afterwards, it could run later than a watch event that kazoo's thread has read after the answer.
        """
        self._link = callback
        try:
            yield
        finally:
            self._link = None

    def async_result(self) -> Any:
        result = super().async_result()
        link, self._link = self._link, None
        if link is not None:
            result.rawlink(link)
        return result

    def create_connection(self, *arguments: Any, hostname: str | None = None, **options: Any) -> Any:
        """With our own TLS context instead of kazoo's: PKCS#12, versions and ciphers, names of hosts."""
        connection = super().create_connection(*arguments, hostname=hostname, **options)
        if self._tls is None:
            return connection
        try:
            return self._tls().wrap_socket(connection, server_hostname=hostname)
        except BaseException:
            connection.close()
            raise

    def start(self) -> None:
        return None

    def stop(self) -> None:
        return None
