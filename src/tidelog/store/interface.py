"""Coordination store interface: ZooKeeper's model of versioned nodes, sessions, ephemeral nodes and watches."""

from collections.abc import Callable, Sequence
from enum import IntEnum, auto
from typing import NamedTuple, Protocol, TypeAlias

ANY_VERSION = -1
NO_OWNER = 0


class StoreError(Exception):
    """Base class of store errors. The operation changed nothing, except possibly for StoreUnavailable."""

    def __init__(self, path: str = "", reason: str = "") -> None:
        reason = reason or (type(self).__doc__ or "").strip()
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path


class NoNode(StoreError):
    """The node, or for a create its parent, does not exist."""


class NodeExists(StoreError):
    """A node of this path exists."""


class BadVersion(StoreError):
    """The node has another version than expected: it was changed meanwhile."""


class NotEmpty(StoreError):
    """The node has children."""


class NoChildrenForEphemerals(StoreError):
    """An ephemeral node cannot have children."""


class SessionExpired(StoreError):
    """The session has ended, with its ephemeral nodes; a new session is needed."""


class RequestTooLarge(StoreError):
    """The operations exceed the store's request size; nothing was changed."""


class StoreUnavailable(StoreError):
    """The store did not answer. The operation may or may not have happened; a retry may succeed."""


class Node(NamedTuple):
    data: bytes
    version: int
    created_id: int
    """The transaction that created the node (czxid); for a broker's registration, its epoch."""
    modified_id: int
    ephemeral_owner: int = NO_OWNER


class WatchKind(IntEnum):
    CREATED = auto()
    CHANGED = auto()
    DELETED = auto()
    CHILDREN_CHANGED = auto()


class WatchEvent(NamedTuple):
    kind: WatchKind
    path: str


Watch: TypeAlias = Callable[[WatchEvent], None]
"""Called once, on the event loop, after the change; set it again to hear of the next change."""


class Create(NamedTuple):
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    path: str
    version: int


Operation: TypeAlias = Create | Set | Delete | Check
Result: TypeAlias = str | Node | None
"""The path of a Create, the node of a Set, None for others."""


class Store(Protocol):
    """One session with the store. Every call may also raise SessionExpired or StoreUnavailable."""

    @property
    def session_id(self) -> int: ...

    @property
    def is_session_alive(self) -> bool:
        """False as soon as the session may have ended, judged by the broker's own clock."""
        ...

    @property
    def lease_end(self) -> float:
        """Monotonic time in seconds until which the session is certain to live."""
        ...

    @property
    def trouble(self) -> str:
        """Why the last request to the store failed, as far as known; empty if it succeeded."""
        ...

    def on_suspended(self, callback: Callable[[], None]) -> None:
        """Called on the event loop whenever the store was unreachable for so long that the session may end.

        Until `on_resumed` or `on_session_end`, the broker must not act as a member of the cluster.
        """
        ...

    def on_resumed(self, callback: Callable[[], None]) -> None:
        """Called on the event loop whenever a suspended session proved to be alive."""
        ...

    def on_session_end(self, callback: Callable[[], None]) -> None:
        """Called once on the event loop when the session has ended without `close`; soon if it already has."""
        ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """Returns the path, with a number appended if sequential.

        Raises NodeExists, NoNode if the parent is missing, NoChildrenForEphemerals if the parent is ephemeral.
        """
        ...

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Raises NoNode. The watch fires when the data changes and when the node is deleted."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Nodes in the order of the paths, None for missing ones; one request where the store supports it."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        """The watch fires when the node is created, changed or deleted."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names of the children, sorted. Raises NoNode.

        The watch fires when children are added or removed, and when the node is deleted.
        """
        ...

    async def sync(self) -> None:
        """What is read after this includes every write that was complete before: a server of an ensemble may lag."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Node:
        """Raises NoNode or BadVersion."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Raises NoNode, BadVersion or NotEmpty."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Atomic; raises the error of the first operation that failed."""
        ...

    async def run(self) -> None:
        """Keeps the session alive and delivers watches, until cancelled."""
        ...

    async def close(self) -> None:
        """Ends the session; its ephemeral nodes are deleted at once."""
        ...
