"""Settings that change anywhere in the cluster: every broker hears of it from the store and takes them over."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence

from tidelog.cluster import znodes
from tidelog.cluster.znodes import MalformedNode
from tidelog.runtime.clock import Clock
from tidelog.server.cluster_state import ClusterState
from tidelog.store.interface import NoNode, SessionExpired, Store, StoreError, WatchEvent

logger = logging.getLogger(__name__)

RETRY_PAUSE_S = 1.0
NOTIFICATION_AGE_S = 15 * 60.0
"""A notification that this broker has known for so long is removed: whoever was alive has read it."""
PURGE_INTERVAL_S = 60.0

SEQUENCE_DIGITS = 10
TOPICS, BROKERS, GROUPS = "topics", "brokers", "groups"


class ConfigChanges:
    """Reads what a notification names, one reader at a time, so that what is applied never goes back in time."""

    def __init__(
        self,
        cluster: ClusterState,
        store: Callable[[], Store],
        clock: Clock,
        on_changed: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._on_changed = on_changed
        self._store = store
        self._clock = clock
        self._reading = asyncio.Lock()
        self._changed = asyncio.Event()
        self._session: Store | None = None
        self._watched: Store | None = None
        self._last_name = ""
        self._must_reload = False
        self._known_since: dict[str, float] = {}
        self._is_told = False

    async def run(self) -> None:
        """Follow the changes of one session after another, until cancelled."""
        while True:
            try:
                await self._follow()
            except StoreError as error:
                if not self._is_told and not isinstance(error, SessionExpired):  # of which the membership tells
                    logger.warning("changes of settings cannot be followed, trying on reason=%s", error)
                self._is_told = True
            except Exception:
                logger.exception("changes of settings cannot be followed, trying on")
            self._watched = None
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _follow(self) -> None:
        store = self._store()
        if store is not self._session:
            self._session = store
            store.on_session_end(self._changed.set)
        async with self._reading:
            names = await self._list(store)
            await self._reload(store, names)
        self._is_told = False
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PURGE_INTERVAL_S):
                    await self._changed.wait()
            self._changed.clear()
            await self.catch_up(store)
            await self._purge(store)

    async def catch_up(self, store: Store | None = None) -> None:
        """Apply what has changed so far; raises StoreError."""
        store = store or self._store()
        async with self._reading:
            names = await self._list(store)
            new = [name for name in names if name > self._last_name]
            if self._must_reload:
                await self._reload(store, names)
            elif new and _follows(self._last_name, new[0]):
                await self._apply(store, new)
            elif new:
                await self._reload(store, names)

    def on_store_rebuilt(self) -> None:
        """Nobody notifies of what a takeover wrote, which may differ from what this broker has kept (R44)."""
        self._must_reload = True
        self._changed.set()

    async def load_topics(self, topics: Sequence[str]) -> None:
        """Read the settings of topics that are new here; raises StoreError."""
        async with self._reading:
            await self._load(self._store(), topics)

    async def _list(self, store: Store) -> list[str]:
        """The notifications; asks to be told of the next one unless that is so already."""
        if store is self._watched:
            names = await store.children(znodes.CONFIG_CHANGES)
        else:
            names = await store.children(znodes.CONFIG_CHANGES, self._on_change)
            self._watched = store
        names = [name for name in names if name[-SEQUENCE_DIGITS:].isdigit()]
        now = self._clock.monotonic()
        self._known_since = {name: self._known_since.get(name, now) for name in names}
        return names

    def _on_change(self, event: WatchEvent) -> None:
        self._watched = None
        self._changed.set()

    async def _apply(self, store: Store, names: Sequence[str]) -> None:
        paths = [f"{znodes.CONFIG_CHANGES}/{name}" for name in names]
        nodes = await store.get_many(paths)
        if None in nodes:
            await self._reload(store, names)
            return
        entities: dict[str, None] = {}
        for path, node in zip(paths, nodes, strict=True):
            try:
                entities[znodes.decode_config_change(node.data if node else b"", path)] = None
            except MalformedNode as error:
                logger.warning("notification of changed settings is not understood reason=%s", error)
        named = [entity.split("/") for entity in entities]
        topics, brokers, groups = (
            [parts[1] for parts in named if parts[0] == kind and len(parts) == 2] for kind in (TOPICS, BROKERS, GROUPS)
        )
        await self._load(store, topics, brokers, [znodes.group_id_of(name) for name in groups])
        self._last_name = names[-1]
        logger.info("settings changed resources=%s", ",".join(entities))
        self._tell(topics)

    async def _reload(self, store: Store, names: Sequence[str]) -> None:
        """Notifications may have been removed before they were read: look at everything."""
        brokers = {*self._cluster.image.broker_configs, *await store.children(znodes.BROKER_CONFIGS)}
        found_groups = map(znodes.group_id_of, await store.children(znodes.GROUP_CONFIGS))
        groups = {*self._cluster.image.group_configs, *found_groups}
        topics = self._cluster.topics_with_configs
        await self._load(store, topics, sorted(brokers), sorted(groups))
        self._last_name = names[-1] if names else ""
        self._must_reload = False
        self._tell(topics)

    def _tell(self, topics: Sequence[str]) -> None:
        if self._on_changed is not None:
            self._on_changed(topics)

    async def _load(
        self, store: Store, topics: Sequence[str], brokers: Sequence[str] = (), groups: Sequence[str] = ()
    ) -> None:
        topic_configs = await _read(store, topics, znodes.topic_config_path)
        broker_configs = await _read(store, brokers, znodes.broker_config_path)
        group_configs = await _read(store, groups, znodes.group_config_path, without_node={})
        self._cluster.apply_topic_configs(topic_configs)
        self._cluster.apply_broker_configs(broker_configs)
        self._cluster.apply_group_configs(group_configs)

    async def _purge(self, store: Store) -> None:
        limit = self._clock.monotonic() - NOTIFICATION_AGE_S
        for name in [name for name, since in self._known_since.items() if since <= limit]:
            with contextlib.suppress(NoNode):
                await store.delete(f"{znodes.CONFIG_CHANGES}/{name}")


def _follows(last_name: str, name: str) -> bool:
    return not last_name or int(name[-SEQUENCE_DIGITS:]) == int(last_name[-SEQUENCE_DIGITS:]) + 1


async def _read(
    store: Store, names: Iterable[str], path_of: Callable[[str], str], without_node: dict[str, str] | None = None
) -> dict[str, dict[str, str]]:
    """The settings of each. One that cannot be understood is left as it was, and so is one that has no node.

    The settings of a topic go with the topic, those of a broker become empty. A node that is missing is that of a
    topic which is deleted, or the store was lost: nothing may be deleted because nobody says how long to keep it (R44).
    Groups differ: they have a node only while they have settings.
    """
    paths = {name: path_of(name) for name in names}
    if not paths:
        return {}
    found: dict[str, dict[str, str]] = {}
    for (name, path), node in zip(paths.items(), await store.get_many(list(paths.values())), strict=True):
        try:
            configs = without_node if node is None else znodes.decode_config(node.data, path)
        except MalformedNode as error:
            logger.warning("settings in the store are not understood reason=%s", error)
        else:
            if configs is not None:
                found[name] = configs
    return found
