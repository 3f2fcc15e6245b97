"""Authorizer: decisions by ACLs on what a principal may do (AclAuthorizer, StandardAuthorizer).

A super user may do everything. Otherwise a matching Deny rule wins over every Allow rule. If no rule matches, access is
denied, except that `allow.everyone.if.no.acl.found` decides where the resource has no rules at all. A rule is an ACL
binding.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from tidelog.authorization.acls import (
    ANY_USER,
    WILDCARD,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tidelog.authorization.principal_rules import Entries, PrincipalRules

MAX_CACHED_DECISIONS = 20_000
"""Clients choose the names they ask for, so the cache needs a limit: when it is full, it is emptied."""

IMPLIED_BY = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""Operations whose Allow rules also allow this one. Deny rules imply nothing: without Read, Describe may be allowed."""

PROBE_NAME = "hardcode"
"""Resource name that Kafka's default `authorizeByResourceType` tries first."""

NO_ENTRIES: Entries = frozenset()


class Decision(NamedTuple):
    """Decision on a request, and the rule behind it."""

    is_allowed: bool
    rule: AclBinding | None = None
    """The rule that decided; None for super users and for defaults."""
    is_super_user: bool = False
    has_rules: bool = True
    """There are rules for the resource, if only for others."""


class Authorizer:
    """All ACLs, indexed by resource. Decisions are cached until the rules change."""

    def __init__(
        self,
        super_users: Iterable[str] = (),
        *,
        allow_everyone_if_no_acl_found: bool = False,
        asks_like_zookeeper_mode: bool = False,
    ) -> None:
        """`asks_like_zookeeper_mode`: `allows_any` decides like AclAuthorizer, not like StandardAuthorizer."""
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone_if_no_acl_found
        self._asks_like_zookeeper_mode = asks_like_zookeeper_mode
        self._entries: dict[ResourcePattern, Entries] = {}
        self._by_principal = PrincipalRules()
        self._prefix_lengths: dict[ResourceType, tuple[int, ...]] = {}
        """Lengths of the prefixes that have rules, longest first."""
        self._decisions: dict[tuple[str, str, Operation, ResourceType, str], bool] = {}
        self._decisions_for_any: dict[tuple[str, str, Operation, ResourceType], bool] = {}

    # ---- rules

    @property
    def patterns(self) -> Mapping[ResourcePattern, Entries]:
        return self._entries

    def replace_all(self, entries: Mapping[ResourcePattern, Entries]) -> None:
        self._entries = {pattern: found for pattern, found in entries.items() if found}
        self._by_principal = PrincipalRules()
        for pattern, found in self._entries.items():
            self._by_principal.replace(pattern, NO_ENTRIES, found)
        self._on_changed()

    def replace(self, pattern: ResourcePattern, entries: Entries) -> None:
        """Replace all rules of a resource pattern; without rules, remove it."""
        self.update({pattern: entries})

    def update(self, changed: Mapping[ResourcePattern, Entries]) -> None:
        """Replace the rules of several resource patterns in one step."""
        for pattern, entries in changed.items():
            self._by_principal.replace(pattern, self._entries.get(pattern, NO_ENTRIES), entries)
            if entries:
                self._entries[pattern] = entries
            else:
                self._entries.pop(pattern, None)
        self._on_changed()

    def _on_changed(self) -> None:
        self._decisions = {}
        self._decisions_for_any = {}
        lengths: dict[ResourceType, set[int]] = {}
        for pattern in self._entries:
            if pattern.pattern_type is PatternType.PREFIXED:
                lengths.setdefault(pattern.type, set()).add(len(pattern.name))
        self._prefix_lengths = {each: tuple(sorted(found, reverse=True)) for each, found in lengths.items()}

    # ---- decisions

    def allows(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        key = (principal, host, operation, resource, name)
        known = self._decisions.get(key)
        if known is None:
            if len(self._decisions) >= MAX_CACHED_DECISIONS:
                self._decisions = {}
            known = self._decisions[key] = self._decide(*key)
        return known

    def _decide(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        """The decision of `decide`, in time that does not depend on rules of other principals."""
        if principal in self._super_users:
            return True
        is_allowed = False
        for named in (principal, ANY_USER):
            for entry in self._by_principal.of(named, resource, name):
                if _matches(entry, principal, host, operation):
                    if entry.permission is Permission.DENY:
                        return False
                    is_allowed = True
        if is_allowed or not self._allow_everyone:
            return is_allowed
        return not any(pattern in self._entries for pattern in self._patterns_of(resource, name))

    def decide(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> Decision:
        """Decision with its reason, not from the cache."""
        if principal in self._super_users:
            return Decision(True, is_super_user=True)
        allowing: AclBinding | None = None
        has_rules = False
        for pattern in self._patterns_of(resource, name):
            for entry in self._entries.get(pattern, ()):
                has_rules = True
                if not _matches(entry, principal, host, operation):
                    continue
                if entry.permission is Permission.DENY:
                    return Decision(False, AclBinding(pattern, entry))
                allowing = allowing or AclBinding(pattern, entry)
        if allowing is not None:
            return Decision(True, allowing)
        return Decision(not has_rules and self._allow_everyone, has_rules=has_rules)

    def rules_about(self, principal: str, resource: ResourceType, name: str) -> list[AclBinding]:
        """Rules of the principal for the resource, whatever their host and operation: to explain a decision."""
        return [
            AclBinding(pattern, entry)
            for pattern in self._patterns_of(resource, name)
            for entry in sorted(self._entries.get(pattern, ()))
            if entry.principal in (principal, ANY_USER)
        ]

    def _patterns_of(self, resource: ResourceType, name: str) -> Iterator[ResourcePattern]:
        """All patterns that a resource of this name can match, the most specific one first."""
        yield ResourcePattern(resource, name)
        for length in self._prefix_lengths.get(resource, ()):
            if length <= len(name):
                yield ResourcePattern(resource, name[:length], PatternType.PREFIXED)
        if name != WILDCARD:
            yield ResourcePattern(resource, WILDCARD)

    def allows_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        """Whether the principal may do this on at least one resource of the type (authorizeByResourceType)."""
        if principal in self._super_users:
            return True
        key = (principal, host, operation, resource)
        known = self._decisions_for_any.get(key)
        if known is None:
            if len(self._decisions_for_any) >= MAX_CACHED_DECISIONS:
                self._decisions_for_any = {}
            known = self._decisions_for_any[key] = self._decide_for_any(*key)
        return known

    def _decide_for_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        if not self._asks_like_zookeeper_mode and self.allows(principal, host, operation, resource, PROBE_NAME):
            return True
        denied, allowed = self._denied_and_allowed(principal, host, operation, resource)
        everything = ResourcePattern(resource, WILDCARD)
        if everything in denied:
            return False
        if self._asks_like_zookeeper_mode and self._allow_everyone:
            return True
        return any(each == everything or not _is_dominated(each, denied) for each in allowed)

    def _denied_and_allowed(
        self, principal: str, host: str, operation: Operation, resource: ResourceType
    ) -> tuple[set[ResourcePattern], set[ResourcePattern]]:
        """Patterns with Deny rules and with Allow rules. Implied operations do not count here, as in Kafka."""
        denied: set[ResourcePattern] = set()
        allowed: set[ResourcePattern] = set()
        for pattern, entries in self._entries.items():
            if pattern.type is not resource:
                continue
            for entry in entries:
                if _is_for(entry, principal, host) and entry.operation in (operation, Operation.ALL):
                    (denied if entry.permission is Permission.DENY else allowed).add(pattern)
        return denied, allowed


def _matches(entry: AclEntry, principal: str, host: str, operation: Operation) -> bool:
    if not _is_for(entry, principal, host):
        return False
    if entry.operation in (operation, Operation.ALL):
        return True
    return entry.permission is Permission.ALLOW and entry.operation in IMPLIED_BY.get(operation, ())


def _is_for(entry: AclEntry, principal: str, host: str) -> bool:
    if entry.principal not in (principal, ANY_USER):
        return False
    return entry.host in (host, WILDCARD) or _canonical_host(entry.host) == _canonical_host(host)


@lru_cache(maxsize=1000)
def _canonical_host(text: str) -> str:
    """Canonical form of an address: Kafka writes `0:0:0:0:0:0:0:1` for `::1`, and sockets report `::ffff:10.0.0.1`."""
    try:
        address = ip_address(text)
    except ValueError:
        return text
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def _is_dominated(allowed: ResourcePattern, denied: set[ResourcePattern]) -> bool:
    """Whether everything that the pattern allows is denied by a shorter prefix, or by its own name."""
    if allowed.pattern_type is PatternType.LITERAL and allowed in denied:
        return True
    return any(
        ResourcePattern(allowed.type, allowed.name[:length], PatternType.PREFIXED) in denied
        for length in range(1, len(allowed.name) + 1)
    )
