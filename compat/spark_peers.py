"""Comparison of `format("tidelog")` and Spark's own `format("kafka")`: the same questions, and where answers differ."""

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark_session import SETTINGS
from tools import spark_kafka_connector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS = "tidelog"
THEIRS = "kafka"
FORMATS = (OURS, THEIRS)

TIMEOUT_S = 120
EXAMPLES = 3
PYTHON_EXCEPTION = re.compile(r"^(?:tidelog|pyspark)[\w.]*: (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """What a query gave: everything that must be equal."""

    schema: str
    row_count: int
    digest: int
    """Over all columns of all rows, in whatever order they come."""


@dataclass(frozen=True)
class Rejected:
    """The query was not run, or failed."""

    reason: str


@dataclass(frozen=True)
class Question:
    """One query, to be asked of both."""

    title: str
    options: Mapping[str, str]
    is_stream: bool = False


class Peers:
    """A session that has both formats, and one cluster to ask."""

    def __init__(self, spark: "SparkSession", bootstrap: str, directory: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self._directory = directory
        self._count = 0

    def new_directory(self) -> Path:
        self._count += 1
        return self._directory / str(self._count)

    def batch(self, form: str, options: Mapping[str, str]) -> "DataFrame":
        reader = self.spark.read.format(form).option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(**options).load()

    def stream(self, form: str, options: Mapping[str, str]) -> "DataFrame":
        reader = self.spark.readStream.format(form).option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(**options).load()

    def streamed(
        self, form: str, options: Mapping[str, str], checkpoint: Path | None = None, target: Path | None = None
    ) -> "DataFrame":
        """All rows that a stream gives until it has read what there was at its start."""
        frame = self.stream(form, options)
        target = target or self.new_directory()
        writer = frame.writeStream.format("parquet").option("path", str(target))
        writer = writer.option("checkpointLocation", str(checkpoint or self.new_directory()))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(TIMEOUT_S), f"the stream did not end: {query.lastProgress}"
        finally:
            query.stop()
        return self.spark.read.schema(frame.schema).parquet(str(target))

    def rows(self, form: str, question: Question) -> "DataFrame":
        return (self.streamed if question.is_stream else self.batch)(form, question.options)

    def ask(self, form: str, question: Question) -> Answer | Rejected:
        try:
            return answer(self.rows(form, question))
        except Exception as error:  # noqa: BLE001 - whatever Spark raises is the answer
            return Rejected(in_short(error))

    def differences(self, question: Question) -> list[str]:
        ours, theirs = (self.ask(form, question) for form in FORMATS)
        if isinstance(ours, Rejected) or isinstance(theirs, Rejected):
            return [
                f"{form} says: {outcome.reason}"
                for form, outcome in ((OURS, ours), (THEIRS, theirs))
                if isinstance(outcome, Rejected)
            ]
        if ours == theirs:
            return [] if ours.row_count else ["there were no rows to compare"]
        return self._differences(question, ours, theirs)

    def _differences(self, question: Question, ours: Answer, theirs: Answer) -> list[str]:
        if ours.schema != theirs.schema:
            return [f"{OURS} has the schema {ours.schema}, {THEIRS} has {theirs.schema}"]
        mine, other = (self.rows(form, question).persist() for form in FORMATS)
        lines = [f"{OURS} gives {ours.row_count} rows, {THEIRS} gives {theirs.row_count}"]
        lines += [f"only {OURS}: {row}" for row in mine.exceptAll(other).take(EXAMPLES)]
        return lines + [f"only {THEIRS}: {row}" for row in other.exceptAll(mine).take(EXAMPLES)]


def answer(frame: "DataFrame") -> Answer:
    """Nulls are looked at by themselves: a hash goes over them as if they were not there."""
    from pyspark.sql import functions as f

    hashed = f.xxhash64(*(part for name in frame.columns for part in (f.col(name), f.col(name).isNull())))
    row: Any = frame.select(f.count("*"), f.sum(hashed.cast("decimal(38,0)"))).first()
    return Answer(frame.schema.json(), int(row[0]), int(row[1] or 0))


def in_short(error: BaseException) -> str:
    """The sentence inside a report of Spark's: of a Python exception, or of the first Java one."""
    text = str(error)
    if match := PYTHON_EXCEPTION.search(text):
        return match[1]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(line for line in lines[:3] if not line.startswith("at "))[:400] or type(error).__name__


@contextmanager
def session() -> "Iterator[SparkSession]":
    from tidelog.spark import session as new_session

    directory = tempfile.mkdtemp(prefix="compat-spark-")
    settings = SETTINGS | {"spark.sql.warehouse.dir": directory, "spark.local.dir": directory}
    settings |= {"spark.ui.showConsoleProgress": "false"} | spark_kafka_connector.session_settings()
    spark = new_session("compat", "local[2]", settings)
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)
