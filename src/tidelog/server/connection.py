"""One client connection: requests are started in the order they arrive, answers leave in that order.

Starting does not wait for the answer to the request before. Five pipelined acks=all produces are
therefore appended, and replicated, together.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Mapping
from functools import partial
from typing import Any

from tidelog.config.broker import BrokerSettings
from tidelog.protocol.errors import MalformedMessage, UnknownApi
from tidelog.protocol.structs import Response, Struct
from tidelog.runtime.deferred import Deferred
from tidelog.runtime.disk import FileSlice
from tidelog.runtime.network import Channel, FramePart
from tidelog.server.dispatch import Call, Dispatcher, Route, UnsupportedRequest
from tidelog.server.outcome import Outcome
from tidelog.server.peer_error_log import Complaints

log = logging.getLogger(__name__)

MAX_REQUESTS_IN_FLIGHT = 512
"""Requests of one connection that may wait for their answer; then its reading pauses."""

MAX_FETCHES_IN_FLIGHT = 8
"""Fetches of one connection that may wait for records: each costs memory, and time when somebody writes."""

MAX_BACKLOG_BYTES = 4 * 1024 * 1024
"""Answers that a slow reader may leave untaken; then its requests are no longer read."""

MAX_BACKLOG_MEMORY_BYTES = 256 * 1024
"""The same for answers that are in memory, or wait there for their turn: records are sent from their files."""

MAX_UNREAD_BYTES = 64 * 1024 * 1024
"""Answers in memory over all connections. Above this, who has not taken its answers is not read at all, and closed if
it takes nothing for a while."""

UNREAD_PATIENCE_S = 5.0
PRODUCE, FETCH = 0, 1


class _Slot:
    """The place of one response in the order of the requests."""

    __slots__ = ("held_bytes", "is_ready", "outcome", "parts")

    def __init__(self, held_bytes: int) -> None:
        self.held_bytes = held_bytes  # memory of the request that waits, then of its response
        self.is_ready = False
        self.parts: list[FramePart] | None = None  # None when ready: the client wants no answer
        self.outcome: Deferred[Any] | None = None


class Held:
    """The place of one request in the line of those that wait to be begun."""

    __slots__ = ("_ahead", "_connection", "_done")

    def __init__(
        self, connection: "Connection", ahead: "asyncio.Future[None] | None", done: "asyncio.Future[None]"
    ) -> None:
        self._connection = connection
        self._ahead = ahead
        self._done = done

    async def wait_for_those_ahead(self) -> None:
        if self._ahead is not None:
            await asyncio.wait([self._ahead])

    def release(self) -> None:
        self._connection.release(self._done)


class Connection:
    """Receives the frames of one channel. Created for it, gone with it."""

    def __init__(self, channel: Channel, dispatcher: Dispatcher, registry: "ConnectionRegistry", listener: str) -> None:
        self.channel = channel
        self._dispatcher = dispatcher
        self._registry = registry
        self.listener = listener
        self._pending: deque[_Slot] = deque()
        self._pending_bytes = 0
        self._waiting_fetches = 0
        self._running_tasks = 0
        self._noted_bytes = 0
        self._is_paused = False
        self._in_wake_up = False
        self._flushes_soon = False
        self._last_held: asyncio.Future[None] | None = None
        self.is_held = False
        """Requests that must be begun in order wait for one that could not be begun at once."""

    def hold(self) -> "Held":
        """A place at the end of the line of those that wait; reading pauses meanwhile."""
        self.is_held = True
        ahead = self._last_held
        done = self._last_held = asyncio.get_running_loop().create_future()
        self._pause_if_congested()
        return Held(self, ahead, done)

    def release(self, done: "asyncio.Future[None]") -> None:
        """The request that `done` stands for has been begun: the one behind it may go on."""
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
        """The peer has shown that it is a broker of this cluster: from now on it waits for no client."""
        self.channel.is_privileged = True

    @property
    def unread_bytes(self) -> int:
        """Memory of answers that the client has not taken."""
        return self._noted_bytes

    # -- FrameReceiver

    def on_frame(self, frame: memoryview) -> None:
        self._in_wake_up = True
        try:
            route, call, outcome = self._dispatcher.start(frame, self)
            self._take_outcome(outcome, route, call, len(frame))
        except (MalformedMessage, UnknownApi, UnsupportedRequest) as error:
            if self._may_complain():
                log.warning("connection closed: bad request peer=%s reason=%s", self.peer, error)
            self.channel.close(str(error))
        except Exception:
            if self._may_complain():
                log.exception("connection closed: the broker failed on a request peer=%s", self.peer)
            self.channel.close("the broker failed on a request")

    def on_frames_done(self) -> None:
        self._in_wake_up = False
        self.channel.flush()
        self._note_unread()
        if self._pending or self.is_held or self.channel.backlog_bytes:
            self._pause_if_congested()

    def on_drained(self) -> None:
        self._note_unread()
        self._resume_if_possible()

    def on_closed(self, reason: str) -> None:
        log.debug("connection closed peer=%s reason=%s", self.peer, reason)
        for slot in self._pending:
            if slot.outcome is not None:
                slot.outcome.abandon()
        self._pending.clear()
        self._pending_bytes = 0
        self._note_unread()
        self._registry.remove(self)

    @property
    def peer(self) -> str:
        return f"{self.channel.peer_host}:{self.channel.peer_port}"

    def _may_complain(self) -> bool:
        return self._registry.complaints.may_tell(self.channel.peer_host)

    # -- answers

    def _take_outcome(self, outcome: Outcome, route: Route, call: Call, frame_bytes: int) -> None:
        if outcome is None or isinstance(outcome, Response):
            parts = None if outcome is None else route.encode(outcome, call)
            if self._pending:
                self._make_ready(self._reserve(0), parts)
                self._pause_if_congested()
            elif parts is not None:
                self.channel.send(parts)
            return
        # The records of a Produce are written when its answer waits.
        slot = self._reserve(0 if route.api_key == PRODUCE else frame_bytes)
        slot.outcome = outcome
        if call.runs_as_task:
            self._running_tasks += route.api_key != PRODUCE
        else:
            self._waiting_fetches += route.api_key == FETCH
        outcome.listen(partial(self._on_response, slot, route, call), partial(self._on_failure, route))
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

    def _on_response(self, slot: _Slot, route: Route, call: Call, response: Response | None) -> None:
        """Whoever gives the response goes on with those of others: nothing is raised here."""
        try:
            if response is not None and call.runs_as_task and is_large(response):
                slot.outcome = encoded = route.encode_in_worker(response, call)
                encoded.listen(partial(self._answer, slot, route, call), partial(self._on_failure, route))
                return
            parts = None if response is None else route.encode(response, call)
        except Exception as error:  # noqa: BLE001 - it is logged there
            self._on_failure(route, error)
            return
        self._answer(slot, route, call, parts)

    def _on_failure(self, route: Route, error: Exception) -> None:
        if isinstance(error, MalformedMessage):
            if self._may_complain():
                log.warning("connection closed: bad request peer=%s reason=%s", self.peer, error)
            self.channel.close(str(error))
            return
        if self._may_complain():
            log.error(
                "connection closed: the broker failed on a request api=%s peer=%s",
                route.name,
                self.peer,
                exc_info=error,
            )
        self.channel.close("the broker failed on a request")

    def _answer(self, slot: _Slot, route: Route, call: Call, parts: list[FramePart] | None) -> None:
        if call.runs_as_task:
            self._running_tasks -= route.api_key != PRODUCE
        else:
            self._waiting_fetches -= route.api_key == FETCH
        pending = self._pending
        if pending and pending[0] is slot:  # nearly always: nothing needs to be counted that leaves at once
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
        self._note_unread()
        if self._is_paused:
            self._resume_if_possible()

    def _flush_with_others(self) -> None:
        """While others are awaited, some of which may be given in this turn of the loop, too, at its end."""
        if not self._pending:
            self.channel.flush()
        elif not self._flushes_soon:
            self._flushes_soon = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushes_soon = False
        self.channel.flush()
        self._note_unread()
        self._resume_if_possible()

    def _send_ready(self) -> None:
        while self._pending and self._pending[0].is_ready:
            slot = self._pending.popleft()
            self._pending_bytes -= slot.held_bytes
            if slot.parts is not None:
                self.channel.send(slot.parts)

    # -- back-pressure

    def _note_unread(self) -> None:
        """Keeps the sum over all connections."""
        unread_bytes = self.channel.backlog_memory_bytes + self._pending_bytes
        if unread_bytes != self._noted_bytes:
            self._registry.unread_bytes += unread_bytes - self._noted_bytes
            self._noted_bytes = unread_bytes

    def _is_congested(self) -> bool:
        if (
            self.is_held
            or len(self._pending) >= MAX_REQUESTS_IN_FLIGHT
            or self.channel.backlog_bytes > MAX_BACKLOG_BYTES
        ):
            return True
        if self.channel.is_privileged:
            return False
        # What waits in a task is not counted when it goes on: one at a time, as in Kafka. Writers of transactions
        # rely on several under way.
        return (
            self._waiting_fetches >= MAX_FETCHES_IN_FLIGHT
            or self._running_tasks > 0
            or self.channel.backlog_memory_bytes + self._pending_bytes > self._registry.max_backlog_bytes
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
    """Whether encoding it takes milliseconds, judged by the number of its elements."""
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
                structs += [element for element in value if isinstance(element, Struct)]
    return False


class ConnectionRegistry:
    """All connections of a broker, with their limits."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.take_settings(settings)
        self._connections: dict[Connection, None] = {}
        """In the order in which they came, and are closed."""
        self._per_host: dict[str, int] = {}
        self.complaints = Complaints(log)
        self.unread_bytes = 0
        """Memory of answers that clients have not taken."""

    @property
    def max_backlog_bytes(self) -> int:
        """How much of its answers a client may leave untaken, and still be read."""
        return MAX_BACKLOG_MEMORY_BYTES if self.unread_bytes < MAX_UNREAD_BYTES else 0

    def __len__(self) -> int:
        return len(self._connections)

    def take_settings(self, settings: BrokerSettings) -> None:
        """New limits hold for connections to come."""
        self._max_connections = settings.max_connections
        self._max_connections_per_ip = settings.max_connections_per_ip

    def refusal(self, host: str) -> str | None:
        """Why a connection from this host cannot be taken now; None if it can."""
        if len(self._connections) >= self._max_connections:
            return f"max.connections={self._max_connections} are open"
        if self._per_host.get(host, 0) >= self._max_connections_per_ip:
            return f"max.connections.per.ip={self._max_connections_per_ip} are open from {host}"
        return None

    def add(self, connection: Connection) -> None:
        self._connections[connection] = None
        host = connection.channel.peer_host
        self._per_host[host] = self._per_host.get(host, 0) + 1

    def remove(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        self._connections.pop(connection, None)
        host = connection.channel.peer_host
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    def count_by_listener(self) -> Mapping[str, int]:
        return Counter(connection.listener for connection in self._connections)

    @property
    def has_unsent_answers(self) -> bool:
        return any(connection.channel.backlog_bytes for connection in self._connections)

    def close_idle(self, since: float) -> None:
        """Close what has been silent since then and waits for nothing."""
        for connection in list(self._connections):
            if connection.channel.last_activity < since and not connection.requests_in_flight:
                connection.channel.close("idle for connections.max.idle.ms")

    def close_unread(self, now: float) -> None:
        """While untaken answers hold too much memory: close those who take nothing, the largest first."""
        if self.unread_bytes < MAX_UNREAD_BYTES:
            return
        since = now - UNREAD_PATIENCE_S
        stuck = [each for each in self._connections if each.unread_bytes and each.channel.last_activity < since]
        stuck.sort(key=lambda connection: connection.unread_bytes, reverse=True)
        closed = 0
        for connection in stuck:
            if self.unread_bytes < MAX_UNREAD_BYTES // 2:
                break
            closed += 1
            connection.channel.close("took none of its answers while they held memory that others need")
        if closed:
            log.warning("connections closed: they do not read their answers count=%d", closed)

    def close_all(self, reason: str) -> None:
        for connection in list(self._connections):
            connection.channel.flush()
            connection.channel.close(reason)
