"""Dynamic configs: change notifications of the store are read and applied (Kafka: ZkConfigManager)."""

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from tidelog.cluster import znodes
from tidelog.cluster.node_names import desanitized
from tidelog.cluster.znodes import MalformedNode
from tidelog.runtime.clock import Clock
from tidelog.server.change_notifications import ChangeNotifications
from tidelog.server.cluster_state import ClusterState
from tidelog.store.interface import Node, NoNode, Store

logger = logging.getLogger(__name__)

NOTIFICATION_AGE_S = 15 * 60.0
"""Age at which a notification is deleted: all live brokers have read it by then."""

TOPICS, BROKERS, GROUPS = "topics", "brokers", "groups"

OnEntities = Callable[[Store, Sequence[str] | None], Awaitable[None]]
"""Called with the paths of all changed entities; with None if everything must be read again."""


class ConfigChanges(ChangeNotifications):
    """Reads the configs that notifications name: of topics, brokers and groups here, of the others by listeners."""

    CHECK_INTERVAL_S = 60.0

    def __init__(
        self,
        cluster: ClusterState,
        store: Callable[[], Store],
        clock: Clock,
        on_changed: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        """`on_changed`: called with the topics whose configs were read."""
        super().__init__("config changes", (znodes.CONFIG_CHANGES,), store)
        self._cluster = cluster
        self._on_changed = on_changed
        self._clock = clock
        self.on_entities: list[OnEntities] = []
        self._known_since: dict[str, float] = {}

    async def load_topics(self, topics: Sequence[str]) -> None:
        """Read the configs of topics that are new to this broker. Raises StoreError."""
        async with self._reading:
            await self._load_configs(self._store(), topics)

    async def reload_for(self, listener: OnEntities) -> None:
        """Let one listener read everything again. Raises StoreError."""
        async with self._reading:
            await listener(self._store(), None)

    async def _prepare(self, store: Store) -> None:
        """The broker has created the nodes before it registered (`prepare_store`)."""

    async def _list(self, store: Store, root: str) -> list[str]:
        names = await super()._list(store, root)
        now = self._clock.monotonic()
        self._known_since = {name: self._known_since.get(name, now) for name in names}
        return names

    async def _apply(self, store: Store, notifications: Mapping[str, Node]) -> None:
        entities: dict[str, None] = {}
        for path, node in notifications.items():
            try:
                entities[znodes.decode_config_change(node.data, path)] = None
            except MalformedNode as error:
                logger.warning("ignored malformed config change notification reason=%s", error)
        named = [entity.split("/") for entity in entities]
        topics, brokers, groups = (
            [parts[1] for parts in named if parts[0] == kind and len(parts) == 2] for kind in (TOPICS, BROKERS, GROUPS)
        )
        await self._load_configs(store, topics, brokers, [desanitized(name) for name in groups])
        for listener in self.on_entities:
            await listener(store, list(entities))
        logger.info("configs changed resources=%s", ",".join(entities))
        self._notify_controller(topics)

    async def _read_all(self, store: Store) -> None:
        brokers = {*self._cluster.image.broker_configs, *await store.children(znodes.BROKER_CONFIGS)}
        found_groups = map(desanitized, await store.children(znodes.GROUP_CONFIGS))
        groups = {*self._cluster.image.group_configs, *found_groups}
        topics = self._cluster.topics_with_configs
        await self._load_configs(store, topics, sorted(brokers), sorted(groups))
        for listener in self.on_entities:
            await listener(store, None)
        self._notify_controller(topics)

    def _notify_controller(self, topics: Sequence[str]) -> None:
        if self._on_changed is not None:
            self._on_changed(topics)

    async def _load_configs(
        self, store: Store, topics: Sequence[str], brokers: Sequence[str] = (), groups: Sequence[str] = ()
    ) -> None:
        topic_configs = await read_configs(store, topics, znodes.topic_config_path)
        broker_configs = await read_configs(store, brokers, znodes.broker_config_path)
        group_configs = await read_configs(store, groups, znodes.group_config_path, without_node={})
        self._cluster.apply_topic_configs(topic_configs)
        self._cluster.apply_broker_configs(broker_configs)
        self._cluster.apply_group_configs(group_configs)

    async def _purge(self, store: Store) -> None:
        limit = self._clock.monotonic() - NOTIFICATION_AGE_S
        for name in [name for name, since in self._known_since.items() if since <= limit]:
            with contextlib.suppress(NoNode):
                await store.delete(f"{znodes.CONFIG_CHANGES}/{name}")


async def read_configs(
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
