"""Common part of all stores: single operations as transactions of one, the lease, callbacks on the event loop."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextvars import copy_context

from tidelog.store.interface import (
    ANY_VERSION,
    Create,
    Delete,
    Node,
    NoNode,
    Operation,
    Result,
    Set,
    Watch,
    WatchEvent,
)
from tidelog.store.lease import Lease
from tidelog.store.tree import StoredNode
from tidelog.store.watches import WatchedAspect, Watches


class BaseStore(ABC):
    """Callbacks run in the context in which the store was opened, whichever process caused them."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: monotonic seconds, for the lease."""
        self._context = copy_context()
        self.watches = Watches(self._deliver_soon)
        self.lease = Lease(
            now, lambda: self._call_soon(self._suspended_callbacks), lambda: self._call_soon(self._resumed_callbacks)
        )
        self._suspended_callbacks: list[Callable[[], None]] = []
        self._resumed_callbacks: list[Callable[[], None]] = []
        self._session_end_callbacks: list[Callable[[], None]] = []
        self._has_session_ended = False
        self.trouble = ""
        """Why the last request to the store failed; empty if it succeeded."""

    @property
    def is_session_alive(self) -> bool:
        return self.lease.is_valid

    @property
    def lease_end(self) -> float:
        return self.lease.end

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[Result]: ...

    async def sync(self) -> None:  # noqa: B027 - most stores have one copy of the data
        pass

    def on_suspended(self, callback: Callable[[], None]) -> None:
        self._suspended_callbacks.append(callback)

    def on_resumed(self, callback: Callable[[], None]) -> None:
        self._resumed_callbacks.append(callback)

    def on_session_end(self, callback: Callable[[], None]) -> None:
        if self._has_session_ended:
            self._call_soon([callback])
        else:
            self._session_end_callbacks.append(callback)

    def session_ended(self) -> None:
        """Calls the registered callbacks, each once."""
        self._has_session_ended = True
        self.lease.cancel()
        callbacks, self._session_end_callbacks = self._session_end_callbacks, []
        self._call_soon(callbacks)

    def _deliver_soon(self, watch: Watch, event: WatchEvent) -> None:
        asyncio.get_running_loop().call_soon(watch, event, context=self._context)

    def _call_soon(self, callbacks: Sequence[Callable[[], None]]) -> None:
        for callback in callbacks:
            asyncio.get_running_loop().call_soon(callback, context=self._context)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        (created,) = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(created, str)
        return created

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Node:
        (node,) = await self.multi([Set(path, data, version)])
        assert isinstance(node, Node)
        return node

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    def _seen_with_data(self, path: str, node: StoredNode | None, watch: Watch | None) -> Node | None:
        if watch is not None:
            self.watches.add(WatchedAspect.DATA, path, watch, node)
        return None if node is None else node.as_node()

    def _seen_existing(self, path: str, node: StoredNode | None, watch: Watch | None) -> Node:
        if node is None:
            raise NoNode(path)
        if watch is not None:
            self.watches.add(WatchedAspect.DATA, path, watch, node)
        return node.as_node()

    def _seen_with_children(self, path: str, node: StoredNode | None, watch: Watch | None) -> None:
        if node is None:
            raise NoNode(path)
        if watch is not None:
            self.watches.add(WatchedAspect.CHILDREN, path, watch, node)
