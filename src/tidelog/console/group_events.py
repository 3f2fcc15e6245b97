"""Events of groups for the timeline: rebalances, groups without members, new and deleted groups."""

# Core: no clock, no I/O, no await.

from collections.abc import Collection, Mapping

from tidelog.console.timeline import MAX_SINGLE_EVENTS, Finding, Kind

REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
MAX_DESCRIBED = 50
"""Groups that are described in one poll. If there are more, they take turns."""


class GroupWatch:
    """Changes between successive polls. A rebalance shorter than a poll interval shows only as changed members."""

    def __init__(self) -> None:
        self._states: dict[str, str] | None = None
        self._members: dict[str, frozenset[str]] = {}
        self._to_describe: dict[str, None] = {}
        """Queue of groups with members, the one described least recently first."""

    def on_states(self, states: Mapping[str, str]) -> list[Finding]:
        before, self._states = self._states, dict(states)
        self._members = {group: members for group, members in self._members.items() if group in states}
        with_members = {group for group, state in states.items() if state not in ("Empty", "Dead")}
        self._to_describe = {group: None for group in self._to_describe if group in with_members}
        self._to_describe |= dict.fromkeys(sorted(with_members - self._to_describe.keys()))
        if before is None:
            return []
        found = [
            *(Finding(Kind.GROUP, f"Group {group} was created.") for group in states.keys() - before.keys()),
            *(Finding(Kind.GROUP, f"Group {group} was deleted.") for group in before.keys() - states.keys()),
        ]
        for group, state in states.items():
            found += _state_change(group, before.get(group, state), state)
        return _bounded(sorted(found, key=lambda finding: finding.text))

    def next_to_describe(self) -> list[str]:
        chosen = list(self._to_describe)[:MAX_DESCRIBED]
        for group in chosen:  # to the end of the queue
            self._to_describe[group] = self._to_describe.pop(group)
        return chosen

    def on_members(self, members: Mapping[str, Collection[str]]) -> list[Finding]:
        found = []
        for group, ids in members.items():
            before, now = self._members.get(group), frozenset(ids)
            self._members[group] = now
            if before is not None and before != now:
                found.append(Finding(Kind.REBALANCE, f"Group {group} rebalanced: {_difference(before, now)}."))
        return _bounded(found)


def _state_change(group: str, before: str, after: str) -> list[Finding]:
    if before == after:
        return []
    if after in REBALANCING and before not in REBALANCING:
        return [Finding(Kind.REBALANCE, f"Group {group} is rebalancing.")]
    if after == "Stable" and before in REBALANCING:
        return [Finding(Kind.REBALANCE, f"Group {group} is stable again.")]
    if after == "Empty":
        return [Finding(Kind.GROUP, f"Group {group} has no members any more.")]
    return []


def _difference(before: frozenset[str], after: frozenset[str]) -> str:
    parts = [
        f"{len(ids)} {'member' if len(ids) == 1 else 'members'} {verb}"
        for ids, verb in ((after - before, "joined"), (before - after, "left"))
        if ids
    ]
    return f"{', '.join(parts)}, {len(after)} now"


def _bounded(found: list[Finding]) -> list[Finding]:
    if len(found) <= MAX_SINGLE_EVENTS:
        return found
    kinds = {finding.kind for finding in found}
    kind = Kind.REBALANCE if kinds == {Kind.REBALANCE} else Kind.GROUP
    return [Finding(kind, f"{len(found)} groups changed, such as: {found[0].text}")]
