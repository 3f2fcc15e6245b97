"""Dynamic configs: change notifications of the store are read and applied (ZkConfigManager)."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from tidelog.cluster import znodes
from tidelog.cluster.znodes import MalformedNode
from tidelog.runtime.clock import Clock
from tidelog.server.cluster_state import ClusterState
from tidelog.store.interface import NoNode, SessionExpired, Store, StoreError, WatchEvent

logger = logging.getLogger(__name__)

RETRY_PAUSE_S = 1.0
NOTIFICATION_AGE_S = 15 * 60.0
"""Age at which a notification is deleted: all live brokers have read it by then."""
PURGE_INTERVAL_S = 60.0

SEQUENCE_DIGITS = 10
TOPICS, BROKERS, GROUPS, USERS = "topics", "brokers", "groups", "users"
USER_CONFIGS = "/config/users"
"""Made with the first user. The names are escaped like those of groups."""


class ConfigChanges:
    """Reads the configs that notifications name. One reader at a time: applied configs never go back in time."""

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
        self.on_entities: list[Callable[[Store, Sequence[str] | None], Awaitable[None]]] = []
        """Called with the paths of all changed entities; with None if everything must be read again."""
        self.on_users: list[Callable[[Mapping[str, Mapping[str, str]]], None]] = []
        """Called with the configs of users that may have changed; empty ones for users without any."""
        self._users: set[str] = set()
        self._known_since: dict[str, float] = {}
        self._is_failure_logged = False

    async def run(self) -> None:
        """Process notifications of the current session, then of the next one, until cancelled."""
        while True:
            try:
                await self._follow()
            except StoreError as error:
                if not self._is_failure_logged and not isinstance(error, SessionExpired):  # Membership logs that
                    logger.warning("cannot read config changes, retrying reason=%s", error)
                self._is_failure_logged = True
            except Exception:
                logger.exception("cannot read config changes, retrying")
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
        self._is_failure_logged = False
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PURGE_INTERVAL_S):
                    await self._changed.wait()
            self._changed.clear()
            await self.catch_up(store)
            await self._purge(store)

    async def catch_up(self, store: Store | None = None) -> None:
        """Apply all changes up to now. Raises StoreError."""
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
        """Read all configs again: a takeover writes them without notifications (R44)."""
        self._must_reload = True
        self._changed.set()

    async def load_topics(self, topics: Sequence[str]) -> None:
        """Read the configs of topics that are new to this broker. Raises StoreError."""
        async with self._reading:
            await self._load(self._store(), topics)

    async def load_users(self) -> None:
        """Read the configs of all users. Raises StoreError."""
        async with self._reading:
            store = self._store()
            await self._load_users(store, await self._all_users(store))

    async def _all_users(self, store: Store) -> list[str]:
        try:
            found = map(znodes.group_id_of, await store.children(USER_CONFIGS))
        except NoNode:
            return sorted(self._users)
        return sorted(self._users | set(found))

    async def _load_users(self, store: Store, users: Sequence[str]) -> None:
        configs = await _read(store, users, user_config_path, without_node={})
        self._users = (self._users - configs.keys()) | {name for name, found in configs.items() if found}
        for take in self.on_users if configs else ():
            take(configs)

    async def _list(self, store: Store) -> list[str]:
        """List the notifications, and watch for the next one unless a watch is set."""
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
                logger.warning("ignored malformed config change notification reason=%s", error)
        named = [entity.split("/") for entity in entities]
        topics, brokers, groups = (
            [parts[1] for parts in named if parts[0] == kind and len(parts) == 2] for kind in (TOPICS, BROKERS, GROUPS)
        )
        await self._load(store, topics, brokers, [znodes.group_id_of(name) for name in groups])
        for take in self.on_entities:
            await take(store, list(entities))
        users = [parts[1] for parts in named if parts[0] == USERS and len(parts) == 2]
        await self._load_users(store, [znodes.group_id_of(name) for name in users])
        self._last_name = names[-1]
        logger.info("configs changed resources=%s", ",".join(entities))
        self._notify_controller(topics)

    async def _reload(self, store: Store, names: Sequence[str]) -> None:
        """Read all configs: notifications may have been deleted before this broker read them."""
        brokers = {*self._cluster.image.broker_configs, *await store.children(znodes.BROKER_CONFIGS)}
        found_groups = map(znodes.group_id_of, await store.children(znodes.GROUP_CONFIGS))
        groups = {*self._cluster.image.group_configs, *found_groups}
        topics = self._cluster.topics_with_configs
        await self._load(store, topics, sorted(brokers), sorted(groups))
        for take in self.on_entities:
            await take(store, None)
        await self._load_users(store, await self._all_users(store))
        self._last_name = names[-1] if names else ""
        self._must_reload = False
        self._notify_controller(topics)

    def _notify_controller(self, topics: Sequence[str]) -> None:
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


def user_config_path(user: str) -> str:
    return f"{USER_CONFIGS}/{znodes.group_node_name(user)}"


def _follows(last_name: str, name: str) -> bool:
    return not last_name or int(name[-SEQUENCE_DIGITS:]) == int(last_name[-SEQUENCE_DIGITS:]) + 1


async def _read(
    store: Store, names: Iterable[str], path_of: Callable[[str], str], without_node: dict[str, str] | None = None
) -> dict[str, dict[str, str]]:
    """Configs by name. Malformed ones are left out and keep their old value; those without a node get `without_node`.

    With None they keep their old value, too: the topic is being deleted, or the store was lost, and nothing may be
    deleted because its retention is unknown (R44). Groups differ: they have a node only while they have configs.
    """
    paths = {name: path_of(name) for name in names}
    if not paths:
        return {}
    found: dict[str, dict[str, str]] = {}
    for (name, path), node in zip(paths.items(), await store.get_many(list(paths.values())), strict=True):
        try:
            configs = without_node if node is None else znodes.decode_config(node.data, path)
        except MalformedNode as error:
            logger.warning("ignored malformed configs in store reason=%s", error)
        else:
            if configs is not None:
                found[name] = configs
    return found
