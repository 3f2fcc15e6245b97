"""ACLs in the coordination store: cached in the authorizer, changed with versions, followed by watches (AclAuthorizer).

A change and its notification are one transaction.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from tidelog.authorization import acls
from tidelog.authorization.acls import (
    ANY_USER,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclFilter,
    PatternType,
    ResourcePattern,
    binding_mistake,
)
from tidelog.authorization.authorizer import Authorizer
from tidelog.cluster import acl_znodes
from tidelog.cluster.znode_json import MalformedNode
from tidelog.controller.store_errors import store_errors_for_clients
from tidelog.errors import InvalidRequest, KafkaError, RequestTimedOut
from tidelog.runtime.turns import Turns
from tidelog.server.audit_log import audit_logger, shown
from tidelog.server.change_notifications import ChangeNotifications
from tidelog.store.interface import (
    BadVersion,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    Operation,
    RequestTooLarge,
    Set,
    Store,
)

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 10
KEPT_NOTIFICATIONS = 100
"""Older notifications are deleted: every live broker has read them, or reads everything."""

Entries = frozenset[AclEntry]
DENY_EVERYBODY: Entries = frozenset({AclEntry(ANY_USER, WILDCARD, acls.Operation.ALL, acls.Permission.DENY)})


class Acls(ChangeNotifications):
    """Until `load` has succeeded, no request may be served."""

    RETRY_PAUSE_S = 0.5

    def __init__(self, authorizer: Authorizer, store: Callable[[], Store]) -> None:
        super().__init__("ACLs", tuple(acl_znodes.CHANGES.values()), store)
        self._authorizer = authorizer
        self.on_changed: Callable[[], None] = lambda: None

    # ---- reading

    async def _prepare(self, store: Store) -> None:
        nodes = await store.get_many(acl_znodes.ACL_PATHS)
        for path, node in zip(acl_znodes.ACL_PATHS, nodes, strict=True):
            if node is None:
                try:
                    await store.create(path)
                except NodeExists:  # another broker creates the same nodes
                    continue

    async def _purge(self, store: Store) -> None:
        """Every write deletes the oldest notifications."""

    async def _apply(self, store: Store, notifications: Mapping[str, Node]) -> None:
        try:
            changed = {acl_znodes.decode_change(node.data, path): None for path, node in notifications.items()}
        except MalformedNode:
            await self._read_all(store)
            return
        rules = await self._read(store, list(changed))
        self._authorizer.update(rules)
        for pattern, entries in rules.items():
            logger.info("ACLs changed resource=%s entries=%d", shown(str(pattern)), len(entries))
        self.on_changed()

    async def _read_all(self, store: Store) -> None:
        patterns = [
            ResourcePattern(kind, name, pattern_type)
            for pattern_type, root in acl_znodes.ROOTS.items()
            for kind in acl_znodes.RESOURCE_TYPES
            for name in await store.children(f"{root}/{kind.title}")
        ]
        self._authorizer.replace_all(await self._read(store, patterns))
        self.on_changed()

    async def _read(self, store: Store, patterns: Sequence[ResourcePattern]) -> dict[ResourcePattern, Entries]:
        paths = list(map(acl_znodes.acls_path, patterns))
        nodes = await store.get_many(paths) if paths else []
        return {
            pattern: self._decode(pattern, node, path)
            for pattern, node, path in zip(patterns, nodes, paths, strict=True)
        }

    def _decode(self, pattern: ResourcePattern, node: Node | None, path: str) -> Entries:
        """ACLs that cannot be read keep their last value, or deny everybody: a Deny rule must not vanish."""
        if node is None:
            return frozenset()
        try:
            return acl_znodes.decode_acls(node.data, path)
        except MalformedNode as error:
            logger.warning("ignored malformed ACLs in store reason=%s", error)
            return self._authorizer.patterns.get(pattern, DENY_EVERYBODY)

    # ---- writing

    async def create(self, bindings: Sequence[AclBinding], author: str) -> list[KafkaError | None]:
        """One outcome per binding, in order. The rules are in effect on this broker on return."""
        outcomes: list[KafkaError | None] = []
        wanted: dict[ResourcePattern, set[AclEntry]] = {}
        for binding in bindings:
            mistake = binding_mistake(binding)
            outcomes.append(None if mistake is None else InvalidRequest(mistake))
            if mistake is None:
                wanted.setdefault(binding.pattern, set()).add(binding.entry)
        failures: dict[ResourcePattern, KafkaError] = {}
        for pattern, entries in wanted.items():
            try:
                await self._change(pattern, lambda current, new=entries: current | new)  # type: ignore[misc]
            except KafkaError as error:
                failures[pattern] = error.as_value()
            else:
                for entry in entries:
                    audit_logger.info("ACL created by=%s acl=%s", shown(author), shown(str(AclBinding(pattern, entry))))
        await self._take_effect()
        return [outcome or failures.get(binding.pattern) for binding, outcome in zip(bindings, outcomes, strict=True)]

    async def delete(self, filters: Sequence[AclFilter], author: str, turns: Turns) -> list[list[AclBinding]]:
        """The deleted bindings of each filter. Raises KafkaError if the store cannot be asked."""
        with store_errors_for_clients():
            await self.catch_up()
        deleted: list[list[AclBinding]] = [[] for _ in filters]
        for pattern, entries in list(self._authorizer.patterns.items()):
            matching = await _Matching.of(filters, pattern, turns)
            if not await matching.selects_any(entries, turns):
                continue
            for entry in await self._change(pattern, matching.kept):
                audit_logger.info("ACL deleted by=%s acl=%s", shown(author), shown(str(AclBinding(pattern, entry))))
                for index in matching.indexes(entry):
                    deleted[index].append(AclBinding(pattern, entry))
                await turns.yield_turn()
        await self._take_effect()
        return deleted

    async def _take_effect(self) -> None:
        with store_errors_for_clients():
            await self.catch_up()

    async def _change(self, pattern: ResourcePattern, changed: Callable[[Entries], Iterable[AclEntry]]) -> Entries:
        """Write the ACLs of a pattern; returns those that were removed. Raises RequestTimedOut and store errors."""
        path = acl_znodes.acls_path(pattern)
        with store_errors_for_clients():
            for _ in range(MAX_ATTEMPTS):
                node = await self._store().exists(path)
                current = frozenset() if node is None else _decoded(node, path)
                entries = frozenset(changed(current))
                if entries == current or await self._write(pattern, entries, node):
                    return current - entries
        raise RequestTimedOut(f"the ACLs of {pattern} kept changing")

    async def _write(self, pattern: ResourcePattern, entries: Entries, node: Node | None) -> bool:
        """False if another writer was faster."""
        path, data = acl_znodes.acls_path(pattern), acl_znodes.encode_acls(entries)
        write: Operation
        if node is None:
            write = Create(path, data)
        else:
            write = Set(path, data, node.version) if entries else Delete(path, node.version)
        notify = Create(acl_znodes.change_path(pattern), acl_znodes.encode_change(pattern), sequential=True)
        old = await self._old_notifications(pattern.pattern_type)
        try:
            await self._store().multi([write, *map(Delete, old), notify])
        except (BadVersion, NodeExists, NoNode):
            return False
        except RequestTooLarge as error:
            raise InvalidRequest(f"{pattern} has more rules than one node of the store can hold") from error
        return True

    async def _old_notifications(self, pattern_type: PatternType) -> list[str]:
        root = acl_znodes.CHANGES[pattern_type]
        return [f"{root}/{name}" for name in (await self._store().children(root))[:-KEPT_NOTIFICATIONS]]


class _Matching:
    """The filters of a request that match a resource pattern, and the entries that they select.

    A request may have thousands of filters, and a pattern thousands of entries: other work runs in between.
    """

    def __init__(self, filters: Sequence[tuple[int, AclFilter]]) -> None:
        self._filters = filters
        """With their places in the request."""
        self._selected: dict[AclEntry, list[int]] = {}

    @classmethod
    async def of(cls, filters: Sequence[AclFilter], pattern: ResourcePattern, turns: Turns) -> "_Matching":
        matches = await turns.each(filters, lambda each: each.matches_pattern(pattern))
        return cls([(index, each) for index, each in enumerate(filters) if matches[index]])

    async def selects_any(self, entries: Entries, turns: Turns) -> bool:
        for entry in entries:
            selecting = await turns.each(self._filters, lambda each, entry=entry: each[1].matches_entry(entry))  # type: ignore[misc]
            pairs = zip(self._filters, selecting, strict=True)
            self._selected[entry] = [index for (index, _), is_selecting in pairs if is_selecting]
        return any(self._selected.values())

    def indexes(self, entry: AclEntry) -> list[int]:
        """Places of the filters that select the entry, which may be newer than those of this broker."""
        found = self._selected.get(entry)
        return [index for index, each in self._filters if each.matches_entry(entry)] if found is None else found

    def kept(self, current: Entries) -> Entries:
        return frozenset(entry for entry in current if not self.indexes(entry))


def _decoded(node: Node, path: str) -> Entries:
    try:
        return acl_znodes.decode_acls(node.data, path)
    except MalformedNode as error:
        raise InvalidRequest(f"the ACLs in the store cannot be read, and are not overwritten: {error}") from error
