"""Machine checks of a pipeline: packages, files, writable directories, Python functions, source and sink options."""

import glob
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.pipelines.checks.spark_format_options import option_warnings
from tidelog.pipelines.definition.model import (
    AnyPipeline,
    FileSource,
    Format,
    FormatKind,
    JdbcSource,
    Pipeline,
    PythonStep,
    TableKind,
    TableSink,
    TopicSink,
    TopicSource,
)
from tidelog.pipelines.definition.parse_formats import is_local
from tidelog.pipelines.definition.parse_sources import STARTS
from tidelog.pipelines.definition.python_modules import BadFunction, NeedsSpark, check_arguments, load_function
from tidelog.pipelines.definition.toml_fields import Diagnostics
from tidelog.pipelines.definition.toml_lines import KeyPath
from tidelog.pipelines.formats.schema_files import problem_of_schema_file
from tidelog.pipelines.running.pipeline_state import PipelineState
from tidelog.spark.java import problem_of_java

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    ReadOptions: TypeAlias = Callable[[Mapping[str, str]], list[str]]
    """Returns the options without effect; raises OptionError."""

NEEDS_SPARK = "Pipelines need Spark: pip install 'tidelog[spark]'"
SPARK_PACKAGES = ("pyspark", "pyarrow", "numba")
FORMAT_PACKAGES = {FormatKind.AVRO: "fastavro", FormatKind.PROTOBUF: "google.protobuf"}
REGISTRY_PACKAGES = ("confluent_kafka", "authlib")
"""The client of the registry, and a package that it has only with its extra."""
REGISTRY_PACKAGES_OF = {FormatKind.PROTOBUF: ("grpc_tools",), FormatKind.JSON: ("jsonschema",)}
TABLE_PACKAGES = {TableKind.DELTA: ("deltalake", "spark"), TableKind.ICEBERG: ("pyiceberg", "iceberg")}
"""The package of each kind of table, and the extra of tidelog that installs it."""
FIELDS_OF_OPTIONS = {
    "kafka.bootstrap.servers": "bootstrap",
    "subscribe": "topic",
    "subscribepattern": "pattern",
    "startingoffsets": "starting",
    "startingtimestamp": "starting",
    "topic": "topic",
}
"""Options of `format("tidelog")` that a field of the pipeline file sets."""
NEEDS_HADOOP_AWS = (
    "Spark reads s3:// with Hadoop's client, which is not among its jars: under [spark], name the version of Spark's"
    ' Hadoop, such as "spark.jars.packages" = "org.apache.hadoop:hadoop-aws:3.5.0"'
)
INCLUDE_HEADERS = "includeheaders"
STARTING_TIMES = "startingoffsetsbytimestamp"
PLACEHOLDER_BOOTSTRAP = {"kafka.bootstrap.servers": "localhost:9092"}
"""A valid placeholder: mistakes in the field itself are already reported."""


def is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # raised if the parent package is missing
        return False


def has_spark() -> bool:
    return all(map(is_installed, SPARK_PACKAGES))


def check_spark(diagnostics: Diagnostics) -> None:
    if not has_spark():
        diagnostics.report((), NEEDS_SPARK)
    problem = problem_of_java()
    if problem is not None:
        diagnostics.report((), problem)


def check_directories(pipeline: AnyPipeline, diagnostics: Diagnostics, state_directory: str) -> None:
    """Whether state directory and checkpoint can be written."""
    state = PipelineState(state_directory, pipeline.name)
    _check_writable(diagnostics, (), "state directory", str(state.directory))
    if pipeline.checkpoint is not None:
        _check_writable(diagnostics, ("pipeline", "checkpoint"), "checkpoint", pipeline.checkpoint)


class MachineChecks:
    def __init__(self, pipeline: Pipeline, diagnostics: Diagnostics, step_positions: "Mapping[str, int]") -> None:
        self._pipeline = pipeline
        self._diagnostics = diagnostics
        self._positions = step_positions

    def check(self) -> None:
        check_spark(self._diagnostics)
        for source in self._pipeline.sources:
            path: KeyPath = ("sources", source.name)
            if isinstance(source, JdbcSource):
                self._check_jars(source, path)
                continue
            self._check_format(source.format, path)
            self._check_format_options(source.format, path, is_of_topic=isinstance(source, TopicSource))
            if isinstance(source, TopicSource):
                self._check_read_options(source, path)
            else:
                self._check_files(source, path)
        for step in self._pipeline.steps:
            if isinstance(step, PythonStep):
                self._check_function(step)
        for sink in self._pipeline.sinks:
            if isinstance(sink, TopicSink):
                self._check_format(sink.format, ("sinks", sink.name))
                self._check_format_options(sink.format, ("sinks", sink.name), is_of_topic=True)
                self._check_write_options(sink, ("sinks", sink.name))
            else:
                self._check_table(sink, ("sinks", sink.name, sink.kind))

    def _check_format(self, format_: Format, path: KeyPath) -> None:
        package = FORMAT_PACKAGES.get(format_.kind)
        if package is not None and not is_installed(package):
            sentence = f"format = '{format_.kind}' needs a package that is not installed: pip install 'tidelog[spark]'"
            self._diagnostics.report((*path, "format"), sentence)
        needed = (*REGISTRY_PACKAGES, *REGISTRY_PACKAGES_OF.get(format_.kind, ()))
        if format_.registry is not None and not all(map(is_installed, needed)):
            sentence = "a schema registry needs its client, which is not installed: pip install 'tidelog[registry]'"
            self._diagnostics.report((*path, "registry"), sentence)
        if format_.schema_file is not None and not format_.schema_file.is_file():
            self._diagnostics.report((*path, "schema_file"), f"file {format_.schema_file} does not exist")
        elif format_.schema_file is not None and (
            format_.kind is FormatKind.JSON or (package is not None and is_installed(package))
        ):
            problem = problem_of_schema_file(format_, format_.schema_file)
            if problem is not None:
                self._diagnostics.report((*path, "schema_file"), problem)

    def _check_format_options(self, format_: Format, path: KeyPath, *, is_of_topic: bool) -> None:
        for name, doubt in option_warnings(format_, is_of_topic=is_of_topic):
            place = self._diagnostics.lines.of_setting((*path, "format_options"), name)
            self._diagnostics.report(place, doubt, is_warning=True)

    def _check_jars(self, source: JdbcSource, path: KeyPath) -> None:
        for jar in source.jars:
            if is_local(jar) and not Path(jar).is_file():
                self._diagnostics.report((*path, "jar"), f"file {jar} does not exist")

    def _check_files(self, source: FileSource, path: KeyPath) -> None:
        if source.path.startswith(("s3://", "s3a://")) and not _has_hadoop_aws(self._pipeline):
            self._diagnostics.report((*path, "files"), NEEDS_HADOOP_AWS, is_warning=True)
        if not is_local(source.path) or glob.glob(source.path):
            return
        if source.is_stream:
            sentence = f"no file matches {source.path} yet; the source waits for one"
            self._diagnostics.report((*path, "files"), sentence, is_warning=True)
        else:
            self._diagnostics.report((*path, "files"), f"no file matches {source.path}")

    def _check_function(self, step: PythonStep) -> None:
        path = ("steps", self._positions.get(step.view, 0), "python")
        try:
            function = load_function(step.function, self._pipeline.directory)
            check_arguments(function, step.function, step.arguments)
        except NeedsSpark as error:
            self._diagnostics.report(path, str(error), is_warning=True)
        except BadFunction as error:
            self._diagnostics.report(path, str(error))

    def _check_table(self, sink: TableSink, path: KeyPath) -> None:
        package, extra = TABLE_PACKAGES.get(sink.kind, ("pyarrow", "spark"))
        if not is_installed(package):
            kind = sink.kind.capitalize()
            self._diagnostics.report(
                path, f"{kind} needs {package}, which is not installed: pip install 'tidelog[{extra}]'"
            )
        if sink.kind is TableKind.ICEBERG or not is_local(sink.location):
            return
        if not _check_writable(self._diagnostics, path, "table", sink.location):
            return
        holds_delta = os.path.isdir(os.path.join(sink.location, "_delta_log"))
        if sink.kind is TableKind.PARQUET and holds_delta:
            sentence = f"{sink.location} is a Delta table; use delta = ..., or choose another directory"
            self._diagnostics.report(path, sentence)
        if (
            sink.kind is TableKind.DELTA
            and not holds_delta
            and os.path.isdir(sink.location)
            and os.listdir(sink.location)
        ):
            sentence = f"{sink.location} is not empty and not a Delta table; choose a new or empty directory"
            self._diagnostics.report(path, sentence)

    def _check_read_options(self, source: TopicSource, path: KeyPath) -> None:
        from tidelog.spark.options.query import without_effect_in_stream

        where = {"subscribePattern": source.pattern} if source.pattern else {"subscribe": ",".join(source.topics)}
        fixed = {**PLACEHOLDER_BOOTSTRAP, **where}
        self._check_options(source.options, path, lambda options: without_effect_in_stream({**fixed, **options}))
        places = {name.lower(): self._diagnostics.lines.of_setting((*path, "options"), name) for name in source.options}
        if INCLUDE_HEADERS in places and source.format.kind is not FormatKind.RAW:
            self._diagnostics.report(
                places[INCLUDE_HEADERS], "has no effect: only format = 'raw' has headers", is_warning=True
            )
        if STARTING_TIMES in places and source.starting not in STARTS:
            sentence = f"starting = '{source.starting}' overrides this option; remove one of them"
            self._diagnostics.report(places[STARTING_TIMES], sentence)

    def _check_write_options(self, sink: TopicSink, path: KeyPath) -> None:
        from tidelog.spark.options.query import without_effect_in_sink

        fixed = {**PLACEHOLDER_BOOTSTRAP, "topic": sink.topic}
        self._check_options(sink.options, path, lambda options: without_effect_in_sink({**fixed, **options}))

    def _check_options(self, options: "Mapping[str, str]", path: KeyPath, read: "ReadOptions") -> None:
        """Reports each option that is wrong by itself, at its line; if all are right, checks their combination."""
        table: KeyPath = (*path, "options")
        are_good = [self._is_good_option(name, text, table, read) for name, text in options.items()]
        if not all(are_good):
            return
        from tidelog.spark.options.query import OptionError

        try:
            read(options)
        except OptionError as error:
            self._diagnostics.report(table, str(error))

    def _is_good_option(self, name: str, text: str, table: KeyPath, read: "ReadOptions") -> bool:
        from tidelog.spark.options.query import OptionError

        place = self._diagnostics.lines.of_setting(table, name)
        field = FIELDS_OF_OPTIONS.get(name.lower())
        try:
            without_effect = [] if field else read({name: text})
        except OptionError as error:
            self._diagnostics.report(place, str(error))
            return False
        if field:
            self._diagnostics.report(place, f"use '{field}' instead of this option")
        if without_effect:
            self._diagnostics.report(place, f"Option '{name}' has no effect", is_warning=True)
        return field is None


def _has_hadoop_aws(pipeline: Pipeline) -> bool:
    return any("hadoop-aws" in value for name, value in pipeline.spark.items() if "jars" in name or "Class" in name)


def _check_writable(diagnostics: Diagnostics, path: KeyPath, what: str, location: str) -> bool:
    """Creates nothing: checks the permissions of the nearest existing directory."""
    if not is_local(location):
        return True
    place = Path(location)
    if place.exists() and not place.is_dir():
        diagnostics.report(path, f"the {what} {place} is a file, not a directory")
        return False
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        diagnostics.report(path, f"the {what} {location} cannot be created: {place} is a file")
        return False
    if not os.access(place, os.W_OK | os.X_OK):
        diagnostics.report(path, f"the {what} {location} cannot be written: no write permission in {place}")
        return False
    return True
