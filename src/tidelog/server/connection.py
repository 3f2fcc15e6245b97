"""One client connection: requests are started in the order they arrive, answers leave in that order.

Starting does not wait for the answer to the request before. Five pipelined acks=all produces are
therefore appended, and replicated, together.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any

from tidelog.config.broker import BrokerSettings
from tidelog.protocol.errors import MalformedMessage, UnknownApi
from tidelog.protocol.structs import Response
from tidelog.runtime.network import Channel, FramePart
from tidelog.server.complaints import Complaints
from tidelog.server.dispatch import Call, Dispatcher, Route, UnsupportedRequest
from tidelog.server.outcome import Deferred, Outcome

log = logging.getLogger(__name__)

MAX_REQUESTS_IN_FLIGHT = 512
"""Requests of one connection that may wait for their answer; then its reading pauses."""

MAX_BACKLOG_BYTES = 4 * 1024 * 1024
"""Answers that a slow reader may leave untaken; then its requests are no longer read."""


class _PendingAnswer:
    """The place of one answer in the order."""

    __slots__ = ("cancel", "is_ready", "parts")

    def __init__(self) -> None:
        self.is_ready = False
        self.parts: list[FramePart] | None = None  # None when ready: the client wants no answer
        self.cancel: Callable[[], object] | None = None


class Connection:
    """Receives the frames of one channel. Created for it, gone with it."""

    def __init__(self, channel: Channel, dispatcher: Dispatcher, registry: "ConnectionRegistry", listener: str) -> None:
        self.channel = channel
        self._dispatcher = dispatcher
        self._registry = registry
        self.listener = listener
        self._pending: deque[_PendingAnswer] = deque()
        self._is_paused = False
        self._in_wake_up = False
        self._flushes_soon = False

    @property
    def requests_in_flight(self) -> int:
        return len(self._pending)

    # -- FrameReceiver

    def on_frame(self, frame: memoryview) -> None:
        self._in_wake_up = True
        try:
            route, call, outcome = self._dispatcher.start(frame, self)
            self._take_outcome(outcome, route, call)
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
        self._pause_if_congested()

    def on_drained(self) -> None:
        self._resume_if_possible()

    def on_closed(self, reason: str) -> None:
        log.debug("connection closed peer=%s reason=%s", self.peer, reason)
        for pending in self._pending:
            if pending.cancel is not None:
                pending.cancel()
        self._pending.clear()
        self._registry.remove(self)

    @property
    def peer(self) -> str:
        return f"{self.channel.peer_host}:{self.channel.peer_port}"

    def _may_complain(self) -> bool:
        return self._registry.complaints.may_tell(self.channel.peer_host)

    # -- answers

    def _take_outcome(self, outcome: Outcome, route: Route, call: Call) -> None:
        if outcome is None or isinstance(outcome, Response):
            parts = None if outcome is None else route.encode(outcome, call)
            if self._pending:
                pending = self._reserve()
                pending.is_ready, pending.parts = True, parts
            elif parts is not None:
                self.channel.send(parts)
            return
        pending = self._reserve()
        if isinstance(outcome, Deferred):
            pending.cancel = outcome.abandon
            outcome.listen(lambda response: self._answer(pending, route, call, response))
        else:
            task = asyncio.get_running_loop().create_task(self._await_outcome(pending, route, call, outcome))
            pending.cancel = partial(_give_up, task, outcome)

    def _reserve(self) -> _PendingAnswer:
        pending = _PendingAnswer()
        self._pending.append(pending)
        self._pause_if_congested()
        return pending

    async def _await_outcome(
        self,
        pending: _PendingAnswer,
        route: Route,
        call: Call,
        outcome: Coroutine[Any, Any, Response | None],
    ) -> None:
        try:
            response = await outcome
        except Exception:
            if self._may_complain():
                log.exception("connection closed: the broker failed on a request api=%s peer=%s", route.name, self.peer)
            self.channel.close("the broker failed on a request")
            return
        self._answer(pending, route, call, response)

    def _answer(self, pending: _PendingAnswer, route: Route, call: Call, response: Response | None) -> None:
        try:
            pending.parts = None if response is None else route.encode(response, call)
        except Exception:
            # Whoever gives the answer goes on with those of others: here somebody would wait for ever.
            if self._may_complain():
                log.exception("connection closed: an answer cannot be sent api=%s peer=%s", route.name, self.peer)
            self.channel.close("the broker failed on a request")
            return
        pending.is_ready = True
        pending.cancel = None
        self._send_ready()
        if not self._in_wake_up:
            self._flush_with_others()
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

    def _send_ready(self) -> None:
        while self._pending and self._pending[0].is_ready:
            parts = self._pending.popleft().parts
            if parts is not None:
                self.channel.send(parts)

    # -- back-pressure

    def _is_congested(self) -> bool:
        return len(self._pending) >= MAX_REQUESTS_IN_FLIGHT or self.channel.backlog_bytes > MAX_BACKLOG_BYTES

    def _pause_if_congested(self) -> None:
        if not self._is_paused and self._is_congested():
            self._is_paused = True
            self.channel.pause_reading()

    def _resume_if_possible(self) -> None:
        if self._is_paused and not self._is_congested():
            self._is_paused = False
            self.channel.resume_reading()


def _give_up(task: asyncio.Task[None], outcome: Coroutine[Any, Any, Response | None]) -> None:
    task.cancel()
    if getcoroutinestate(outcome) == CORO_CREATED:
        outcome.close()  # the task will not come to it


class ConnectionRegistry:
    """All connections of a broker, with their limits."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.take_settings(settings)
        self._connections: dict[Connection, None] = {}
        """In the order in which they came, and are closed."""
        self._per_host: dict[str, int] = {}
        self.complaints = Complaints(log)

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

    def close_all(self, reason: str) -> None:
        for connection in list(self._connections):
            connection.channel.flush()
            connection.channel.close(reason)
