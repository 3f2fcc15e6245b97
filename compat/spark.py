"""Holds `format("tidelog")` to the answers of Spark's own Kafka connector, on Tidelog and on Apache Kafka."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from compat import spark_continuing, spark_options, spark_peers, spark_reading, spark_topics, spark_writing
from compat.spark_page import Finding
from compat.spark_peers import OURS, Peers, Question, in_short
from compat.written_by_kafka import FEW_INTERNAL_PARTITIONS, TRANSACTIONAL, copy_log_dir
from tests.clients.broker import TidelogProcess
from tools.apache_kafka import KAFKA_3, KAFKA_4, ApacheKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ON_KAFKA = (
    Question("all these topics", spark_reading.EVERYTHING | spark_reading.FROM_THE_BEGINNING),
    Question("all these topics", spark_reading.EVERYTHING | spark_reading.FROM_THE_BEGINNING, is_stream=True),
)


def check() -> list[Finding]:
    """Everything; one Spark session, and one broker after the other."""
    with tempfile.TemporaryDirectory(prefix="compat-spark-") as name, spark_peers.session() as spark:
        directory = Path(name)
        found = list(_on_kafka(spark, KAFKA_3, directory / "kafka-3"))
        found += _on_kafka(spark, KAFKA_4, directory / "kafka-4")
        # Tidelog goes on with the transactions that Kafka wrote.
        written, served = directory / "kafka-4" / "broker" / "logs", directory / "tidelog" / "broker" / "data"
        copy_log_dir(written, served, [TRANSACTIONAL])
        found += _on_tidelog(spark, directory / "tidelog")
    return found


def _on_kafka(spark: "SparkSession", version: str, directory: Path) -> Iterator[Finding]:
    where = f"Apache Kafka {version}"
    settings = FEW_INTERNAL_PARTITIONS | spark_topics.CLEANING
    with ApacheKafka(version, 0, directory / "broker", heap="512m", settings=settings) as kafka:
        peers = Peers(spark, kafka.bootstrap, directory / "spark")
        with spark_topics.transactions(kafka.bootstrap):
            spark_topics.fill(kafka.bootstrap)
            for question in (*ON_KAFKA, *spark_reading.questions_of_transactions()):
                yield _read(where, peers, question)
        yield from _written(where, peers, list(spark_writing.writings())[:1], [(OURS, OURS)])


def _on_tidelog(spark: "SparkSession", directory: Path) -> Iterator[Finding]:
    with running_tidelog(directory / "broker") as broker:
        where = "Tidelog"
        peers = Peers(spark, broker.bootstrap, directory / "spark")
        spark_topics.fill(broker.bootstrap)
        for question in (*spark_reading.questions(), *spark_reading.questions_of_transactions()):
            yield _read(where, peers, question)
        yield from _written(where, peers, list(spark_writing.writings()), spark_writing.PAIRS)
        for title, continuing in spark_continuing.checks().items():
            yield _timed(where, "stream", title, partial(continuing, peers))
        for question in spark_options.questions():
            yield _options(where, peers, question)


def _read(where: str, peers: Peers, question: Question) -> Finding:
    what = "stream" if question.is_stream else "batch"
    return _timed(where, what, question.title, partial(peers.differences, question))


def _options(where: str, peers: Peers, question: Question) -> Finding:
    what = "options of a stream" if question.is_stream else "options of a batch"
    return _timed(where, what, question.title, partial(spark_options.differences, peers, question))


def _written(
    where: str, peers: Peers, writings: Sequence[spark_writing.Writing], pairs: Sequence[spark_writing.Pair]
) -> Iterator[Finding]:
    for number, writing in enumerate(writings):
        what = "write" if writing.must_work else "options of a write"
        compare = partial(spark_writing.differences, peers, number, writing)
        yield _timed(where, what, writing.title, compare)
    for pair in pairs:
        yield _timed(
            where, "write", spark_writing.title_of(pair), partial(spark_writing.stream_differences, peers, pair)
        )
    yield _timed(where, "write", spark_writing.AGAIN, partial(spark_writing.again_differences, peers))
    for question in spark_writing.questions():
        yield _read(where, peers, question)


def _timed(where: str, what: str, title: str, compare: Callable[[], list[str]]) -> Finding:
    started = time.monotonic()
    print(f"Spark on {where}, {what}: {title} ... ", end="", flush=True)
    try:
        finding = Finding(where, what, title, compare())
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is a finding
        finding = Finding(where, what, title, [f"{type(error).__name__}: {in_short(error)}"])
    print(f"{finding.verdict.strip('*')} ({time.monotonic() - started:.1f} s)", flush=True)
    for difference in finding.differences:
        print(f"  {difference}", flush=True)
    return finding


@contextmanager
def running_tidelog(directory: Path) -> Iterator[TidelogProcess]:
    broker = TidelogProcess(directory, spark_topics.CLEANING)
    broker.start()
    try:
        yield broker
        broker.stop()
    finally:
        broker.kill()
