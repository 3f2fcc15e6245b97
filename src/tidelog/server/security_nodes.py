"""Znodes of users, client quotas and ACLs as this broker knows them, for cluster.backup (R44)."""

from collections.abc import Mapping, Sequence

from tidelog.authorization.authorizer import Authorizer
from tidelog.cluster import acl_znodes, quota_znodes, znodes
from tidelog.cluster.quota_znodes import CONFIG
from tidelog.quotas.entities import QuotaTable, quota_text
from tidelog.server.cluster_backup import ClusterBackup
from tidelog.server.scram_secret import SECRET_PATH
from tidelog.store.interface import Store


class SecurityNodes:
    """Content of these znodes, updated with every change that this broker reads from the store."""

    def __init__(self, backup: ClusterBackup, quotas: QuotaTable, authorizer: Authorizer | None) -> None:
        self._backup = backup
        self._quotas = quotas
        self._authorizer = authorizer
        self._users: dict[str, Mapping[str, str]] = {}
        self._known: dict[str, str] = {}
        self.scram_secret = b""
        backup.security_nodes = lambda: self._known

    def on_users(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        for user, found in configs.items():
            if found:
                self._users[user] = found
            else:
                self._users.pop(user, None)
        self.on_changed()

    async def on_entities(self, _store: Store, _entities: Sequence[str] | None) -> None:
        self.on_changed()

    def on_changed(self) -> None:
        content = self._content()
        if content != self._known:
            self._known = content
            self._backup.mark_stale()

    def _content(self) -> dict[str, str]:
        """Content by path."""
        configs: dict[str, Mapping[str, str]] = {}
        for entity, quotas in self._quotas.quotas.items():
            path = f"{CONFIG}/{quota_znodes.entity_path(entity)}"
            configs[path] = {key: quota_text(value) for key, value in quotas.items()}
        for user, found in self._users.items():  # with the quotas of the user
            configs[znodes.user_config_path(user)] = found
        nodes = {path: znodes.encode_config(found) for path, found in configs.items()}
        if self._authorizer is not None:
            patterns = self._authorizer.patterns.items()
            nodes |= {acl_znodes.acls_path(pattern): acl_znodes.encode_acls(entries) for pattern, entries in patterns}
        if self.scram_secret:
            nodes[SECRET_PATH] = self.scram_secret
        return {path: nodes[path].decode() for path in sorted(nodes)}
