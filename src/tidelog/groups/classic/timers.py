"""The keys of the timers that classic groups set. The first part tells their owner."""

from typing import TypeAlias

OWNER = "classic"
SESSION, JOIN, SYNC = "session", "join", "sync"

TimerKey: TypeAlias = tuple[str, ...]


def session_key(group_id: str, member_id: str) -> TimerKey:
    """A member, or one that was only given its id yet, may have gone silent."""
    return (OWNER, SESSION, group_id, member_id)


def join_key(group_id: str) -> TimerKey:
    """Members had their time to join."""
    return (OWNER, JOIN, group_id)


def sync_key(group_id: str) -> TimerKey:
    """Members of a new generation had their time to ask for their assignments."""
    return (OWNER, SYNC, group_id)
