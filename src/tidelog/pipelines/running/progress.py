"""Progress of a pipeline, computed from Spark's progress events. Pure: takes events as JSON and times as arguments."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

WINDOW_S = 10.0
"""Rates are averages over the last ten seconds."""

WRITTEN = "tidelog written"
"""Name of the observed metric that counts written rows."""
SOURCE_PREFIX = "tidelog source "
EXPECT_PREFIX = "tidelog expect "


class QueryKind(StrEnum):
    SINK = "sink"
    DEAD_LETTERS = "dead letters"


class QueryState(StrEnum):
    STARTING = "starting"  # no micro-batch has begun
    RUNNING = "running"
    IDLE = "idle"  # runs, and has nothing to read
    WAITING = "waiting"  # failed for a transient reason, restarts after a pause
    DONE = "done"  # all input processed, or stopped
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PartitionLag:
    topic: str
    partition: int
    position: int
    """The offset after the last record of the last micro-batch."""
    lag: int | None
    """None if the end offset of the partition is unknown."""


@dataclass(frozen=True, slots=True)
class QueryProgress:
    name: str
    kind: QueryKind
    state: QueryState = QueryState.STARTING
    batches: int = 0
    batch_id: int | None = None
    batch_duration_ms: int | None = None
    rows_in: int = 0
    rows_out: int = 0
    rows_in_per_second: float = 0.0
    rows_out_per_second: float = 0.0
    bytes_in: int = 0
    """Of record values; 0 for queries that do not count them."""
    bytes_in_per_second: float = 0.0
    state_rows: int = 0
    state_bytes: int = 0
    bad_records: Mapping[str, int] = field(default_factory=dict)
    """By source: records that this query read and that did not parse."""
    violations: Mapping[str, int] = field(default_factory=dict)
    """By expectation (`view.name`): rows that this query computed and that do not meet it."""
    lags: tuple[PartitionLag, ...] = ()
    watermark: str | None = None
    restarts: int = 0

    @property
    def lag(self) -> int | None:
        """None if no partition has a known lag."""
        partition_lags = [partition.lag for partition in self.lags if partition.lag is not None]
        return sum(partition_lags) if partition_lags else None


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    name: str
    queries: tuple[QueryProgress, ...]
    uptime_s: float = 0.0

    @property
    def dead_letters(self) -> int:
        queries = [query for query in self.queries if query.kind is QueryKind.DEAD_LETTERS]
        return sum(query.rows_out for query in queries)

    @property
    def skipped_records(self) -> int:
        """Bad records that were neither sent to dead letters nor failed the query; every query skips the same ones."""
        set_aside = {query.name for query in self.queries if query.kind is QueryKind.DEAD_LETTERS}
        worst: dict[str, int] = {}
        for query in self.queries:
            for source, count in query.bad_records.items():
                if f"{source}.dead-letters" not in set_aside:
                    worst[source] = max(worst.get(source, 0), count)
        return sum(worst.values())

    @property
    def violations(self) -> dict[str, int]:
        """By expectation. Queries that read the same view count the same rows."""
        worst: dict[str, int] = {}
        for query in self.queries:
            for expectation, count in query.violations.items():
                worst[expectation] = max(worst.get(expectation, 0), count)
        return worst

    def as_json(self) -> dict[str, Any]:
        queries = [asdict(query) | {"lag": query.lag} for query in self.queries]
        return {
            "uptime_s": round(self.uptime_s, 1),
            "dead_letters": self.dead_letters,
            "skipped_records": self.skipped_records,
            "violations": self.violations,
            "queries": queries,
        }


class QueryMeter:
    """Progress of one query across micro-batches and restarts."""

    def __init__(self, name: str, kind: QueryKind, started_s: float) -> None:
        self.name = name
        self.kind = kind
        self.state = QueryState.STARTING
        self.restarts = 0
        self._read = _Rate(started_s)
        self._written = _Rate(started_s)
        self._bytes = _Rate(started_s)
        self._batches = 0
        self._batch_id: int | None = None
        self._duration_ms: int | None = None
        self._state_rows = 0
        self._state_bytes = 0
        self._bad_records: dict[str, int] = {}
        self._violations: dict[str, int] = {}
        self._lags: tuple[PartitionLag, ...] = ()
        self._watermark: str | None = None

    def on_progress(self, event: Mapping[str, Any], now_s: float) -> None:
        """A progress event of Spark. Events without a micro-batch come from queries that wait for data."""
        self._lags = lags_of(event.get("sources", ())) or self._lags
        self._watermark = event.get("eventTime", {}).get("watermark", self._watermark)
        if not is_batch(event):
            return
        self.state = QueryState.RUNNING
        self._batches += 1
        self._batch_id = event.get("batchId")
        self._duration_ms = event.get("durationMs", {}).get("triggerExecution")
        operators = event.get("stateOperators", ())
        self._state_rows = sum(operator.get("numRowsTotal", 0) for operator in operators)
        self._state_bytes = sum(operator.get("memoryUsedBytes", 0) for operator in operators)
        observed = event.get("observedMetrics", {})
        self._read.add(event.get("numInputRows", 0), now_s)
        self._written.add(observed.get(WRITTEN, {}).get("rows") or 0, now_s)
        self._bytes.add(bytes_of(observed), now_s)
        for source, count in bad_records_of(observed).items():
            self._bad_records[source] = self._bad_records.get(source, 0) + count
        for expectation, count in violations_of(observed).items():
            self._violations[expectation] = self._violations.get(expectation, 0) + count

    def on_processing(self) -> None:
        """Spark says that a micro-batch runs, which may be long."""
        if self.state in (QueryState.STARTING, QueryState.IDLE):
            self.state = QueryState.RUNNING

    def on_waiting_for_data(self, now_s: float) -> None:
        """Spark says that there is nothing to read. A pause between records is not idleness."""
        if self.state is QueryState.STARTING or (
            self.state is QueryState.RUNNING and self._read.per_second(now_s) == 0
        ):
            self.state = QueryState.IDLE

    def on_written(self, rows: int, now_s: float) -> None:
        """Rows that a sink counted itself."""
        self._written.add(rows, now_s)

    def progress(self, now_s: float) -> QueryProgress:
        return QueryProgress(
            name=self.name,
            kind=self.kind,
            state=self.state,
            batches=self._batches,
            batch_id=self._batch_id,
            batch_duration_ms=self._duration_ms,
            rows_in=self._read.total,
            rows_out=self._written.total,
            rows_in_per_second=self._read.per_second(now_s),
            rows_out_per_second=self._written.per_second(now_s),
            bytes_in=self._bytes.total,
            bytes_in_per_second=self._bytes.per_second(now_s),
            state_rows=self._state_rows,
            state_bytes=self._state_bytes,
            bad_records=dict(self._bad_records),
            violations=dict(self._violations),
            lags=self._lags,
            watermark=self._watermark,
            restarts=self.restarts,
        )


class _Rate:
    """A counter with its rate of growth within the window."""

    def __init__(self, started_s: float) -> None:
        self.total = 0
        self._started_s = started_s
        self._recent: deque[tuple[float, int]] = deque()

    def add(self, rows: int, now_s: float) -> None:
        if rows:
            self.total += rows
            self._recent.append((now_s, rows))
            self._forget(now_s)

    def per_second(self, now_s: float) -> float:
        self._forget(now_s)
        seconds = min(WINDOW_S, max(1.0, now_s - self._started_s))
        return sum(rows for _, rows in self._recent) / seconds

    def _forget(self, now_s: float) -> None:
        while self._recent and self._recent[0][0] <= now_s - WINDOW_S:
            self._recent.popleft()


def is_batch(event: Mapping[str, Any]) -> bool:
    return "addBatch" in event.get("durationMs", {})


def bad_records_of(observed: Mapping[str, Any]) -> dict[str, int]:
    return {
        name.removeprefix(SOURCE_PREFIX): counts.get("bad") or 0
        for name, counts in observed.items()
        if name.startswith(SOURCE_PREFIX)
    }


def bytes_of(observed: Mapping[str, Any]) -> int:
    return sum(counts.get("bytes") or 0 for name, counts in observed.items() if name.startswith(SOURCE_PREFIX))


def violations_of(observed: Mapping[str, Any]) -> dict[str, int]:
    """`{"priced.positive": 3}` from the observed metrics of a micro-batch."""
    return {
        f"{name.removeprefix(EXPECT_PREFIX)}.{expectation}": count or 0
        for name, counts in observed.items()
        if name.startswith(EXPECT_PREFIX)
        for expectation, count in counts.items()
    }


def lags_of(sources: Iterable[Mapping[str, Any]]) -> tuple[PartitionLag, ...]:
    """A topic that is read twice, as in a self-join, counts once, with its largest lag."""
    found: dict[tuple[str, int], PartitionLag] = {}
    for source in sources:
        latest = _positions(source.get("latestOffset"))
        for (topic, partition), position in _positions(source.get("endOffset")).items():
            end = latest.get((topic, partition))
            lag = PartitionLag(topic, partition, position, None if end is None else max(0, end - position))
            other = found.get((topic, partition))
            if other is None or position < other.position:
                found[topic, partition] = lag
    return tuple(found[place] for place in sorted(found))


def _positions(offsets: object) -> dict[tuple[str, int], int]:
    """Parses `{"orders": {"0": 23}}`; offsets of other sources have no partitions."""
    if not isinstance(offsets, Mapping):
        return {}
    return {
        (topic, int(partition)): position
        for topic, partitions in offsets.items()
        if isinstance(partitions, Mapping)
        for partition, position in partitions.items()
        if partition.isdecimal() and isinstance(position, int)
    }


def count_new_events(newest_first: Iterable[tuple[str, str]], last: tuple[str, str] | None) -> int:
    """Number of events after `last`, or of all events if `last` is gone. Stops reading at `last`."""
    count = 0
    for event in newest_first:
        if event == last:
            return count
        count += 1
    return count
