"""ACLs by principal: the time of a decision depends only on the rules of its principal."""

# Core: no clock, no I/O, no await.

from collections import Counter
from collections.abc import Iterator

from tidelog.authorization.acls import WILDCARD, AclEntry, PatternType, ResourcePattern, ResourceType

Entries = frozenset[AclEntry]


class _Rules:
    """Rules of one principal for one type of resource."""

    __slots__ = ("_prefixed_rules", "entries", "prefix_lengths")

    def __init__(self) -> None:
        self.entries: dict[tuple[str, PatternType], list[AclEntry]] = {}
        self._prefixed_rules: Counter[int] = Counter()
        """Number of prefixed rules by the length of the prefix."""
        self.prefix_lengths: tuple[int, ...] = ()

    def add(self, pattern: ResourcePattern, entry: AclEntry) -> None:
        self.entries.setdefault((pattern.name, pattern.pattern_type), []).append(entry)
        self._count(pattern, 1)

    def remove(self, pattern: ResourcePattern, entry: AclEntry) -> None:
        key = (pattern.name, pattern.pattern_type)
        self.entries[key].remove(entry)
        if not self.entries[key]:
            del self.entries[key]
        self._count(pattern, -1)

    def _count(self, pattern: ResourcePattern, step: int) -> None:
        if pattern.pattern_type is PatternType.PREFIXED:
            length = len(pattern.name)
            self._prefixed_rules[length] += step
            if self._prefixed_rules[length] == max(step, 0):  # the first rule of this length, or none is left
                self._prefixed_rules = +self._prefixed_rules  # without zeros
                self.prefix_lengths = tuple(self._prefixed_rules)


class PrincipalRules:
    def __init__(self) -> None:
        self._rules: dict[tuple[ResourceType, str], _Rules] = {}

    def replace(self, pattern: ResourcePattern, before: Entries, after: Entries) -> None:
        """The rules of a resource pattern have changed."""
        for entry in before - after:
            rules = self._rules[pattern.type, entry.principal]
            rules.remove(pattern, entry)
            if not rules.entries:
                del self._rules[pattern.type, entry.principal]
        for entry in after - before:
            self._rules.setdefault((pattern.type, entry.principal), _Rules()).add(pattern, entry)

    def of(self, principal: str, resource: ResourceType, name: str) -> Iterator[AclEntry]:
        """Rules that name this principal, for the resource of this name."""
        rules = self._rules.get((resource, principal))
        if rules is None:
            return
        entries = rules.entries
        yield from entries.get((name, PatternType.LITERAL), ())
        for length in rules.prefix_lengths:
            if length <= len(name):
                yield from entries.get((name[:length], PatternType.PREFIXED), ())
        if name != WILDCARD:
            yield from entries.get((WILDCARD, PatternType.LITERAL), ())
