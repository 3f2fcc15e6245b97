"""One client connection: requests start in the order in which they arrive, responses leave in the same order.

A request starts without waiting for the response to its predecessor. Five pipelined acks=all produces
are therefore appended, and replicated, together.
"""

import asyncio
import logging
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping
from functools import partial
from typing import Any

from tidelog.config.broker import BrokerSettings
from tidelog.config.connection_limits import parse_overrides_per_ip
from tidelog.protocol.errors import MalformedMessage, UnknownApi
from tidelog.protocol.structs import Response, Struct
from tidelog.quotas.client_quotas import Windows
from tidelog.quotas.connection_rates import ConnectionRates
from tidelog.runtime.broker_loop import call_at_end_of_turn
from tidelog.runtime.deferred import Deferred
from tidelog.runtime.disk import FileSlice
from tidelog.runtime.network import Channel, FramePart, HandshakeFailed
from tidelog.server.dispatch import Dispatcher, RequestContext, Route, UnsupportedRequest
from tidelog.server.login import CertificateName, Login
from tidelog.server.peer_error_log import PeerErrorLog
from tidelog.server.refused_batches import RefusedBatches
from tidelog.server.request_times import BOUNDS_S
from tidelog.server.session import Session

logger = logging.getLogger(__name__)

MAX_REQUESTS_IN_FLIGHT = 512
"""Pending requests of one connection above which reading pauses."""

MAX_FETCHES_IN_FLIGHT = 8
"""Waiting fetches of one connection above which reading pauses: each costs memory, and time at every append."""

MAX_BACKLOG_BYTES = 4 * 1024 * 1024
"""Unsent response bytes of one connection above which reading pauses."""

MAX_BACKLOG_MEMORY_BYTES = 256 * 1024
"""The same for response bytes in memory. Records are sent from their files, and do not count."""

MAX_UNREAD_BYTES = 64 * 1024 * 1024
"""Response bytes in memory of all connections. Above this, connections with unsent responses are not read, and those
whose client reads nothing for a while are closed."""

WAITING_PRODUCE_BYTES = 2048
"""Memory of a Produce that waits for replicas or the disk. It has appended its records and no longer needs its frame,
but tens of thousands on many connections took hundreds of megabytes."""

UNREAD_TIMEOUT_S = 5.0
TIMER_PRECISION_S = 0.001
PRODUCE, FETCH = 0, 1


class _Slot:
    """Position of one response in the order of requests."""

    __slots__ = ("began_s", "held_bytes", "is_ready", "outcome", "parts", "waits_since_s")

    began_s: float
    waits_since_s: float
    """When the request arrived, and when it began to wait. Only requests that wait have them."""

    def __init__(self, held_bytes: int) -> None:
        self.held_bytes = held_bytes  # memory of the waiting request, then of its response
        self.is_ready = False
        self.parts: list[FramePart] | None = None  # None when ready: the client expects no response
        self.outcome: Deferred[Any] | None = None


class HeldRequest:
    """A request that must wait for its predecessor before it starts."""

    __slots__ = ("_connection", "_done", "_predecessor")

    def __init__(
        self, connection: "Connection", predecessor: "asyncio.Future[None] | None", done: "asyncio.Future[None]"
    ) -> None:
        self._connection = connection
        self._predecessor = predecessor
        self._done = done

    async def wait_for_predecessor(self) -> None:
        if self._predecessor is not None:
            await asyncio.wait([self._predecessor])

    def release(self) -> None:
        self._connection.release(self._done)


class Connection:
    """Receives the frames of one channel."""

    def __init__(
        self, channel: Channel, dispatcher: Dispatcher, registry: "ConnectionRegistry", session: Session
    ) -> None:
        self.channel = channel
        self._dispatcher = dispatcher
        self._registry = registry
        self._monotonic = dispatcher.monotonic
        self.session = session
        self.login: Login | CertificateName | None = None
        """On a listener with SASL, until the peer has logged in; longer if its session expires."""
        self._pending: deque[_Slot] = deque()
        self._pending_bytes = 0
        self._waiting_fetches = 0
        self._running_tasks = 0
        self._reported_unread_bytes = 0
        self._is_paused = False
        self._muted_until = 0.0  # loop time
        self._in_wake_up = False
        self._flushes_soon = False
        self._last_held: asyncio.Future[None] | None = None
        self.is_held = False
        """A request could not start at once; those that must start in order queue behind it."""
        self.refused_batches = RefusedBatches()

    def hold(self) -> "HeldRequest":
        """Join the queue of held requests. Reading pauses until it is empty."""
        self.is_held = True
        predecessor = self._last_held
        done = self._last_held = asyncio.get_running_loop().create_future()
        self._pause_if_congested()
        return HeldRequest(self, predecessor, done)

    def release(self, done: "asyncio.Future[None]") -> None:
        """The held request of `done` has started: its successor may start."""
        if self._last_held is done:
            self._last_held, self.is_held = None, False
            self._resume_if_possible()
        if not done.done():
            done.set_result(None)

    @property
    def requests_in_flight(self) -> int:
        return len(self._pending)

    @property
    def is_privileged(self) -> bool:
        return self.channel.is_privileged

    def trust(self) -> None:
        """The peer has proved to be a broker of this cluster: client limits no longer apply to it."""
        self.channel.is_privileged = True

    @property
    def unread_bytes(self) -> int:
        """Response bytes in memory that the client has not read."""
        return self._reported_unread_bytes

    # ---- FrameReceiver

    def on_frame(self, frame: memoryview) -> None:
        self._in_wake_up = True
        monotonic = self._monotonic
        began_s = monotonic()
        try:
            if self.login is not None and not self.login.admits(frame):
                return
            route, context, outcome = self._dispatcher.start(frame, self)
            if isinstance(outcome, Deferred):
                if not outcome.has_value:
                    self._wait_for(outcome, route, context, len(frame), began_s)
                    return
                outcome = outcome.value
            parts = None if outcome is None else route.encode(outcome, context)
            if self._pending:
                self._queue_up(parts)
            elif parts is not None:
                send = self.channel.send  # an attribute, not a method: the call of a name is faster
                send(parts)
            times = route.follower_times if self.channel.is_privileged else route.times
            times.answered[bisect_left(BOUNDS_S, monotonic() - began_s)] += 1
        except (MalformedMessage, UnknownApi, UnsupportedRequest) as error:
            if self._should_log_error():
                logger.warning("connection closed: bad request peer=%s reason=%s", self.peer, error)
            self.channel.close(str(error))
        except Exception:
            if self._should_log_error():
                logger.exception("connection closed: the broker failed on a request peer=%s", self.peer)
            self.channel.close("the broker failed on a request")

    def on_frames_done(self) -> None:
        self._in_wake_up = False
        channel = self.channel
        flush = channel.flush
        flush()
        if self._pending or self.is_held or channel.backlog_bytes or self._reported_unread_bytes:
            self._report_unread_bytes()
            self._pause_if_congested()

    def on_drained(self) -> None:
        self._report_unread_bytes()
        self._resume_if_possible()

    def on_closed(self, reason: str) -> None:
        if isinstance(reason, HandshakeFailed) and self._should_log_error():
            logger.warning("connection closed peer=%s listener=%s reason=%s", self.peer, self.session.listener, reason)
        else:
            logger.debug("connection closed peer=%s reason=%s", self.peer, reason)
        for slot in self._pending:
            if slot.outcome is not None:
                slot.outcome.abandon()
        self._pending.clear()
        self._pending_bytes = 0
        self._report_unread_bytes()
        if self.login is not None:
            self.login.on_closed()
            self.login = None  # it refers to this connection
        self._registry.remove(self)

    @property
    def peer(self) -> str:
        return f"{self.channel.peer_host}:{self.channel.peer_port}"

    def _should_log_error(self) -> bool:
        return self._registry.peer_errors.should_log(self.channel.peer_host)

    # ---- responses

    def _queue_up(self, parts: list[FramePart] | None) -> None:
        """The response is ready, and waits for those of earlier requests."""
        self._make_ready(self._reserve(0), parts)
        self._pause_if_congested()

    def _wait_for(
        self, outcome: Deferred[Any], route: Route, context: RequestContext, frame_bytes: int, began_s: float
    ) -> None:
        slot = self._reserve(WAITING_PRODUCE_BYTES if route.api_key == PRODUCE else frame_bytes)
        slot.outcome = outcome
        slot.began_s, slot.waits_since_s = began_s, self._monotonic()
        if context.runs_as_task:
            self._running_tasks += route.api_key != PRODUCE
        else:
            self._waiting_fetches += route.api_key == FETCH
        outcome.listen(partial(self._on_response, slot, route, context), partial(self._on_failure, route))
        self._pause_if_congested()

    def _reserve(self, held_bytes: int) -> _Slot:
        slot = _Slot(held_bytes)
        self._pending.append(slot)
        self._pending_bytes += held_bytes
        return slot

    def _make_ready(self, slot: _Slot, parts: list[FramePart] | None) -> None:
        held_bytes = 0 if parts is None else sum(len(part) for part in parts if not isinstance(part, FileSlice))
        self._pending_bytes += held_bytes - slot.held_bytes
        slot.held_bytes = held_bytes
        slot.is_ready, slot.parts, slot.outcome = True, parts, None

    def _on_response(self, slot: _Slot, route: Route, context: RequestContext, response: Response | None) -> None:
        """Never raises: the caller completes the requests of other connections next."""
        try:
            if response is not None and context.runs_as_task and is_large(response):
                slot.outcome = encoded = route.encode_in_worker(response, context)
                encoded.listen(partial(self._answer, slot, route, context), partial(self._on_failure, route))
                return
            parts = None if response is None else route.encode(response, context)
        except Exception as error:  # noqa: BLE001 - logged by _on_failure
            self._on_failure(route, error)
            return
        self._answer(slot, route, context, parts)

    def _on_failure(self, route: Route, error: Exception) -> None:
        if isinstance(error, MalformedMessage):
            if self._should_log_error():
                logger.warning("connection closed: bad request peer=%s reason=%s", self.peer, error)
            self.channel.close(str(error))
            return
        if self._should_log_error():
            logger.error(
                "connection closed: the broker failed on a request api=%s peer=%s",
                route.name,
                self.peer,
                exc_info=error,
            )
        self.channel.close("the broker failed on a request")

    def _answer(self, slot: _Slot, route: Route, context: RequestContext, parts: list[FramePart] | None) -> None:
        if context.runs_as_task:
            self._running_tasks -= route.api_key != PRODUCE
        else:
            self._waiting_fetches -= route.api_key == FETCH
        times = route.follower_times if self.channel.is_privileged else route.times
        times.on_waited(slot.began_s, slot.waits_since_s, self._monotonic())
        pending = self._pending
        if pending and pending[0] is slot:  # the usual case: sent at once, without accounting
            pending.popleft()
            self._pending_bytes -= slot.held_bytes
            slot.outcome = None
            if parts is not None:
                self.channel.send(parts)
            if pending and pending[0].is_ready:
                self._send_ready()
        else:
            self._make_ready(slot, parts)
        if not self._in_wake_up:
            self._flush_with_others()
        self._report_unread_bytes()
        if self._is_paused:
            self._resume_if_possible()

    def _flush_with_others(self) -> None:
        """Flush at once if nothing is pending, else at the end of this loop turn: more responses may come in it."""
        if not self._pending:
            self.channel.flush()
        elif not self._flushes_soon:
            self._flushes_soon = True
            call_at_end_of_turn(self._flush)

    def _flush(self) -> None:
        self._flushes_soon = False
        self.channel.flush()
        self._report_unread_bytes()
        self._resume_if_possible()

    def _send_ready(self) -> None:
        while self._pending and self._pending[0].is_ready:
            slot = self._pending.popleft()
            self._pending_bytes -= slot.held_bytes
            if slot.parts is not None:
                self.channel.send(slot.parts)

    # ---- back-pressure

    def mute(self, seconds: float) -> None:
        """Read nothing for this long: the client exceeds a quota. The response has the throttle time."""
        loop = asyncio.get_running_loop()
        self._muted_until = max(self._muted_until, loop.time() + seconds)
        loop.call_at(self._muted_until, self._unmute)
        self._pause_if_congested()

    def _unmute(self) -> None:
        if self._muted_until and self._muted_until <= asyncio.get_running_loop().time() + TIMER_PRECISION_S:
            self._muted_until = 0.0
            self._resume_if_possible()

    def _report_unread_bytes(self) -> None:
        """Keep the sum over all connections up to date."""
        unread_bytes = self.channel.backlog_memory_bytes + self._pending_bytes
        if unread_bytes != self._reported_unread_bytes:
            self._registry.unread_bytes += unread_bytes - self._reported_unread_bytes
            self._reported_unread_bytes = unread_bytes

    def _is_congested(self) -> bool:
        if (
            self.is_held
            or self._muted_until
            or len(self._pending) >= MAX_REQUESTS_IN_FLIGHT
            or self.channel.backlog_bytes > MAX_BACKLOG_BYTES
        ):
            return True
        if self.channel.is_privileged:
            return False
        # A request that runs as a task holds memory that nobody counts: one at a time, as in Kafka. Produce is
        # exempt: transactional producers rely on several in flight.
        return (
            self._waiting_fetches >= MAX_FETCHES_IN_FLIGHT
            or self._running_tasks > 0
            or self.channel.backlog_memory_bytes + self._pending_bytes > self._registry.max_backlog_memory_bytes
        )

    def _pause_if_congested(self) -> None:
        if not self._is_paused and self._is_congested():
            self._is_paused = True
            self.channel.pause_reading()

    def _resume_if_possible(self) -> None:
        if self._is_paused and not self._is_congested():
            self._is_paused = False
            self.channel.resume_reading()


LARGE_RESPONSE_ELEMENTS = 1000


def is_large(response: Response) -> bool:
    """Whether encoding takes milliseconds, judged by the number of elements."""
    count = 0
    structs: list[Struct] = [response]
    while structs:
        struct = structs.pop()
        for field in struct.__fields__:
            value = getattr(struct, field.name)
            if isinstance(value, list):
                count += len(value)
                if count > LARGE_RESPONSE_ELEMENTS:
                    return True
                if value and isinstance(value[0], Struct):  # elements of one list are of one type
                    structs += value
    return False


class ConnectionRegistry:
    """All connections of a broker, with their limits."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.rates = ConnectionRates(Windows(settings.quota_window_num, settings.quota_window_size_seconds))
        self.reconfigure(settings)
        self._connections: dict[Connection, None] = {}
        """In order of arrival, which is also the order of closing."""
        self._per_host = Counter[str]()
        self._per_listener = Counter[str]()
        self.peer_errors = PeerErrorLog(logger)
        self.unread_bytes = 0
        """Response bytes in memory that clients have not read."""

    @property
    def max_backlog_memory_bytes(self) -> int:
        """Unsent response bytes in memory above which a connection is not read."""
        return MAX_BACKLOG_MEMORY_BYTES if self.unread_bytes < MAX_UNREAD_BYTES else 0

    def __len__(self) -> int:
        return len(self._connections)

    def reconfigure(self, settings: BrokerSettings) -> None:
        """New limits apply to new connections."""
        self._max_connections = settings.max_connections
        of_listeners = {each.listener_name: settings.for_listener(each.listener_name) for each in settings.endpoints}
        self._max_of_listeners = {
            name: each.max_connections
            for name, each in of_listeners.items()
            if each.max_connections != settings.max_connections
        }
        self._max_connections_per_ip = settings.max_connections_per_ip
        self._overrides_per_ip = parse_overrides_per_ip(settings.max_connections_per_ip_overrides)
        self.rates.reconfigure(
            settings.max_connection_creation_rate,
            {name: each.max_connection_creation_rate for name, each in of_listeners.items()},
        )

    def rejection(self, host: str, listener: str, *, is_only_for_brokers: bool = False) -> str | None:
        """Why a connection from this host is refused now; None if it is accepted.

        The limit of the whole broker does not keep other brokers out: clients could use it up (KIP-402).
        """
        limit = self._max_of_listeners.get(listener)
        if limit is not None and self._per_listener[listener] >= limit:
            return f"listener.name.{listener.lower()}.max.connections={limit} is reached"
        if len(self._connections) >= self._max_connections and not is_only_for_brokers:
            return f"max.connections={self._max_connections} is reached"
        limit = self._overrides_per_ip.get(host, self._max_connections_per_ip)
        if self._per_host[host] >= limit:
            return f"max.connections.per.ip={limit} is reached by {host}"
        return None

    def add(self, connection: Connection) -> None:
        self._connections[connection] = None
        self._per_host[connection.channel.peer_host] += 1
        self._per_listener[connection.session.listener] += 1

    def remove(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        self._connections.pop(connection, None)
        host = connection.channel.peer_host
        self._per_listener[connection.session.listener] -= 1
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    def count_by_listener(self) -> Mapping[str, int]:
        return +self._per_listener

    @property
    def has_unsent_answers(self) -> bool:
        return any(connection.channel.backlog_bytes for connection in self._connections)

    def close_idle(self, since: float) -> None:
        """Close connections without activity since then and without pending requests."""
        for connection in list(self._connections):
            if connection.channel.last_activity < since and not connection.requests_in_flight:
                connection.channel.close("idle for connections.max.idle.ms")

    def close_unread(self, now: float) -> None:
        """If unread responses hold too much memory, close connections whose client reads nothing, largest first."""
        if self.unread_bytes < MAX_UNREAD_BYTES:
            return
        since = now - UNREAD_TIMEOUT_S
        stuck = [each for each in self._connections if each.unread_bytes and each.channel.last_activity < since]
        stuck.sort(key=lambda connection: connection.unread_bytes, reverse=True)
        closed = 0
        for connection in stuck:
            if self.unread_bytes < MAX_UNREAD_BYTES // 2:
                break
            closed += 1
            connection.channel.close("client does not read its responses")
        if closed:
            logger.warning("connections closed: clients do not read their responses count=%d", closed)

    def close_all(self, reason: str) -> None:
        for connection in list(self._connections):
            connection.channel.flush()
            connection.channel.close(reason)
