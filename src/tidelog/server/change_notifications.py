"""Change notifications of the coordination store (Kafka: ZkNodeChangeNotificationListener).

A notification is a sequential node that names what has changed. Every broker watches them, and reads what they name.
After a new session, or if a notification is missing, it reads everything.
"""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from tidelog.store.interface import Node, SessionExpired, Store, StoreError, WatchEvent

logger = logging.getLogger(__name__)

SEQUENCE_DIGITS = 10


class ChangeNotifications(ABC):
    """Follows the notifications below some nodes. One reader at a time: what was read never goes back in time."""

    RETRY_PAUSE_S = 1.0
    CHECK_INTERVAL_S: float | None = None
    """How often `_purge` is called without a change; None for never."""

    def __init__(self, subject: str, roots: Sequence[str], store: Callable[[], Store]) -> None:
        """`subject`: what changes, for log lines."""
        self._subject = subject
        self._roots = roots
        self._store = store
        self._reading = asyncio.Lock()
        self._changed = asyncio.Event()
        self._session: Store | None = None
        self._watched: dict[str, Store] = {}
        self._last_names: dict[str, str] = {}
        self._must_reload = False
        self._is_failure_logged = False

    async def run(self) -> None:
        """Process notifications of the current session, then of the next one, until cancelled."""
        while True:
            try:
                await self._follow()
            except StoreError as error:
                if not self._is_failure_logged and not isinstance(error, SessionExpired):  # Membership logs that
                    logger.warning("cannot read %s, retrying reason=%s", self._subject, error)
                self._is_failure_logged = True
            except Exception:
                logger.exception("cannot read %s, retrying", self._subject)
            self._watched.clear()
            await asyncio.sleep(self.RETRY_PAUSE_S)

    async def _follow(self) -> None:
        store = self._store()
        if store is not self._session:
            self._session = store
            store.on_session_end(self._changed.set)
        await self._load(store)
        self._is_failure_logged = False
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.CHECK_INTERVAL_S):
                    await self._changed.wait()
            self._changed.clear()
            await self.catch_up(store)
            await self._purge(store)

    async def load(self) -> None:
        """Read everything. Raises StoreError."""
        await self._load(self._store())

    async def _load(self, store: Store) -> None:
        await self._prepare(store)
        async with self._reading:
            await self._reload(store, await self._list_all(store))

    async def catch_up(self, store: Store | None = None) -> None:
        """Apply all changes up to now. Raises StoreError."""
        store = store or self._store()
        async with self._reading:
            listed = await self._list_all(store)
            new = {root: self._new_names(root, names) for root, names in listed.items()}
            paths = [f"{root}/{name}" for root, names in new.items() for name in names]
            if self._must_reload or not all(self._is_next(root, names) for root, names in new.items()):
                await self._reload(store, listed)
            elif paths:
                await self._apply_or_reload(store, paths, listed)

    def on_store_rebuilt(self) -> None:
        """Read everything again: a takeover writes without notifications (R44)."""
        self._must_reload = True
        self._changed.set()

    async def _list_all(self, store: Store) -> dict[str, list[str]]:
        return {root: await self._list(store, root) for root in self._roots}

    async def _list(self, store: Store, root: str) -> list[str]:
        """List the notifications, and watch for the next one unless a watch is set."""
        if self._watched.get(root) is store:
            names = await store.children(root)
        else:
            names = await store.children(root, self._on_change)
            self._watched[root] = store
        return [name for name in names if name[-SEQUENCE_DIGITS:].isdigit()]

    def _on_change(self, event: WatchEvent) -> None:
        self._watched.pop(event.path, None)
        self._changed.set()

    def _new_names(self, root: str, names: Sequence[str]) -> list[str]:
        last = self._last_names.get(root, "")
        return [name for name in names if name > last]

    def _is_next(self, root: str, new: Sequence[str]) -> bool:
        """Whether no notification is missing between the last one read and the new ones."""
        last = self._last_names.get(root, "")
        return not last or not new or _number(new[0]) == _number(last) + 1

    async def _apply_or_reload(self, store: Store, paths: Sequence[str], listed: Mapping[str, Sequence[str]]) -> None:
        nodes = [node for node in await store.get_many(paths) if node is not None]
        if len(nodes) < len(paths):  # some were deleted before they were read
            await self._reload(store, listed)
            return
        await self._apply(store, dict(zip(paths, nodes, strict=True)))
        self._note_read(listed)

    async def _reload(self, store: Store, listed: Mapping[str, Sequence[str]]) -> None:
        """Read everything. The notifications were listed before: a change in between is read twice, and not missed."""
        # Reset before reading: if the store is rebuilt meanwhile, everything is read once more.
        self._must_reload = False
        try:
            await self._read_all(store)
        except BaseException:
            self._must_reload = True
            raise
        self._note_read(listed)

    def _note_read(self, listed: Mapping[str, Sequence[str]]) -> None:
        self._last_names = {root: names[-1] if names else "" for root, names in listed.items()}

    @abstractmethod
    async def _prepare(self, store: Store) -> None:
        """Create the nodes that must exist."""

    @abstractmethod
    async def _purge(self, store: Store) -> None:
        """Delete notifications that all brokers have read."""

    @abstractmethod
    async def _apply(self, store: Store, notifications: Mapping[str, Node]) -> None:
        """Read and apply what these notifications name. They are given by path, in order."""

    @abstractmethod
    async def _read_all(self, store: Store) -> None: ...


def _number(name: str) -> int:
    return int(name[-SEQUENCE_DIGITS:])
