"""Progress of all streaming queries of a session, seen by a listener of Spark and served to Prometheus."""

import json
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from tidelog.pipelines.running.metrics import MetricsEndpoint
from tidelog.pipelines.running.progress import PipelineProgress, QueryKind, QueryMeter, QueryState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

ENDED_QUERIES_MAX = 100
"""Queries that have ended are shown until there are more than this."""


class QueryWatch(StreamingQueryListener):
    """Spark calls it from a thread of its own."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._started_s = clock()
        self._lock = threading.Lock()
        self._meters: dict[str, QueryMeter] = {}
        self._endpoint: MetricsEndpoint | None = None

    @property
    def address(self) -> str | None:
        """Of the metrics, if they are served."""
        return None if self._endpoint is None else self._endpoint.address

    def serve(self, port: int) -> None:
        """Raises OSError if the port is in use."""
        self._endpoint = MetricsEndpoint(port, self.progress)

    def close(self) -> None:
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None

    def progress(self) -> PipelineProgress:
        """Of all queries; callable from any thread."""
        now_s = self._clock()
        with self._lock:
            queries = tuple(meter.progress(now_s) for meter in self._meters.values())
        return PipelineProgress(self._name, queries, now_s - self._started_s)

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:  # noqa: N802 - PySpark's name
        self.started(str(event.id), event.name)

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802
        self.progressed(str(event.progress.id), json.loads(event.progress.json))

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:  # noqa: N802
        self.idle(str(event.id))

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:  # noqa: N802
        self.ended(str(event.id), has_failed=event.exception is not None)

    def started(self, query_id: str, name: str | None) -> None:
        with self._lock:
            if query_id in self._meters:
                self._meters[query_id].restarts += 1
                self._meters[query_id].state = QueryState.STARTING
            else:
                self._meters[query_id] = QueryMeter(name or query_id, QueryKind.SINK, self._clock())
            self._forget_ended()

    def progressed(self, query_id: str, event: dict[str, Any]) -> None:
        with self._lock:
            if query_id in self._meters:
                self._meters[query_id].on_progress(event, self._clock())

    def idle(self, query_id: str) -> None:
        with self._lock:
            if query_id in self._meters:
                self._meters[query_id].on_waiting_for_data(self._clock())

    def ended(self, query_id: str, *, has_failed: bool) -> None:
        with self._lock:
            if query_id in self._meters:
                self._meters[query_id].state = QueryState.FAILED if has_failed else QueryState.DONE

    def _forget_ended(self) -> None:
        over = (QueryState.DONE, QueryState.FAILED)
        ended = [query_id for query_id, meter in self._meters.items() if meter.state in over]
        for query_id in ended[: max(0, len(ended) - ENDED_QUERIES_MAX)]:
            del self._meters[query_id]


def watch(spark: "SparkSession", metrics_port: int | None = None) -> QueryWatch:
    """Follows all streaming queries of the session from now on; `metrics_port` serves them to Prometheus."""
    found = QueryWatch(str(spark.conf.get("spark.app.name", "spark")))
    if metrics_port is not None:
        found.serve(metrics_port)
    spark.streams.addListener(found)
    return found
