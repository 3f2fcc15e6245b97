"""Runner of a pipeline's streaming queries: starts them, follows them, restarts after transient failures, stops."""

import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

from tidelog.pipelines.checks.reference_checks import is_bounded
from tidelog.pipelines.definition.model import (
    AnyPipeline,
    ModulePipeline,
    Sink,
    Step,
    TableSink,
    TopicSource,
    output_mode_of,
    query_of,
)
from tidelog.pipelines.definition.python_modules import import_pipeline_module
from tidelog.pipelines.running.broker_probe import BrokerProbe, bootstraps_of, reason_of_silence
from tidelog.pipelines.running.dead_letters import dead_letter_writer, query_name, sources_with_dead_letters
from tidelog.pipelines.running.expectations import violation_writer
from tidelog.pipelines.running.failures import Failure, PipelineFailed, Restarts, StepFailed, failure_of, with_causes
from tidelog.pipelines.running.pipeline_state import PIPELINE_NAME, PipelineState
from tidelog.pipelines.running.progress import (
    PipelineProgress,
    QueryKind,
    QueryMeter,
    QueryState,
    count_new_events,
    is_batch,
    violations_of,
)
from tidelog.pipelines.running.read_once import one_row_stream
from tidelog.pipelines.running.shared_batches import shared_batches
from tidelog.pipelines.running.table_batches import table_batches
from tidelog.pipelines.running.topic_sink import topic_writer
from tidelog.pipelines.running.views import Views, pickle_modules_by_value, with_step_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

logger = logging.getLogger(__name__)

POLL_S = 0.2
STOPPING_POLL_S = 0.02
"""Short, to cut off a micro-batch that starts while we stop."""
STOP_LIMIT_S = 60.0
INITIALISING_LIMIT_S = 15.0
INITIALISING = "Initializing"
ASKING = "Getting offsets"
NO_DATA = "Waiting for data"
PROCESSING = "Processing new data"
LONG_BATCH_S = 5.0
SILENT_AFTER_S = 8.0
"""Brokers may be away longer than this before a query fails: the user sees what the query waits for."""

Clock: TypeAlias = Callable[[], float]
Say: TypeAlias = Callable[[str], None]
ProgressListener: TypeAlias = Callable[[PipelineProgress], None]
Written: TypeAlias = "SimpleQueue[int]"
"""Rows that a sink counts itself, in the thread that Spark calls it from."""


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    name: str
    kind: QueryKind
    make: "Callable[[Written], DataStreamWriter]"
    """Called for each start: the Python state of a writer must not survive a failure."""
    is_bounded: bool = False
    """Its rows end, and the query with them."""


class Runner:
    def __init__(
        self,
        spark: "SparkSession",
        pipeline: AnyPipeline,
        *,
        state: PipelineState,
        once: bool,
        say: Say = lambda line: None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._state = state
        self._is_once = once
        self._say = say
        self._clock = clock
        self._started_s = clock()
        self._checkpoint = pipeline.checkpoint or str(state.checkpoint)
        self._runs: list[QueryRun] = []
        self._is_stopping = False
        self._latest = PipelineProgress(pipeline.name, ())
        self._probe = BrokerProbe(bootstraps_of(pipeline), reason_of_silence)

    def start(self) -> None:
        """Raises PipelineFailed if a source, step or sink cannot be created."""
        for planned in self._plan_with_retries():
            run = QueryRun(planned, self._start_query, self._clock)
            self._runs.append(run)
        for run in self._runs:
            self._start(run)
            self._wait_until_initialised(run)

    def _wait_until_initialised(self, run: "QueryRun") -> None:
        """Starts queries one after the other: Spark gives the Python process of a source only ten seconds to start."""
        deadline_s = self._clock() + INITIALISING_LIMIT_S
        while run.is_initialising() and not self._is_stopping and self._clock() < deadline_s:
            time.sleep(STOPPING_POLL_S)

    def run(
        self, on_progress: ProgressListener = lambda progress: None, on_stopping: Callable[[], None] = lambda: None
    ) -> None:
        """Until all input is processed (`once`) or a stop is requested; raises PipelineFailed.

        `on_progress` is called several times a second, `on_stopping` when the shutdown begins.
        """
        try:
            while not self._is_stopping and self._poll():
                on_progress(self._measured())
                time.sleep(POLL_S)
            if self._is_stopping:
                on_stopping()
        finally:
            self._stop_gracefully(on_progress)
            on_progress(self._measured())

    def request_stop(self) -> None:
        """Safe to call from a signal handler: `run` returns after the current micro-batches."""
        self._is_stopping = True

    def progress(self) -> PipelineProgress:
        """As of the last poll; callable from any thread."""
        return self._latest

    def _measured(self) -> PipelineProgress:
        now_s = self._clock()
        queries = tuple(run.meter.progress(now_s) for run in self._runs)
        self._latest = PipelineProgress(self._pipeline.name, queries, now_s - self._started_s)
        return self._latest

    def _plan_with_retries(self) -> list[PlannedQuery]:
        """With retries: Spark plans sources in Python processes, which may crash."""
        restarts = Restarts()
        while True:
            try:
                return self._planned()
            except StepFailed as failed:
                pause_s = restarts.on_failure() if failed.is_transient else None
                if pause_s is None:
                    raise
                logger.exception("pipeline did not start")
                self._say(f"{failed}; retrying in {pause_s:g} s")
                time.sleep(pause_s)

    def _planned(self) -> list[PlannedQuery]:
        if isinstance(self._pipeline, ModulePipeline):
            return self._planned_by_module(self._pipeline)
        pipeline = self._pipeline
        views = Views(self._spark, pipeline, one_row=partial(one_row_stream, self._spark, self._checkpoint))
        planned = [
            PlannedQuery(
                query_name(source.name),
                QueryKind.DEAD_LETTERS,
                partial(_dead_letter_writer, views, source),
            )
            for source in sources_with_dead_letters(pipeline)
        ]
        planned += [
            PlannedQuery(
                f"{step.view}.violations",
                QueryKind.DEAD_LETTERS,
                partial(_step_violations, views, step),
                is_bounded(pipeline, step.view),
            )
            for step in pipeline.steps
            if step.quality.has_dead_letters()
        ]
        planned += [
            PlannedQuery(
                f"sink-{sink.name}.violations",
                QueryKind.DEAD_LETTERS,
                partial(_sink_violations, views, sink),
                is_bounded(pipeline, sink.of),
            )
            for sink in pipeline.sinks
            if sink.quality.has_dead_letters()
        ]
        queries: dict[str, list[Sink]] = {}
        for sink in pipeline.sinks:
            queries.setdefault(query_of(sink), []).append(sink)
        return planned + [
            PlannedQuery(
                name, QueryKind.SINK, partial(self._sink_writer, views, sinks), is_bounded(pipeline, sinks[0].of)
            )
            for name, sinks in queries.items()
        ]

    def _sink_writer(self, views: Views, sinks: Sequence[Sink], written: Written) -> "DataStreamWriter":
        sink = sinks[0]
        frame = views.of_sink(sink)
        if not frame.isStreaming:
            raise StepFailed(
                f"sink {sink.name}: view {sink.of} is computed from files and tables that are read for joins; a sink"
                " needs a streaming source"
            )
        if sink.query is not None:
            shared = shared_batches(self._pipeline.name, sinks, self._state.directory, written.put)
            return frame.writeStream.foreachBatch(shared).outputMode(output_mode_of(sink))
        if isinstance(sink, TableSink):
            batches = table_batches(self._pipeline.name, sink, self._state.directory, written.put)
            return frame.writeStream.foreachBatch(batches).outputMode(output_mode_of(sink))
        return topic_writer(frame, sink, written.put)

    def _planned_by_module(self, pipeline: ModulePipeline) -> list[PlannedQuery]:
        """Called once: `build` may have side effects."""
        module = import_pipeline_module(pipeline.file)
        pickle_modules_by_value(pipeline.directory)
        built: list[PlannedQuery] = []
        with_step_named("build(spark)", lambda: built.extend(_planned_writers(module.build(self._spark), pipeline)))
        return built

    def _start_query(self, planned: PlannedQuery, written: Written) -> "StreamingQuery":
        writer = planned.make(written).queryName(planned.name)
        writer = writer.option("checkpointLocation", f"{self._checkpoint}/{planned.name}")
        if self._is_once or planned.is_bounded:
            writer = writer.trigger(availableNow=True)
        elif self._pipeline.trigger_ms:
            writer = writer.trigger(processingTime=f"{self._pipeline.trigger_ms} milliseconds")
        return writer.start()

    def _poll(self) -> bool:
        """False when all queries have ended."""
        for run in self._runs:
            run.read_progress()
            if run.look_at_source():
                self._say(
                    f"{run.name}: no answer from its source for {SILENT_AFTER_S:g} s, retrying; check that the"
                    " brokers are running"
                )
            failure = run.failure()
            if failure is not None:
                self._on_failure(run, failure)
            elif run.is_due():
                logger.info("query restarted query=%s restarts=%d", run.name, run.meter.restarts)
                self._start(run)
        if any(run.is_in_long_batch() for run in self._runs):
            for sentence in self._probe.newly_silent(self._clock()):
                self._say(f"{self._pipeline.name}: {sentence}")
        return any(run.meter.state is not QueryState.DONE for run in self._runs)

    def _start(self, run: "QueryRun") -> None:
        """A start that fails for a transient reason is retried, like a query that fails later."""
        try:
            with_step_named(f"{run.meter.kind} {run.name}", run.start)
        except StepFailed as failed:
            if not failed.is_transient:
                raise
            logger.exception("query did not start query=%s", run.name)
            self._on_failure(run, Failure(str(failed).partition(": ")[2], is_transient=True))

    def _on_failure(self, run: "QueryRun", failure: Failure) -> None:
        pause_s = run.restarts.on_failure() if failure.is_transient else None
        if pause_s is None:
            run.meter.state = QueryState.FAILED
            raise PipelineFailed(f"{run.name}: {failure.sentence}")
        run.wait(pause_s)
        self._say(f"{run.name}: {failure.sentence}; restarting in {pause_s:g} s")

    def _stop_gracefully(self, on_progress: ProgressListener) -> None:
        """Lets the current micro-batches finish, within a time limit."""
        deadline_s = self._clock() + STOP_LIMIT_S
        batches = {run.name: run.batches for run in self._runs}
        active = [run for run in self._runs if run.is_active()]
        while active:
            is_late = self._clock() > deadline_s
            for run in active:
                run.read_progress()
                if is_late or run.batches > batches[run.name] or not run.is_in_batch():
                    run.stop()
            active = [run for run in active if run.is_active() and not run.is_stuck]
            on_progress(self._measured())
            time.sleep(STOPPING_POLL_S)
        for run in self._runs:
            run.finish()


def _planned_writers(built: object, pipeline: ModulePipeline) -> list[PlannedQuery]:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    writers: Mapping[str, Any] = built if isinstance(built, Mapping) else {pipeline.name: built}
    for name, writer in writers.items():
        if not isinstance(name, str) or not PIPELINE_NAME.fullmatch(name):
            raise StepFailed(f"build(spark) returned the query name {name!r}; use letters, digits, '.', '_' and '-'")
        if not isinstance(writer, DataStreamWriter):
            raise StepFailed(f"build(spark) must return DataStreamWriters, but {name} is a {type(writer).__name__}")
    return [PlannedQuery(name, QueryKind.SINK, partial(_ready_writer, writer)) for name, writer in writers.items()]


def _ready_writer(writer: "DataStreamWriter", _written: Written) -> "DataStreamWriter":
    return writer


def _dead_letter_writer(views: Views, source: TopicSource, _written: Written) -> "DataStreamWriter":
    return dead_letter_writer(views.parsed(source.name), source)


def _step_violations(views: Views, step: Step, _written: Written) -> "DataStreamWriter":
    return violation_writer(views.unfiltered(step.view), step.quality)


def _sink_violations(views: Views, sink: Sink, _written: Written) -> "DataStreamWriter":
    return violation_writer(views.frame(sink.of), sink.quality)


class QueryRun:
    """One query across all its starts."""

    def __init__(
        self, planned: PlannedQuery, start: "Callable[[PlannedQuery, Written], StreamingQuery]", clock: Clock
    ) -> None:
        self.name = planned.name
        self.meter = QueryMeter(planned.name, planned.kind, clock())
        self.restarts = Restarts()
        self.batches = 0
        self._planned = planned
        self._written: Written = SimpleQueue()
        self._start = start
        self._clock = clock
        self._query: StreamingQuery | None = None
        self._seen: tuple[str, str] | None = None
        self._start_again_s: float | None = None
        self._asking_since_s: float | None = None
        self._batch_since: tuple[int, float] | None = None
        """Batches before the current one, and when that was first seen."""
        self.is_stuck = False
        """Spark did not stop the query within its own limit: it ends with the process."""

    def start(self) -> None:
        self._start_again_s = None
        self._seen = None
        self.meter.state = QueryState.STARTING
        self._query = self._start(self._planned, self._written)

    def wait(self, pause_s: float) -> None:
        self._query = None
        self.meter.state = QueryState.WAITING
        self.meter.restarts += 1
        self._start_again_s = self._clock() + pause_s

    def is_due(self) -> bool:
        return self._start_again_s is not None and self._clock() >= self._start_again_s

    def is_active(self) -> bool:
        return self._query is not None and self._query.isActive

    def is_initialising(self) -> bool:
        return self._query is not None and self._message().startswith(INITIALISING)

    def look_at_source(self) -> bool:
        """Notes what the query does. True once each time the source has not answered for too long."""
        message = self._message() if self.is_active() else ""
        now_s = self._clock()
        self._note_batch(now_s, is_in_batch=message.startswith(PROCESSING))
        if message.startswith(NO_DATA):
            self.meter.on_waiting_for_data(now_s)
        if not message.startswith(ASKING):
            self._asking_since_s = None
            return False
        if self._asking_since_s is None:
            self._asking_since_s = now_s
        if now_s - self._asking_since_s < SILENT_AFTER_S:
            return False
        self._asking_since_s = math.inf
        return True

    def _note_batch(self, now_s: float, *, is_in_batch: bool) -> None:
        if not is_in_batch or self._batch_since is None or self._batch_since[0] != self.batches:
            self._batch_since = (self.batches, now_s) if is_in_batch else None
        if is_in_batch:
            self.meter.on_processing()

    def is_in_long_batch(self) -> bool:
        return self._batch_since is not None and self._clock() - self._batch_since[1] > LONG_BATCH_S

    def is_in_batch(self) -> bool:
        return self._query is not None and bool(self._query.status["isTriggerActive"])

    def _message(self) -> str:
        assert self._query is not None
        return str(self._query.status["message"])

    def read_progress(self) -> None:
        """Reads all events since the last poll; Spark keeps the last hundred."""
        while not self._written.empty():
            self.meter.on_written(self._written.get(), self._clock())
        if self._query is None:
            return
        events = self._query._jsq.recentProgress()
        count = len(events)
        # Backwards and only as far as needed: every access is a round trip to Java.
        new = count_new_events((_event_key(events[index]) for index in reversed(range(count))), self._seen)
        for index in range(count - new, count):
            self._on_event(json.loads(events[index].json()))
        if new:
            self._seen = _event_key(events[count - 1])

    def _on_event(self, event: Mapping[str, Any]) -> None:
        self.meter.on_progress(event, self._clock())
        if is_batch(event):
            for expectation, rows in violations_of(event.get("observedMetrics", {})).items():
                if rows:
                    logger.warning(
                        "expectation violated query=%s expectation=%s rows=%d batch=%s",
                        self.name,
                        expectation,
                        rows,
                        event.get("batchId"),
                    )
            self.batches += 1
            self.restarts.on_batch()

    def failure(self) -> Failure | None:
        """Why the query failed, once; None while it runs and after a normal end."""
        if self._query is None or self._query.isActive:
            return None
        error = self._query.exception()
        self.read_progress()
        self._query = None
        if error is None:
            self.meter.state = QueryState.DONE
            return None
        cause = getattr(error, "_cause", None)
        trace = getattr(cause, "_stackTrace", None) or ""
        logger.error("query failed query=%s\n%s\n%s", self.name, error, trace)
        return failure_of(with_causes(str(error), trace))

    def stop(self) -> None:
        assert self._query is not None
        try:
            self._query.stop()
        except Exception:
            self.is_stuck = True
            logger.exception("query did not stop query=%s", self.name)

    def finish(self) -> None:
        self.read_progress()
        self._query = None
        if self.meter.state is not QueryState.FAILED:
            self.meter.state = QueryState.DONE


def _event_key(event: Any) -> tuple[str, str]:
    return str(event.batchId()), str(event.timestamp())
