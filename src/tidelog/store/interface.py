"""The coordination store: ZooKeeper's model of versioned nodes, sessions, ephemeral and sequential nodes, watches."""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol, TypeAlias

ANY_VERSION = -1
NO_OWNER = 0


class StoreError(Exception):
    """Base of what a store answers instead of a result; nothing was changed."""

    def __init__(self, path: str = "", reason: str = "") -> None:
        reason = reason or (type(self).__doc__ or "").strip()
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path


class NoNode(StoreError):
    """The node, or for a create its parent, does not exist."""


class NodeExists(StoreError):
    """A node of this path exists."""


class BadVersion(StoreError):
    """The node has another version than the one named: somebody else changed it."""


class NotEmpty(StoreError):
    """The node has children."""


class NoChildrenForEphemerals(StoreError):
    """An ephemeral node cannot have children."""


class SessionExpired(StoreError):
    """The session has ended, and its ephemeral nodes with it; a new session is needed."""


class RequestTooLarge(StoreError):
    """The operations are larger than what the store takes in one request; nothing was changed."""


class StoreUnavailable(StoreError):
    """The store could not be asked; the same may work later, and the operation may or may not have happened."""


class Node(NamedTuple):
    data: bytes
    version: int
    created_id: int
    """The transaction that created the node (czxid); for a broker's registration, its epoch."""
    modified_id: int
    ephemeral_owner: int = NO_OWNER


class WatchKind(Enum):
    CREATED = auto()
    CHANGED = auto()
    DELETED = auto()
    CHILDREN_CHANGED = auto()


class WatchEvent(NamedTuple):
    kind: WatchKind
    path: str


Watch: TypeAlias = Callable[[WatchEvent], None]
"""Called once, on the event loop, after the change; whoever wants to hear of the next one asks again."""


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
"""Of a Create the path, of a Set the node, of the others nothing."""


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
        """Until when, in seconds of the monotonic clock, the session certainly lives."""
        ...

    @property
    def trouble(self) -> str:
        """Why the store could not be asked the last time, as far as known; empty if it could."""
        ...

    def on_suspended(self, callback: Callable[[], None]) -> None:
        """Call back, on the event loop, whenever the store could not be reached for so long that the session may end.

        Until `on_resumed` or `on_session_end` nobody may act as a member of the cluster.
        """
        ...

    def on_resumed(self, callback: Callable[[], None]) -> None:
        """Call back, on the event loop, whenever a session that was suspended turned out to live on."""
        ...

    def on_session_end(self, callback: Callable[[], None]) -> None:
        """Call back, on the event loop, once when the session ended without `close`; soon, if it has."""
        ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """The path, with its number if sequential. NodeExists, NoNode, NoChildrenForEphemerals."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """NoNode. The watch hears of a change of the data and of the deletion."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """The nodes in the order of the paths, None where there is none: in one go where the store can."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        """The watch hears of creation, a change of the data and deletion."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names, sorted. NoNode. The watch hears of children that come and go and of the node's deletion."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Node:
        """NoNode, BadVersion."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """NoNode, BadVersion, NotEmpty."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """All of them or none; the error is that of the first operation that failed."""
        ...

    async def run(self) -> None:
        """Keep the session alive and deliver watches, until cancelled."""
        ...

    async def close(self) -> None:
        """End the session; its ephemeral nodes go at once."""
        ...
