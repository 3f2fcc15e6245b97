"""One-shot watches of one session, with the node state that each has seen."""

from collections.abc import Callable, Iterable
from enum import IntEnum, auto
from typing import NamedTuple

from tidelog.store.interface import Watch, WatchEvent, WatchKind
from tidelog.store.tree import StoredNode


class WatchedAspect(IntEnum):
    DATA = auto()
    CHILDREN = auto()


FIRES = {  # watched aspects by kind of event
    WatchKind.CREATED: (WatchedAspect.DATA,),
    WatchKind.CHANGED: (WatchedAspect.DATA,),
    WatchKind.DELETED: (WatchedAspect.DATA, WatchedAspect.CHILDREN),
    WatchKind.CHILDREN_CHANGED: (WatchedAspect.CHILDREN,),
}


class Watched(NamedTuple):
    callback: Watch
    seen: StoredNode | None


class Watches:
    """`deliver` schedules a callback with its event; the event loop runs it after the current step."""

    def __init__(self, deliver: Callable[[Watch, WatchEvent], None]) -> None:
        self._deliver = deliver
        self._watched: dict[tuple[WatchedAspect, str], list[Watched]] = {}

    def add(self, aspect: WatchedAspect, path: str, callback: Watch, seen: StoredNode | None) -> None:
        self._watched.setdefault((aspect, path), []).append(Watched(callback, seen))

    def watched(self) -> list[tuple[WatchedAspect, str]]:
        return list(self._watched)

    def paths(self) -> set[str]:
        return {path for _, path in self._watched}

    def fire(self, events: Iterable[WatchEvent]) -> None:
        for event in events:
            for aspect in FIRES[event.kind]:
                for watched in self._watched.pop((aspect, event.path), ()):
                    self._deliver(watched.callback, event)

    def compare(self, current: dict[str, StoredNode | None]) -> None:
        """Fire the watches whose node another process has changed since they saw it."""
        for (aspect, path), registered in list(self._watched.items()):
            if path not in current:
                continue
            self._watched[aspect, path] = [
                watched for watched in registered if not self._fire_if_changed(aspect, path, watched, current[path])
            ]
            if not self._watched[aspect, path]:
                del self._watched[aspect, path]

    def _fire_if_changed(self, aspect: WatchedAspect, path: str, watched: Watched, current: StoredNode | None) -> bool:
        kind = change_between(aspect, watched.seen, current)
        if kind is None:
            return False
        self._deliver(watched.callback, WatchEvent(kind, path))
        return True


def change_between(aspect: WatchedAspect, seen: StoredNode | None, current: StoredNode | None) -> WatchKind | None:
    if seen is None:
        return None if current is None else WatchKind.CREATED
    if current is None or current.created_id != seen.created_id:
        return WatchKind.DELETED
    if aspect is WatchedAspect.DATA:
        return WatchKind.CHANGED if current.version != seen.version else None
    return WatchKind.CHILDREN_CHANGED if current.child_version != seen.child_version else None
