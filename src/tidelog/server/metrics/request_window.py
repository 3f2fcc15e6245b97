"""Request times of the last one to two minutes: the difference between two readings of the counts."""

from collections.abc import Mapping

from tidelog.server.request_times import Distributions

WINDOW_S = 60.0


class RequestWindow:
    """Remembers two readings. Nothing happens between scrapes, so several scrapers do not disturb each other."""

    def __init__(self) -> None:
        self._older: Mapping[str, Distributions] = {}
        self._newer: Mapping[str, Distributions] = {}
        self._newer_s = float("-inf")

    def recent(self, now_s: float, current: Mapping[str, Distributions]) -> dict[str, Distributions]:
        if now_s - self._newer_s >= WINDOW_S:
            self._older, self._newer, self._newer_s = self._newer, current, now_s
        return {request: found.since(self._older.get(request)) for request, found in current.items()}
