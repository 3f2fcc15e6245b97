"""Timers of consumer groups: session, revocation, join and sync timeouts of members."""

from typing import TypeAlias

from tidelog.replicated.machine import Effects

OWNER = "consumer"
SESSION, REBALANCE, JOIN, SYNC, DOWNGRADED = "session", "rebalance", "join", "sync", "downgraded"
OF_MEMBERS = (SESSION, REBALANCE, JOIN, SYNC)

MemberKey: TypeAlias = tuple[str, str]
"""Group id and member id."""


class Timers:
    """A heartbeat only moves the session deadline; the timer checks the deadline when it fires."""

    def __init__(self) -> None:
        self._deadlines_ms: dict[MemberKey, int] = {}
        self._due_ms: dict[MemberKey, int] = {}
        self._joining: set[MemberKey] = set()
        """Classic members that have to rejoin."""

    def keep_alive(self, group_id: str, member_id: str, timeout_ms: int, effects: Effects) -> None:
        key = group_id, member_id
        deadline_ms = self._deadlines_ms[key] = effects.monotonic_ms + timeout_ms
        if key not in self._due_ms or deadline_ms < self._due_ms[key]:
            self._set_session(key, deadline_ms, effects)

    def _set_session(self, key: MemberKey, deadline_ms: int, effects: Effects) -> None:
        self._due_ms[key] = deadline_ms
        effects.set_timer((OWNER, SESSION, *key), deadline_ms - effects.monotonic_ms)

    def on_session_timer(self, group_id: str, member_id: str, effects: Effects) -> bool:
        """Called when the timer fires: True if the session has expired, else the timer is set again."""
        key = group_id, member_id
        self._due_ms.pop(key, None)
        deadline_ms = self._deadlines_ms.get(key, 0)
        if deadline_ms <= effects.monotonic_ms:
            return True
        self._set_session(key, deadline_ms, effects)
        return False

    def expect_revocation(self, group_id: str, member_id: str, timeout_ms: int, effects: Effects) -> None:
        effects.set_timer((OWNER, REBALANCE, group_id, member_id), timeout_ms)

    def on_revoked(self, group_id: str, member_id: str, effects: Effects) -> None:
        effects.cancel_timer((OWNER, REBALANCE, group_id, member_id))

    def expect_join(self, group_id: str, member_id: str, timeout_ms: int, effects: Effects) -> None:
        """Start the join timeout at the first of several requests to rejoin."""
        key = group_id, member_id
        if key not in self._joining:
            self._joining.add(key)
            effects.set_timer((OWNER, JOIN, *key), timeout_ms)

    def on_joined(self, group_id: str, member_id: str, sync_timeout_ms: int, effects: Effects) -> None:
        key = group_id, member_id
        self._joining.discard(key)
        effects.cancel_timer((OWNER, JOIN, *key))
        effects.set_timer((OWNER, SYNC, *key), sync_timeout_ms)

    def on_synced(self, group_id: str, member_id: str, effects: Effects) -> None:
        effects.cancel_timer((OWNER, SYNC, group_id, member_id))

    def forget(self, group_id: str, member_id: str, effects: Effects) -> None:
        key = group_id, member_id
        self._deadlines_ms.pop(key, None)
        self._due_ms.pop(key, None)
        self._joining.discard(key)
        for purpose in OF_MEMBERS:
            effects.cancel_timer((OWNER, purpose, *key))
