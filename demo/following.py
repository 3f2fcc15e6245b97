"""Progress of the tour's pipeline, from the status that it writes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.pipelines.running.pipeline_state import PipelineState


class Progress(NamedTuple):
    rows: int = 0
    """Written to the table."""
    dead_letters: int = 0
    positions: Mapping[str, int] = {}
    """By query: how many records of the topic it has worked off."""

    def unread(self, acknowledged: int) -> int:
        """By the query that is furthest behind."""
        return max(0, acknowledged - min(self.positions.values(), default=0))


def progress_of(status: Mapping[str, Any], table: str, topic: str) -> Progress:
    queries = status.get("queries", ())
    return Progress(
        rows=sum(query["rows_out"] for query in queries if query["name"] == table),
        dead_letters=status.get("dead_letters", 0),
        positions={query["name"]: _position(query["lags"], topic) for query in queries},
    )


def _position(lags: list[Mapping[str, Any]], topic: str) -> int:
    return sum(lag["position"] for lag in lags if lag["topic"] == topic)


class PipelineWatch:
    def __init__(self, states: Path, name: str, *, table: str, topic: str) -> None:
        self._state = PipelineState(states, name)
        self._table = table
        self._topic = topic

    @property
    def log_file(self) -> Path:
        return self._state.log_file

    def progress(self) -> Progress:
        status = self._state.status()
        return Progress() if status is None else progress_of(status.progress, self._table, self._topic)
