"""Prometheus metrics of a pipeline run, and the HTTP endpoint that serves them."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from tidelog.pipelines.running.progress import PipelineProgress, QueryProgress, QueryState
from tidelog.runtime.http_server import HttpServer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATH = "/metrics"
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

T = TypeVar("T")
Samples = Iterable[tuple[Mapping[str, str], float | None]]


class Metric(NamedTuple):
    name: str
    kind: str
    documentation: str
    read: Callable[[PipelineProgress], Samples]


def _each_query(value: Callable[[QueryProgress], float | None]) -> Callable[[PipelineProgress], Samples]:
    return lambda progress: [({"query": query.name}, value(query)) for query in progress.queries]


def _each_partition(progress: PipelineProgress) -> Samples:
    for query in progress.queries:
        for lag in query.lags:
            yield {"query": query.name, "topic": lag.topic, "partition": str(lag.partition)}, lag.lag


def _seconds(query: QueryProgress) -> float | None:
    return None if query.batch_duration_ms is None else query.batch_duration_ms / 1000


def _is_running(query: QueryProgress) -> int:
    return int(query.state in (QueryState.STARTING, QueryState.RUNNING, QueryState.IDLE))


METRICS: tuple[Metric, ...] = (
    Metric("uptime_seconds", "gauge", "Time since the pipeline started.", lambda progress: [({}, progress.uptime_s)]),
    Metric(
        "query_running",
        "gauge",
        "1 while the query runs, 0 while it waits for a restart and after its end.",
        _each_query(_is_running),
    ),
    Metric("rows_read_total", "counter", "Rows read since the start.", _each_query(lambda query: query.rows_in)),
    Metric("rows_written_total", "counter", "Rows written since the start.", _each_query(lambda query: query.rows_out)),
    Metric(
        "rows_read_per_second",
        "gauge",
        "Rows read per second, over the last ten seconds.",
        _each_query(lambda query: query.rows_in_per_second),
    ),
    Metric(
        "rows_written_per_second",
        "gauge",
        "Rows written per second, over the last ten seconds.",
        _each_query(lambda query: query.rows_out_per_second),
    ),
    Metric(
        "bytes_read_total", "counter", "Bytes of the record values read.", _each_query(lambda query: query.bytes_in)
    ),
    Metric(
        "bytes_read_per_second",
        "gauge",
        "Bytes of record values read per second, over the last ten seconds.",
        _each_query(lambda query: query.bytes_in_per_second),
    ),
    Metric("batches_total", "counter", "Micro-batches since the start.", _each_query(lambda query: query.batches)),
    Metric("batch_duration_seconds", "gauge", "Duration of the last micro-batch.", _each_query(_seconds)),
    Metric("lag", "gauge", "Records of the partition that have not been read yet.", _each_partition),
    Metric("state_rows", "gauge", "Rows in the state of stateful steps.", _each_query(lambda query: query.state_rows)),
    Metric(
        "state_bytes", "gauge", "Memory of the state of stateful steps.", _each_query(lambda query: query.state_bytes)
    ),
    Metric(
        "restarts_total", "counter", "Restarts after a transient failure.", _each_query(lambda query: query.restarts)
    ),
    Metric(
        "dead_letters_total",
        "counter",
        "Records sent to dead-letter topics.",
        lambda progress: [({}, progress.dead_letters)],
    ),
    Metric(
        "skipped_records_total",
        "counter",
        "Records skipped because they did not parse.",
        lambda progress: [({}, progress.skipped_records)],
    ),
    Metric(
        "violations_total",
        "counter",
        "Rows that did not meet an expectation.",
        lambda progress: [({"expectation": name}, count) for name, count in sorted(progress.violations.items())],
    ),
)


def text(progress: PipelineProgress) -> str:
    lines = []
    for metric in METRICS:
        name = f"tidelog_pipeline_{metric.name}"
        lines += [f"# HELP {name} {metric.documentation}", f"# TYPE {name} {metric.kind}"]
        for labels, value in metric.read(progress):
            if value is not None:
                lines.append(f"{name}{_labels({'pipeline': progress.name, **labels})} {value!r}")
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{','.join(pairs)}}}"


class MetricsPage:
    content_type = CONTENT_TYPE

    def __init__(self, read: Callable[[], PipelineProgress]) -> None:
        self._read = read

    def pieces(self) -> Iterator[bytes]:
        yield text(self._read()).encode()


class MetricsEndpoint:
    """Serves the page from its own thread: the main thread runs the pipeline."""

    def __init__(self, port: int, read: Callable[[], PipelineProgress], host: str = "127.0.0.1") -> None:
        """Raises OSError if the port is in use."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pipeline-metrics", daemon=True)
        self._thread.start()
        try:
            self._server = self._call(HttpServer.listen(host, port))
            self._call(self._server.start({PATH: MetricsPage(read)}))
        except BaseException:
            self._end_loop()
            raise
        self.address = f"http://{host}:{self._server.port}{PATH}"

    def close(self) -> None:
        self._call(self._server.close())
        self._end_loop()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
