"""`tidelog pipeline replay`: rebuild of a pipeline's tables from its topics."""

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.pipelines.checks.reference_checks import sources_of
from tidelog.pipelines.definition.mistakes import listed, nearest
from tidelog.pipelines.definition.model import (
    AnyPipeline,
    JdbcSource,
    ModulePipeline,
    Pipeline,
    PythonStep,
    TableSink,
    query_of,
)
from tidelog.pipelines.replay.query_checkpoint import BadCheckpoint, QueryCheckpoint
from tidelog.pipelines.replay.replay_progress import progress_shown
from tidelog.pipelines.replay.replay_start import ReplayRejected, Start, parse_start
from tidelog.pipelines.replay.table_rebuild import Checkpoint, TableState, rebuild, table_state
from tidelog.pipelines.replay.topic_ranges import Ranges, plan, plan_further, reject_state, rows_of
from tidelog.pipelines.replay.upsert_rebuild import rebuilt
from tidelog.pipelines.running.failures import PipelineFailed, failure_of
from tidelog.pipelines.running.pipeline_run import INTERRUPTED, logging_to, start_session
from tidelog.pipelines.running.pipeline_state import PipelineState
from tidelog.pipelines.running.run_options import RunOptions
from tidelog.pipelines.running.views import Views
from tidelog.pipelines.tables.continuity import application_of
from tidelog.pipelines.tables.exactly_once_writer import columns_of, table_of, write_by_tasks
from tidelog.pipelines.tables.file_facts import FileFacts
from tidelog.pipelines.tables.files import FileLayout
from tidelog.pipelines.tables.row_preparation import with_columns_of
from tidelog.pipelines.tables.schema_changes import difference
from tidelog.pipelines.tables.table import Before, Table, nothing
from tidelog.spark.offset_json import Positions
from tidelog.terminal.plurals import plural

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)


def replay_pipeline(
    pipeline: AnyPipeline,
    start_text: str | None,
    options: RunOptions,
    *,
    sink_name: str | None = None,
    may_leave_out: bool = False,
) -> int:
    """Returns the exit code. Raises StateRejected if the pipeline has never run here, or is already being replayed."""
    state = PipelineState(options.state_directory, pipeline.name)
    with state.replaying(pipeline.file), logging_to(state.log_file), ExitStack() as stack:
        try:
            replays = planned(pipeline, start_text, state, stack, sink_name, may_leave_out=may_leave_out)
            _say(f"{pipeline.name}: starting Spark")
            spark = start_session(pipeline, options, state)
            stack.callback(spark.stop)
            for replay in replays:
                replay.run(spark)
        except ReplayRejected as rejected:
            logger.info("replay refused reason=%s", rejected)
            return _fail(pipeline.name, str(rejected))
        except PipelineFailed as failed:
            logger.exception("replay failed")
            return _fail(pipeline.name, str(failed))
        except KeyboardInterrupt:
            _fail(pipeline.name, "interrupted; tables that were not reported as rebuilt are unchanged")
            return INTERRUPTED
        except Exception as error:
            logger.exception("replay failed")
            sentence = failure_of(f"{type(error).__module__}.{type(error).__name__}: {error}").sentence
            return _fail(pipeline.name, f"{sentence}\n(see {state.log_file})")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _fail(name: str, sentence: str) -> int:
    sys.stderr.write(f"{name}: {sentence}\n")
    return 1


def planned(
    pipeline: AnyPipeline,
    start_text: str | None,
    state: PipelineState,
    stack: ExitStack,
    sink_name: str | None = None,
    *,
    may_leave_out: bool = False,
    say: Callable[[str], None] = _say,
) -> "list[Replay]":
    """Validates the replay of all sinks, as far as possible without Spark, before the first one is replayed."""
    start = parse_start(start_text)
    reject_older_definition(state, definition_files(pipeline))
    tables = table_sinks(pipeline, sink_name)
    for declared, sink in tables:
        reject_read_once(declared, sink)
    replays = [Replay(declared, sink, start, state, stack, say=say) for declared, sink in tables]
    for replay in replays:
        replay.check(may_leave_out=may_leave_out)
    return replays


def table_sinks(pipeline: AnyPipeline, wanted: str | None) -> Sequence[tuple[Pipeline, TableSink]]:
    if isinstance(pipeline, ModulePipeline):
        raise ReplayRejected(
            f"{pipeline.file} is a Python pipeline, whose tables are unknown: replay needs a TOML file"
        )
    tables = {sink.name: sink for sink in pipeline.sinks if isinstance(sink, TableSink)}
    if not tables:
        raise ReplayRejected("it has no tables; topics are never replayed")
    if wanted is None:
        return [(pipeline, sink) for sink in tables.values()]
    if wanted not in tables:
        hint = nearest(wanted, tables) or f"; table sinks are {listed(tables, 'and')}"
        raise ReplayRejected(f"it has no table sink '{wanted}'{hint}")
    return [(pipeline, tables[wanted])]


def reject_read_once(pipeline: Pipeline, sink: TableSink) -> None:
    for source in sources_of(pipeline, sink.of):
        if isinstance(source, JdbcSource) and source.is_once:
            raise ReplayRejected(
                f"sink {sink.name} reads the database of source {source.name} once: rename the sink and its table to "
                "read it again"
            )


def definition_files(pipeline: AnyPipeline) -> list[Path]:
    """The pipeline file, and the modules beside it that its steps call."""
    steps = pipeline.steps if isinstance(pipeline, Pipeline) else ()
    names = {step.function.partition(":")[0].replace(".", "/") for step in steps if isinstance(step, PythonStep)}
    beside = [pipeline.directory / f"{name}.py" for name in sorted(names)]
    return [pipeline.file, *(file for file in beside if file.exists())]


def reject_older_definition(state: PipelineState, files: Iterable[Path]) -> None:
    """A running pipeline uses the definition as of its start; mixing its rows with new ones would be wrong."""
    status = state.status()
    if status is None or state.holder() is None:
        return
    started_s = datetime.fromisoformat(status.started_at).timestamp()
    for file in (file for file in files if file.stat().st_mtime > started_s):
        raise ReplayRejected(
            f"the pipeline is running, but {file} was changed after its start: stop it (`tidelog pipeline stop "
            f"{state.name}`), replay, and run it again"
        )


class Replay:
    """Replay of one table."""

    def __init__(
        self,
        pipeline: Pipeline,
        sink: TableSink,
        start: Start,
        state: PipelineState,
        stack: ExitStack,
        *,
        say: Callable[[str], None] = _say,
        before: Before = nothing,
    ) -> None:
        self._pipeline = pipeline
        self._sink = sink
        self._start = start
        self._state = state
        self._say = say
        checkpoint = QueryCheckpoint(f"{pipeline.checkpoint or state.checkpoint}/{query_of(sink)}")
        application_id = application_of(pipeline.name, sink.name, self._query_id(checkpoint))
        self._checkpoint: Checkpoint = checkpoint
        self._table: Table = stack.enter_context(closing(table_of(sink, application_id, state.directory, before)))

    def _query_id(self, checkpoint: QueryCheckpoint) -> str:
        try:
            return checkpoint.query_id()
        except BadCheckpoint as bad:
            raise ReplayRejected(f"sink {self._sink.name}: {bad}") from bad

    def check(self, *, may_leave_out: bool) -> None:
        """Raises ReplayRejected for everything that can be checked without Spark."""
        if self._sink.upsert is not None and self._state.holder() is not None:
            raise ReplayRejected(
                f"sink {self._sink.name} has mode = 'upsert', whose files change with every batch: stop the pipeline "
                f"(`tidelog pipeline stop {self._state.name}`), replay, and run it again"
            )
        others = self._table.other_owners() if self._table.schema() is not None else []
        if others:
            raise ReplayRejected(
                f"table '{self._sink.location}' also holds rows of {listed(others, 'and')}, which would be lost: only "
                "a table with a single sink can be replayed"
            )
        now = self._table_state()
        left_out = plan(self._pipeline, self._start, now.end).left_out
        if left_out and now.contents.files and not may_leave_out:
            where = ", ".join(f"{key} from offset {offset}" for key, offset in sorted(left_out.items()))
            raise ReplayRejected(
                f"table '{self._sink.location}' may have rows of records before the start of the replay ({where}); "
                "these rows would be lost: repeat with --yes to accept that"
            )

    def run(self, spark: "SparkSession") -> None:
        reject_state(Views(spark, self._pipeline).frame(self._sink.of), self._sink.name)
        columns = columns_of(self._rows(spark, {}))
        self._reject_new_columns_of_a_running_pipeline(columns)
        if self._table.schema() is None:
            self._table.create(columns)
        begun = self._table_state()
        layout = self._table.replacement_layout(columns, begun.batch_id)
        logger.info(
            "replay started table=%s batch=%d files=%d", self._sink.location, begun.batch_id, len(begun.contents.files)
        )
        write = partial(self._write, spark, layout)
        keeps_later = self._sink.upsert is None
        files = rebuild(self._table, layout, self._checkpoint, begun, write, self._print, keeps_later=keeps_later)
        rows = sum(file.rows for file in files)
        logger.info("replay finished table=%s rows=%d files=%d", self._sink.location, rows, len(files))
        counts = f"{plural(rows, 'row')} in {plural(len(files), 'file')}"
        self._print(f"table '{self._sink.location}' was rebuilt, {counts}")

    def _write(
        self, spark: "SparkSession", layout: FileLayout, after: Positions | None, until: Positions
    ) -> list[FileFacts]:
        if after is None:
            ranges = plan(self._pipeline, self._start, until).ranges
        elif self._sink.upsert is not None:
            raise PipelineFailed("the table was not changed: others have written to it meanwhile; replay again")
        else:
            ranges = plan_further(self._pipeline, after, until)
        records = sum(found.records for found in ranges.values())
        self._print(f"reading {plural(records, 'record')}")
        if not records:
            return []
        with progress_shown(spark, self._sink.name, records):
            return write_by_tasks(self._rows(spark, ranges), layout)

    def _print(self, line: str) -> None:
        self._say(f"{self._sink.name}: {line}")

    def _rows(self, spark: "SparkSession", ranges: Ranges) -> "DataFrame":
        rows = with_columns_of(self._sink, rows_of(spark, self._pipeline, self._sink, ranges))
        return rows if self._sink.upsert is None else rebuilt(rows, self._sink.upsert)

    def _table_state(self) -> TableState:
        try:
            return table_state(self._table, self._checkpoint)
        except BadCheckpoint as bad:
            raise ReplayRejected(f"sink {self._sink.name}: {bad}") from bad

    def _reject_new_columns_of_a_running_pipeline(self, columns: "pa.Schema") -> None:
        table = self._table.schema()
        if table is None or self._state.holder() is None:
            return
        if found := difference(table, columns):
            raise ReplayRejected(
                f"the rows have other columns than table '{self._sink.location}' ({found}), and the running pipeline "
                f"does not have them: stop it (`tidelog pipeline stop {self._state.name}`), replay, and run it again"
            )
