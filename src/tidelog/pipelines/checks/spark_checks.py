"""Checks of a pipeline by Spark, which analyses its SQL and expressions without running them."""

import tempfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from tidelog.pipelines.definition.model import FormatKind, Pipeline, Sink, TopicSink, TopicSource, output_mode_of
from tidelog.pipelines.definition.toml_fields import Diagnostics
from tidelog.pipelines.definition.toml_lines import KeyPath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.pipelines.running.failures import PipelineFailed
    from tidelog.pipelines.running.views import Views

AskSpark: TypeAlias = Callable[[Pipeline, Diagnostics, Mapping[str, int]], None]
"""Reports what Spark finds wrong. The last argument has the position of each view among the [[steps]]."""


def ask_spark(pipeline: Pipeline, diagnostics: Diagnostics, step_positions: Mapping[str, int]) -> None:
    """Starts Spark for one analysis. Its log goes to a temporary file, nothing to the terminal."""
    from tidelog.pipelines.running.failures import PipelineFailed, failure_of_exception
    from tidelog.pipelines.running.pipeline_run import logging_to, start_bare_session
    from tidelog.pipelines.running.pipeline_state import PipelineState
    from tidelog.pipelines.running.run_options import RunOptions

    with tempfile.TemporaryDirectory(prefix="tidelog-check-") as directory:
        state = PipelineState(directory, pipeline.name)
        state.directory.mkdir(parents=True)
        with logging_to(state.log_file):
            try:
                spark = start_bare_session(pipeline, RunOptions(directory), state)
            except PipelineFailed as failed:
                diagnostics.report((), str(failed))
                return
            except Exception as error:  # noqa: BLE001 - whatever keeps Spark from starting is the user's to know
                diagnostics.report((), f"Spark does not start: {failure_of_exception(error).sentence}")
                return
            try:
                Analysis(spark, pipeline, diagnostics, step_positions).check()
            finally:
                spark.stop()


class Analysis:
    def __init__(
        self, spark: "SparkSession", pipeline: Pipeline, diagnostics: Diagnostics, step_positions: Mapping[str, int]
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._diagnostics = diagnostics
        self._positions = step_positions

    def check(self) -> None:
        from tidelog.pipelines.running.views import Views

        views = Views(self._spark, self._pipeline, self._no_records, self._on_failed)
        for sink in self._pipeline.sinks:
            if views.has(sink.of):
                self._check_sink(sink, views)

    def _no_records(self, source: TopicSource) -> "DataFrame":
        """A stream with the columns of the source that needs no brokers. It is never started."""
        from tidelog.pipelines.running.views import READ_COLUMNS
        from tidelog.spark.source.row_schema import schema_text

        has_headers = any(name.lower() == "includeheaders" for name in source.options)
        is_raw = source.format.kind is FormatKind.RAW
        columns = schema_text(has_headers=has_headers) if is_raw else READ_COLUMNS
        return self._spark.readStream.format("rate").load().selectExpr(*_null_columns(columns))

    def _check_sink(self, sink: Sink, views: "Views") -> None:
        from tidelog.pipelines.running.failures import PipelineFailed
        from tidelog.pipelines.running.views import with_step_named

        try:
            with_step_named("", lambda: _analyse(sink, views.of_sink(sink)))
        except PipelineFailed as failed:
            self._report(("sinks", sink.name), failed)

    def _on_failed(self, view: str, failed: "PipelineFailed") -> None:
        if view in self._positions:
            path: KeyPath = ("steps", self._positions[view])
            self._report((*path, "sql") if self._diagnostics.lines.has((*path, "sql")) else path, failed)
        else:
            self._report(("sources", view), failed)

    def _report(self, path: KeyPath, failed: "PipelineFailed") -> None:
        from tidelog.pipelines.running.failures import line_in_sql

        sentence = str(failed).partition(": ")[2]
        line = line_in_sql(str(failed.__cause__)) if path[-1] == "sql" else None
        if line is None:
            self._diagnostics.report(path, sentence)
        else:
            sentence = sentence.removesuffix(f" (line {line} of the SQL)")
            self._diagnostics.report(path, sentence, line=self._diagnostics.lines.within(path, line - 1))


def _null_columns(ddl: str) -> list[str]:
    from pyspark.sql.types import StructType

    fields = StructType.fromDDL(ddl).fields  # type: ignore[attr-defined]
    return [f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in fields]


def _analyse(sink: Sink, frame: "DataFrame") -> None:
    """Raises what Spark would raise when the query starts."""
    from tidelog.pipelines.running.topic_sink import records
    from tidelog.pipelines.tables.exactly_once_writer import columns_of
    from tidelog.pipelines.tables.row_preparation import with_columns_of
    from tidelog.pipelines.tables.upsert_writer import changes_of

    if isinstance(sink, TopicSink):
        reject_unsupported(records(frame, sink), sink.output_mode)
        return
    rows = with_columns_of(sink, frame)
    if sink.upsert is not None:
        changes_of(rows, sink.upsert)
    columns_of(rows)
    reject_unsupported(frame, output_mode_of(sink))


def reject_unsupported(frame: "DataFrame", output_mode: str) -> None:
    """Operations that streams do not have, such as sorting. Spark's own check, which it makes when a query starts."""
    from pyspark.errors import AnalysisException

    java = frame.sparkSession._jvm
    assert java is not None
    try:
        mode = getattr(java.org.apache.spark.sql.streaming.OutputMode, output_mode.capitalize())()
        checker = java.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
    except AnalysisException:
        raise
    except TypeError:
        return  # another version of Spark has no such checker: the query's start finds the mistake
