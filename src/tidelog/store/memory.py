"""In-memory store, for tests and the simulator; several brokers share one state."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import Context
from enum import Enum, auto
from functools import partial
from typing import Any, NamedTuple, TypeVar

from tidelog.runtime.deferred import set_result_unless_done
from tidelog.store.base import BaseStore
from tidelog.store.interface import (
    NO_OWNER,
    Node,
    Operation,
    Result,
    SessionExpired,
    StoreUnavailable,
    Watch,
    WatchEvent,
)
from tidelog.store.tree import ROOT, ROOT_NODE, StoredNode, check_path, parent_of, perform, remove_owned

T = TypeVar("T")

SESSION_TIMEOUT_MS = 9000
UNREACHABLE_TIMEOUT_S = 0.1
"""Time until a request fails that cannot reach the store."""


class StepFaultKind(Enum):
    REQUEST_LOST = auto()
    RESPONSE_LOST = auto()  # but the write took effect
    SESSION_ENDS_BEFORE = auto()
    SESSION_ENDS_AFTER = auto()  # after a write that took effect


class StepFault(NamedTuple):
    kind: StepFaultKind
    writes_before: int
    away_s: float
    """How long the session cannot reach the store after a lost message."""


class Stall(NamedTuple):
    delay_s: float
    on_sent: Callable[[], None]


class MemoryStoreState:
    """State of a simulated ZooKeeper server; each MemoryStore is a session.

    A disconnected session can neither send requests nor receive events. It expires with its timeout, which its
    owner learns after it has reconnected.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, StoredNode] = {ROOT: ROOT_NODE}
        self.children: dict[str, set[str]] = {ROOT: set()}
        self.sessions: dict[int, MemoryStore] = {}
        self.latency_s = 0.0
        """Latency of requests, responses and events. A write may take effect although its response is lost."""
        self.draw_latency_s: Callable[[], float] | None = None
        """Random latency of one message; without it every message takes `latency_s`."""
        self.response_delay_s: Callable[[int], float] = lambda session_id: 0.0
        """Additional latency of responses and events to this session."""
        self._step_faults: dict[int, StepFault] = {}
        self._stalls: dict[int, Stall] = {}
        self._cut_off: dict[int, MemoryStore] = {}
        self._crashed: set[int] = set()
        self._expiries: dict[int, asyncio.TimerHandle] = {}
        self._last_transaction_id = 0
        self._last_session_id = NO_OWNER
        self.on_written: list[Callable[[int, Sequence[Operation]], None]] = []
        """Called for every successful write with the session and the operations."""
        self.on_lost: list[Callable[[], None]] = []
        """Called before the whole state is lost."""

    def message_latency_s(self) -> float:
        return self.latency_s if self.draw_latency_s is None else self.draw_latency_s()

    def break_step(self, session_id: int, kind: "StepFaultKind", writes_before: int, away_s: float) -> None:
        """Let a write of the session fail in this way, after `writes_before` successful ones."""
        self._step_faults[session_id] = StepFault(kind, writes_before, away_s)

    def next_step_fault(self, session_id: int) -> "StepFault | None":
        """The fault for the write that arrives now, if there is one."""
        fault = self._step_faults.get(session_id)
        if fault is None:
            return None
        if fault.writes_before > 0:
            self._step_faults[session_id] = fault._replace(writes_before=fault.writes_before - 1)
            return None
        return self._step_faults.pop(session_id)

    def forget_step_faults(self) -> None:
        self._step_faults.clear()
        self._stalls.clear()

    def stall_next_write(self, session_id: int, delay_s: float, on_sent: Callable[[], None]) -> None:
        """Delay the next write of this session, and the requests after it, by `delay_s`."""
        self._stalls[session_id] = Stall(delay_s, on_sent)

    def take_stall_s(self, session_id: int) -> float:
        """Delay of the write that is sent now, if one was ordered."""
        stall = self._stalls.pop(session_id, None)
        if stall is None:
            return 0.0
        stall.on_sent()
        return stall.delay_s

    def find(self, path: str) -> StoredNode | None:
        return self.nodes.get(path)

    def put(self, path: str, node: StoredNode) -> None:
        if path not in self.nodes:
            self.children[path] = set()
            self.children[parent_of(path)].add(path.rpartition("/")[2])
        self.nodes[path] = node

    def remove(self, path: str) -> None:
        del self.nodes[path], self.children[path]
        self.children[parent_of(path)].discard(path.rpartition("/")[2])

    def has_children(self, path: str) -> bool:
        return bool(self.children[path])

    def perform(self, operations: Sequence[Operation], session_id: int) -> list[Result]:
        transaction = _Transaction(self)
        outcome = perform(transaction, operations, session_id, self._last_transaction_id + 1)
        self._last_transaction_id += 1
        transaction.commit()
        for callback in self.on_written:
            callback(session_id, operations)
        self._fire(outcome.events)
        return outcome.results

    def open_session(self, store: "MemoryStore") -> int:
        self._last_session_id += 1
        self.sessions[self._last_session_id] = store
        return self._last_session_id

    def is_cut_off(self, session_id: int) -> bool:
        return session_id in self._cut_off

    def cut_off(self, session_id: int) -> None:
        """From now on the session cannot reach the store."""
        if session_id in self._cut_off or session_id not in self.sessions:
            return
        store = self._cut_off[session_id] = self.sessions[session_id]
        loop = asyncio.get_running_loop()
        self._expiries[session_id] = loop.call_later(
            store.session_timeout_s, self.expire, session_id, context=Context()
        )
        store.lease.renew(loop.time(), store.session_timeout_s)

    def lose_connection(self, session_id: int, away_s: float) -> None:
        """The session cannot reach the store for a while."""
        self.cut_off(session_id)
        asyncio.get_running_loop().call_later(away_s, self.reconnect, session_id, context=Context())

    def reconnect(self, session_id: int) -> None:
        """The session can reach the store again, and learns whether it is alive and what it missed."""
        if session_id in self._crashed:
            return
        store = self._cut_off.pop(session_id, None)
        if store is None:
            return
        if session_id not in self.sessions:
            store.session_ended()
            return
        self._expiries.pop(session_id).cancel()
        store.watches.compare({path: self.find(path) for path in store.watches.paths()})
        store.lease.hold()

    def crash(self, session_id: int, noticed_after_s: float = 0.0) -> None:
        """The owner of the session died. The store ends the session after `noticed_after_s`."""
        store = self.sessions[session_id]
        self._cut_off[session_id] = store
        self._crashed.add(session_id)
        store.lease.cancel()
        if session_id in self._expiries:
            self._expiries.pop(session_id).cancel()
        self._expiries[session_id] = asyncio.get_running_loop().call_later(
            noticed_after_s, self.expire, session_id, context=Context()
        )

    def close(self, session_id: int) -> None:
        """End the session. If it is cut off, the store does not learn of it, and the session ends with its timeout."""
        if self.is_cut_off(session_id):
            self._crashed.add(session_id)
        elif session_id in self.sessions:
            self.end_session(session_id)

    def end_session(self, session_id: int) -> None:
        del self.sessions[session_id]
        if session_id in self._expiries:
            self._expiries.pop(session_id).cancel()
        owned = [path for path, node in self.nodes.items() if node.owner == session_id]
        self._last_transaction_id += 1
        self._fire(remove_owned(self, owned))

    def expire(self, session_id: int) -> None:
        """Ends a session as if its process had hung or died."""
        store = self.sessions[session_id]
        self.end_session(session_id)
        if not self.is_cut_off(session_id):
            store.session_ended()

    def lose(self) -> None:
        """Replace the state by an empty one, without sessions, and with transaction ids from 1."""
        for callback in self.on_lost:
            callback()
        self.nodes, self.children = {ROOT: ROOT_NODE}, {ROOT: set()}
        self.forget_step_faults()
        for session_id in list(self.sessions):
            self.expire(session_id)
        self._last_transaction_id = 0

    def _fire(self, events: Iterable[WatchEvent]) -> None:
        for session_id, store in list(self.sessions.items()):
            if not self.is_cut_off(session_id):
                store.watches.fire(events)


class _Transaction:
    """Changes on top of the state, applied only if all operations succeed."""

    def __init__(self, state: MemoryStoreState) -> None:
        self._state = state
        self._changed: dict[str, StoredNode | None] = {}
        self._children: dict[str, set[str]] = {}

    def find(self, path: str) -> StoredNode | None:
        return self._changed[path] if path in self._changed else self._state.find(path)

    def put(self, path: str, node: StoredNode) -> None:
        if path != ROOT and self.find(path) is None:
            self._children_of(parent_of(path)).add(path)
        self._changed[path] = node

    def remove(self, path: str) -> None:
        self._children_of(parent_of(path)).discard(path)
        self._changed[path] = None

    def has_children(self, path: str) -> bool:
        return bool(self._children_of(path))

    def commit(self) -> None:
        for path, node in self._changed.items():
            if node is not None:
                self._state.put(path, node)
        for path in sorted(self._changed, key=len, reverse=True):
            if self._changed[path] is None and self._state.find(path) is not None:
                self._state.remove(path)

    def _children_of(self, path: str) -> set[str]:
        if path not in self._children:
            prefix = path.rstrip("/") + "/"
            self._children[path] = {prefix + name for name in self._state.children.get(path, ())}
        return self._children[path]


class MemoryStore(BaseStore):
    """One session with a shared state."""

    def __init__(self, state: MemoryStoreState | None = None, *, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        super().__init__(lambda: asyncio.get_running_loop().time())
        self.session_timeout_s = session_timeout_ms / 1000
        self._state = state if state is not None else MemoryStoreState()
        self._session_id = self._state.open_session(self)
        self._under_way: deque[Callable[[], None]] = deque()
        self._last_request_s = self._last_response_s = 0.0

    @property
    def session_id(self) -> int:
        return self._session_id

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        check_path(path)
        return await self._ask(lambda: self._seen_existing(path, self._state.find(path), watch))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        for path in paths:
            check_path(path)
        return await self._ask(lambda: self._seen_without_watch(paths))

    def _seen_without_watch(self, paths: Sequence[str]) -> list[Node | None]:
        nodes = map(self._state.nodes.get, paths)
        return [None if node is None else node.as_node() for node in nodes]

    async def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        check_path(path)
        return await self._ask(lambda: self._seen_with_data(path, self._state.find(path), watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        check_path(path)

        def read() -> list[str]:
            self._seen_with_children(path, self._state.find(path), watch)
            return sorted(self._state.children[path])

        return await self._ask(read)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return await self._ask(lambda: self._state.perform(operations, self._session_id), is_write=True)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.lease.cancel()
        self._state.close(self._session_id)

    async def _ask(self, operation: Callable[[], T], *, is_write: bool = False) -> T:
        """Requests take time: other sessions may write between a read and the write that follows it."""
        state, session_id = self._state, self._session_id
        await self._travel(state.take_stall_s(session_id) if is_write else 0.0)
        await self._check_connection()
        if is_write:
            fault = state.next_step_fault(session_id)
            if fault is not None:
                return await self._fail_step(fault, operation)
        if not self._has_latency:
            return operation()
        try:
            return operation()
        finally:
            await self._response()
            await self._check_connection()

    async def _fail_step(self, fault: StepFault, operation: Callable[[], T]) -> T:
        state, session_id = self._state, self._session_id
        match fault.kind:
            case StepFaultKind.REQUEST_LOST:
                state.lose_connection(session_id, fault.away_s)
            case StepFaultKind.RESPONSE_LOST:
                operation()
                state.lose_connection(session_id, fault.away_s)
            case StepFaultKind.SESSION_ENDS_BEFORE:
                state.expire(session_id)
            case StepFaultKind.SESSION_ENDS_AFTER:
                operation()
                state.expire(session_id)
        await self._check_connection()
        raise StoreUnavailable

    @property
    def _has_latency(self) -> bool:
        state = self._state
        if state.latency_s > 0 or state.draw_latency_s is not None or self._under_way:
            return True
        return state.response_delay_s(self._session_id) > 0

    def _travel(self, stall_s: float) -> Coroutine[Any, Any, None]:
        """Requests of one session arrive in the order in which they were sent."""
        now = asyncio.get_running_loop().time()
        self._last_request_s = max(self._last_request_s, now + self._state.message_latency_s() + stall_s)
        return asyncio.sleep(self._last_request_s - now)

    def _response(self) -> "asyncio.Future[None]":
        """Arrives after all watch events that were sent before it."""
        arrived = asyncio.get_running_loop().create_future()
        self._send(partial(set_result_unless_done, arrived, None))
        return arrived

    async def _check_connection(self) -> None:
        if self._state.is_cut_off(self._session_id):
            await asyncio.sleep(UNREACHABLE_TIMEOUT_S)
            raise StoreUnavailable
        if self._session_id not in self._state.sessions:
            raise SessionExpired

    def _deliver_soon(self, watch: Watch, event: WatchEvent) -> None:
        if self._has_latency:
            self._send(lambda: super(MemoryStore, self)._deliver_soon(watch, event))
        else:
            super()._deliver_soon(watch, event)

    def _send(self, arrive: Callable[[], None]) -> None:
        """Delivers in order: timers with the same time would fire in any order."""
        self._under_way.append(arrive)
        loop = asyncio.get_running_loop()
        latency_s = self._state.message_latency_s() + self._state.response_delay_s(self._session_id)
        self._last_response_s = max(self._last_response_s, loop.time() + latency_s)
        loop.call_at(self._last_response_s, self._arrive, context=Context())

    def _arrive(self) -> None:
        self._under_way.popleft()()
