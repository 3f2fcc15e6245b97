"""Configs of users in the coordination store (`/config/users`): SCRAM credentials, with the quotas of the user."""

from collections.abc import Callable, Mapping, Sequence

from tidelog.cluster import znodes
from tidelog.cluster.node_names import desanitized
from tidelog.cluster.quota_znodes import USERS
from tidelog.server.config_changes import read_configs
from tidelog.store.interface import NoNode, Store


class UserConfigs:
    def __init__(self) -> None:
        self.on_changed: list[Callable[[Mapping[str, Mapping[str, str]]], None]] = []
        """Called with the configs of users that may have changed; empty ones for users without any."""
        self._users: set[str] = set()

    async def load(self, store: Store, entities: Sequence[str] | None = None) -> None:
        """Read the configs of the users among these entities, or of all users. Raises StoreError."""
        users = await self._all_users(store) if entities is None else _users_among(entities)
        configs = await read_configs(store, users, znodes.user_config_path, without_node={})
        self._users = (self._users - configs.keys()) | {name for name, found in configs.items() if found}
        for listener in self.on_changed if configs else ():
            listener(configs)

    async def _all_users(self, store: Store) -> list[str]:
        try:
            found = map(desanitized, await store.children(znodes.USER_CONFIGS))
        except NoNode:
            return sorted(self._users)
        return sorted(self._users | set(found))


def _users_among(entities: Sequence[str]) -> list[str]:
    named = (entity.split("/") for entity in entities)
    return [desanitized(parts[1]) for parts in named if parts[0] == USERS and len(parts) == 2]
