"""The store in memory: for tests and the simulator, where several brokers share one state."""

import asyncio
from collections.abc import Iterable, Sequence

from tidelog.store.base import BaseStore
from tidelog.store.interface import NO_OWNER, Node, Operation, Result, SessionExpired, Watch, WatchEvent
from tidelog.store.tree import ROOT, ROOT_NODE, StoredNode, check_path, parent_of, perform, remove_owned


class MemoryStoreState:
    """What a ZooKeeper server would hold; every MemoryStore of it is a session."""

    def __init__(self) -> None:
        self.nodes: dict[str, StoredNode] = {ROOT: ROOT_NODE}
        self.children: dict[str, set[str]] = {ROOT: set()}
        self.sessions: dict[int, MemoryStore] = {}
        self._last_transaction_id = 0
        self._last_session_id = NO_OWNER

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
        self._fire(outcome.events)
        return outcome.results

    def open_session(self, store: "MemoryStore") -> int:
        self._last_session_id += 1
        self.sessions[self._last_session_id] = store
        return self._last_session_id

    def end_session(self, session_id: int) -> None:
        del self.sessions[session_id]
        owned = [path for path, node in self.nodes.items() if node.owner == session_id]
        self._last_transaction_id += 1
        self._fire(remove_owned(self, owned))

    def expire(self, session_id: int) -> None:
        """End a session against its will, as if its process had hung or died."""
        store = self.sessions[session_id]
        self.end_session(session_id)
        store.session_ended()

    def _fire(self, events: Iterable[WatchEvent]) -> None:
        for store in list(self.sessions.values()):
            store.watches.fire(events)


class _Transaction:
    """Changes on top of the state, taken over only if all operations succeed."""

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

    def __init__(self, state: MemoryStoreState | None = None) -> None:
        super().__init__()
        self._state = state if state is not None else MemoryStoreState()
        self._session_id = self._state.open_session(self)

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def is_session_alive(self) -> bool:
        return self._session_id in self._state.sessions

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        return self._seen_existing(path, await self._find(path), watch)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        for path in paths:
            check_path(path)
        await self._travel()
        return [self._seen_with_data(path, self._state.find(path), None) for path in paths]

    async def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        return self._seen_with_data(path, await self._find(path), watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        self._seen_with_children(path, await self._find(path), watch)
        return sorted(self._state.children[path])

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        await self._travel()
        return self._state.perform(operations, self._session_id)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        if self.is_session_alive:
            self._state.end_session(self._session_id)

    async def _find(self, path: str) -> StoredNode | None:
        check_path(path)
        await self._travel()
        return self._state.find(path)

    async def _travel(self) -> None:
        """A request takes time: others may come between a read and the write that follows it."""
        await asyncio.sleep(0)
        if not self.is_session_alive:
            raise SessionExpired
