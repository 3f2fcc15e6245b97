"""Sources and steps as Spark views: each step reads earlier views by name."""

import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tidelog.pipelines.checks.reference_checks import reads
from tidelog.pipelines.definition.model import (
    BadRecords,
    DeduplicateStep,
    FileSource,
    FormatKind,
    JdbcSource,
    Pipeline,
    PythonStep,
    Sink,
    Source,
    SqlStep,
    Step,
    TopicSource,
    Watermark,
    WindowStep,
)
from tidelog.pipelines.definition.python_modules import BadFunction, load_function
from tidelog.pipelines.formats import FormatError, parse
from tidelog.pipelines.running.expectations import counted_and_kept
from tidelog.pipelines.running.failures import BAD_RECORD, PipelineFailed, StepFailed, step_failure
from tidelog.pipelines.running.progress import SOURCE_PREFIX
from tidelog.pipelines.running.read_once import read_once
from tidelog.pipelines.running.topic_sink import SOURCE_FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ReadTopic: TypeAlias = "Callable[[TopicSource], DataFrame]"
OneRow: TypeAlias = "Callable[[], DataFrame]"
"""Makes a stream that has one row, once."""
OnFailed: TypeAlias = Callable[[str, PipelineFailed], None]
"""Called with the name of the view and the reason."""

READ_COLUMNS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
"""Headers and timestamp type are not needed if the value is parsed."""
WATERMARK_METADATA = "spark.watermarkDelayMs"
FILE_FORMATS = {
    FormatKind.RAW: "text",
    FormatKind.JSON: "json",
    FormatKind.CSV: "csv",
    FormatKind.PARQUET: "parquet",
}
FILE_OPTIONS: Mapping[FormatKind, Mapping[str, str]] = {
    FormatKind.JSON: {"mode": "FAILFAST"},
    FormatKind.CSV: {"mode": "FAILFAST", "header": "true", "enforceSchema": "false"},
}


class Views:
    """DataFrames of a pipeline by view name."""

    def __init__(
        self,
        spark: "SparkSession",
        pipeline: Pipeline,
        read: "ReadTopic | None" = None,
        on_failed: OnFailed | None = None,
        one_row: "OneRow | None" = None,
    ) -> None:
        """`read` overrides how topics are read, as replays need it. With `on_failed`, a view that cannot be made is
        left out, and so are those that read it; otherwise the first failure is raised. Without `one_row`, tables of
        databases that are read once are streams that can be analysed, but not started."""
        self._spark = spark
        self._pipeline = pipeline
        self._read_topic = read or partial(read_topic, spark)
        self._on_failed = on_failed
        self._one_row = one_row or spark.readStream.format("rate").load
        self._frames: dict[str, DataFrame] = {}
        self._parsed: dict[str, DataFrame] = {}
        self._unfiltered: dict[str, DataFrame] = {}
        for source in pipeline.sources:
            self._add(source.name, f"source {source.name}", partial(self._of_source, source))
        for step in pipeline.steps:
            if on_failed is None or self._has_all(reads(step)):
                self._add(step.view, f"step {step.view}", partial(self._of_step, step))

    def has(self, view: str) -> bool:
        return view in self._frames

    def _has_all(self, views: Iterable[str]) -> bool:
        made = set(map(str.lower, self._frames))
        return all(view.lower() in made for view in views)

    def frame(self, view: str) -> "DataFrame":
        return self._frames[view]

    def parsed(self, source: str) -> "DataFrame":
        """Including records that did not parse, with their errors; both are counted."""
        return self._parsed[source]

    def _add(self, view: str, where: str, make: "Callable[[], DataFrame]") -> None:
        try:
            with_step_named(where, lambda: self._keep(view, make()))
        except PipelineFailed as failed:
            if self._on_failed is None:
                raise
            self._on_failed(view, failed)

    def _keep(self, view: str, frame: "DataFrame") -> None:
        frame.createOrReplaceTempView(view)
        self._frames[view] = frame

    def _of_source(self, source: Source) -> "DataFrame":
        if isinstance(source, FileSource):
            frame = read_files(self._spark, source)
        elif isinstance(source, JdbcSource):
            frame = read_database(self._spark, source)
            frame = read_once(frame, self._one_row()) if source.is_once else frame
        else:
            frame = self._of_topic(source)
        return _with_watermark(frame, source.watermark)

    def _of_topic(self, source: TopicSource) -> "DataFrame":
        records = self._read_topic(source)
        if source.format.kind is FormatKind.RAW:
            return records
        self._parsed[source.name] = counted(parse(records, source.format), source.name)
        return good_rows(self._parsed[source.name], source.bad_records)

    def of_sink(self, sink: Sink) -> "DataFrame":
        """The rows that the sink writes."""
        return counted_and_kept(self._frames[sink.of], sink.quality, sink.name)

    def unfiltered(self, step: str) -> "DataFrame":
        """The view of a step with the rows that its expectations remove."""
        return self._unfiltered[step]

    def _of_step(self, step: Step) -> "DataFrame":
        self._unfiltered[step.view] = frame = self._made_by(step)
        return counted_and_kept(frame, step.quality, step.view)

    def _made_by(self, step: Step) -> "DataFrame":
        match step:
            case SqlStep():
                return self._spark.sql(step.sql)
            case PythonStep():
                return call_step(self._frames[step.of], step, self._pipeline.directory)
            case WindowStep():
                return windowed(self._frames[step.of], step)
            case DeduplicateStep():
                return deduplicated(self._frames[step.of], step)


def with_step_named(where: str, work: Callable[[], None]) -> None:
    """Turns any error into a StepFailed whose message begins with `where`."""
    try:
        work()
    except PipelineFailed:
        raise
    except (FormatError, BadFunction) as error:
        raise StepFailed(f"{where}: {error}") from error
    except Exception as error:
        raise step_failure(where, _error_text(error)) from error


def _error_text(error: Exception) -> str:
    """Errors of user code with their traceback; Spark's errors have everything in their message."""
    if type(error).__module__.partition(".")[0] in ("pyspark", "py4j"):
        return f"{type(error).__name__}: {error}"
    return "".join(traceback.format_exception(error))


def read_topic(spark: "SparkSession", source: TopicSource) -> "DataFrame":
    reader = spark.readStream.format(SOURCE_FORMAT).options(**topic_options(source))
    if source.format.kind is not FormatKind.RAW:
        reader = reader.schema(READ_COLUMNS)
    return reader.load()


def topic_options(source: TopicSource) -> dict[str, str]:
    options = {"kafka.bootstrap.servers": source.bootstrap}
    if source.pattern is not None:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = ",".join(source.topics)
    if source.starting in ("earliest", "latest"):
        options["startingOffsets"] = source.starting
    else:
        moment = datetime.fromisoformat(source.starting)
        options["startingTimestamp"] = str(round(moment.timestamp() * 1000))
        options["startingOffsetsByTimestampStrategy"] = "latest"
    return options | dict(source.options)


def counted(parsed: "DataFrame", source: str) -> "DataFrame":
    """Counting also prevents double parsing: Spark does not push filters on the error below it."""
    from pyspark.sql import functions as F  # noqa: N812

    rows, bad = F.count(F.lit(1)).alias("rows"), F.count("_error").alias("bad")
    size = F.sum(F.octet_length("_value")).alias("bytes")
    return parsed.observe(f"{SOURCE_PREFIX}{source}", rows, bad, size)


def good_rows(parsed: "DataFrame", bad_records: BadRecords) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    is_good = F.col("_error").isNull()
    if bad_records is BadRecords.FAIL:
        place = F.concat(F.col("_topic"), F.lit("-"), F.col("_partition"), F.lit(" at offset "), F.col("_offset"))
        sentence = F.concat(F.lit(BAD_RECORD), place, F.lit(": "), F.col("_error"))
        is_good = F.when(is_good, F.lit(True)).otherwise(F.raise_error(sentence).cast("boolean"))
    return parsed.where(is_good).drop("_error", "_value")


def read_files(spark: "SparkSession", source: FileSource) -> "DataFrame":
    kind = source.format.kind
    if kind not in FILE_FORMATS:
        raise FormatError(f"files cannot be {kind}; formats are {', '.join(FILE_FORMATS)}")
    options = {**FILE_OPTIONS.get(kind, {}), **source.format.options}
    schema, path = source.format.schema, path_for_hadoop(source.path)
    if not source.is_stream:
        reader = spark.read.format(FILE_FORMATS[kind]).options(**options)
        return (reader.schema(schema) if schema else reader).load(path)
    shape = schema or spark.read.format(FILE_FORMATS[kind]).options(**options).load(path).schema
    return spark.readStream.format(FILE_FORMATS[kind]).options(**options).schema(shape).load(path)


def path_for_hadoop(path: str) -> str:
    """Hadoop's client of S3 has the scheme s3a."""
    return path.replace("s3://", "s3a://", 1) if path.startswith("s3://") else path


def read_database(spark: "SparkSession", source: JdbcSource) -> "DataFrame":
    given = {
        "dbtable": source.table,
        "query": source.query,
        "user": source.user,
        "password": source.password,
        **source.options,
    }
    options = {name: value for name, value in given.items() if value is not None}
    return spark.read.format("jdbc").option("url", source.url).options(**options).load()


def _with_watermark(frame: "DataFrame", watermark: Watermark | None) -> "DataFrame":
    return frame if watermark is None else frame.withWatermark(watermark.column, watermark.delay)


def call_step(frame: "DataFrame", step: PythonStep, directory: Path) -> "DataFrame":
    from pyspark.sql import DataFrame

    function = load_function(step.function, directory)
    pickle_modules_by_value(directory)
    made = function(frame, **step.arguments)
    if not isinstance(made, DataFrame):
        raise BadFunction(f"{step.function} returned {type(made).__name__}, not a DataFrame")
    return made


def pickle_modules_by_value(directory: Path) -> None:
    """Modules beside the pipeline file are not installed on executors: they are pickled with the functions."""
    from pyspark import cloudpickle

    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and Path(file).parent == directory and module.__name__ != "__main__":
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def windowed(frame: "DataFrame", step: WindowStep) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    window = F.window(step.column, step.size, step.slide) if step.slide else F.window(step.column, step.size)
    aggregates = [F.expr(expression).alias(name) for name, expression in step.aggregates.items()]
    grouped = frame.groupBy(window.alias("_window"), *step.group).agg(*aggregates)
    edges = [F.col("_window.start").alias("window_start"), F.col("_window.end").alias("window_end")]
    return grouped.select(*edges, *step.group, *step.aggregates)


def deduplicated(frame: "DataFrame", step: DeduplicateStep) -> "DataFrame":
    """Without a watermark, every value is kept in the state for ever."""
    if any(WATERMARK_METADATA in field.metadata for field in frame.schema.fields):
        return frame.dropDuplicatesWithinWatermark(list(step.columns))
    return frame.dropDuplicates(list(step.columns))
