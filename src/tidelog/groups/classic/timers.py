"""Keys of the timers of classic groups."""

# Core: no clock, no I/O, no await.

from typing import TypeAlias

OWNER = "classic"
SESSION, JOIN, SYNC = "session", "join", "sync"

TimerKey: TypeAlias = tuple[str, ...]


def session_key(group_id: str, member_id: str) -> TimerKey:
    """Timer of a member's session, or of a pending member that has only its id."""
    return (OWNER, SESSION, group_id, member_id)


def join_key(group_id: str) -> TimerKey:
    """Timer of the join phase."""
    return (OWNER, JOIN, group_id)


def sync_key(group_id: str) -> TimerKey:
    """Timer of the sync phase: members of a new generation must request their assignments."""
    return (OWNER, SYNC, group_id)
