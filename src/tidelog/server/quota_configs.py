"""Client quotas in the coordination store: read when they change, written with a notification."""

import logging
from collections.abc import Callable, Mapping, Sequence

from tidelog.cluster import quota_znodes, znodes
from tidelog.cluster.quota_znodes import CONFIG, QUOTA_ROOTS
from tidelog.cluster.znodes import MalformedNode
from tidelog.controller.store_errors import store_errors_for_clients
from tidelog.errors import InvalidRequest, RequestTimedOut
from tidelog.quotas.entities import (
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    QuotaEntity,
    QuotaMistake,
    QuotaTable,
    check_quota,
    quota_text,
)
from tidelog.server.audit_log import audit_logger, shown
from tidelog.store.interface import BadVersion, Create, Node, NodeExists, NoNode, Set, Store

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 10


class QuotaConfigs:
    def __init__(self, table: QuotaTable, store: Callable[[], Store], on_changed: Callable[[], None]) -> None:
        self._table = table
        self._store = store
        self._on_changed = on_changed

    # ---- reading

    async def load(self, store: Store, entities: Sequence[str] | None = None) -> None:
        """Read the quotas of these entities, or of all. Raises StoreError."""
        if entities is None:
            paths = await _all_entities(store)
            known = list(map(quota_znodes.entity_path, self._table.quotas))
            paths = list(dict.fromkeys([*paths, *known]))
        else:
            paths = [path for path in entities if quota_znodes.entity_at(path) is not None]
        if not paths:
            return
        for path, node in zip(paths, await store.get_many([f"{CONFIG}/{path}" for path in paths]), strict=True):
            self._apply(path, node)
        self._on_changed()

    def _apply(self, path: str, node: Node | None) -> None:
        entity = quota_znodes.entity_at(path)
        if entity is None:
            return
        try:
            configs = {} if node is None else znodes.decode_config(node.data, path)
        except MalformedNode as error:
            logger.warning("ignored malformed quotas in store reason=%s", error)
            return
        quotas = quota_znodes.quotas_of(configs, _keys_of(entity))
        if quotas != self._table.quotas.get(entity, {}):
            self._table.replace(entity, quotas)
            logger.info("quotas changed entity=%s quotas=%s", entity, quotas)

    # ---- writing

    async def alter(
        self, entity: QuotaEntity, changes: Mapping[str, float | None], author: str, *, validate_only: bool
    ) -> None:
        """Set quotas, or remove those that are None. Raises InvalidRequest, RequestTimedOut and store errors."""
        try:
            for key, value in changes.items():
                if value is not None:
                    check_quota(entity, key, value)
        except QuotaMistake as mistake:
            raise InvalidRequest(str(mistake)) from mistake
        if validate_only:
            return
        path = quota_znodes.entity_path(entity)
        with store_errors_for_clients():
            for _ in range(MAX_ATTEMPTS):
                if await self._write(path, changes):
                    audit_logger.info(
                        "quotas changed by=%s entity=%s quotas=%s", shown(author), shown(str(entity)), dict(changes)
                    )
                    await self.load(self._store(), [path])
                    return
        raise RequestTimedOut(f"the quotas of {entity} kept changing")

    async def _write(self, path: str, changes: Mapping[str, float | None]) -> bool:
        """False if another writer was faster. What others keep there, such as credentials, stays."""
        store, node_path = self._store(), f"{CONFIG}/{path}"
        await _create_parents(store, node_path)
        node = await store.exists(node_path)
        configs = {} if node is None else znodes.decode_config(node.data, node_path)
        for key, value in changes.items():
            if value is None:
                configs.pop(key, None)
            else:
                configs[key] = quota_text(value)
        if node is None and not configs:
            return True
        data = znodes.encode_config(configs)
        write = Create(node_path, data) if node is None else Set(node_path, data, node.version)
        notify = Create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(path), sequential=True)
        try:
            await store.multi([write, notify])
        except (BadVersion, NodeExists, NoNode):
            return False
        return True


def _keys_of(entity: QuotaEntity) -> tuple[str, ...]:
    return CLIENT_KEYS if entity.ip is None else (CONNECTION_CREATION_RATE,)


async def _all_entities(store: Store) -> list[str]:
    found: list[str] = []
    for root in QUOTA_ROOTS:
        for name in await _children(store, root):
            path = f"{root}/{name}"
            found.append(path)
            if root.endswith(quota_znodes.USERS):
                clients = f"{path}/{quota_znodes.CLIENTS}"
                found += [f"{clients}/{client}" for client in await _children(store, clients)]
    return [path.removeprefix(f"{CONFIG}/") for path in found]


async def _children(store: Store, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NoNode:
        return []


async def _create_parents(store: Store, path: str) -> None:
    parts = path.split("/")
    parents = ["/".join(parts[:count]) for count in range(3, len(parts))]
    for parent, node in zip(parents, await store.get_many(parents), strict=True):
        if node is None:
            try:
                await store.create(parent)
            except NodeExists:
                continue
