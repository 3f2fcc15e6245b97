"""The workloads for Spark: each asks a running driver to do something and returns figures by measure."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from bench.figures import percentile
from bench.measures import Sizes
from bench.scenarios import Figures, Scenario, Session, Step
from bench.spark_data import Slice
from bench.spark_measures import CORES
from bench.spark_peers import SparkFailed, SparkPeer, Stage, spark_peers

QUERY_START_ROWS = 1_000
TRICKLE_PER_SECOND = 200
WARM_TRIGGERS = 3


def driver_of(session: Session) -> SparkPeer:
    assert isinstance(session.peer, SparkPeer)
    return session.peer


def started(session: Session) -> Figures:
    return {"spark-session": driver_of(session).session_seconds, "spark-first-row": session.start_seconds}


def warm_up(session: Session) -> Figures:
    """Each kind of query that is measured later: once would leave Java half compiled. Parquet files stay, to be written
    to topics."""
    driver, sizes = driver_of(session), session.sizes
    for work in (count("plain", "count"), to_noop("plain", "all", "noop"), to_noop("plain", "few", "few")) * 2:
        work(session)
    driver.ask_batch("to_parquet", driver.plain.first(sizes.spark_rows), path=parquet_path(driver))
    for work in (to_topic("at-least-once", "write"), to_topic("exactly-once", "write-once")):
        work(session)
    rows_per_trigger = sizes.spark_streams[-1][0]
    run_stream(driver, driver.plain.last(WARM_TRIGGERS * rows_per_trigger), rows_per_trigger, "noop")
    return {}


def parquet_path(driver: SparkPeer) -> str:
    return str(driver.directory / "rows.parquet")


def rows_of(session: Session, kind: str) -> Slice:
    driver = driver_of(session)
    topic = driver.lz4 if kind == "lz4" else driver.plain
    return topic.first(session.sizes.spark_rows)


def count(kind: str, line: str, *, is_tuned: bool = False) -> Callable[[Session], Figures]:
    def work(session: Session) -> Figures:
        of = rows_of(session, kind)
        response = driver_of(session).ask_batch("count", of, is_tuned=is_tuned)
        if response["rows"] != of.rows:
            raise SparkFailed(f"{response['rows']} rows were counted, and not {of.rows}")
        return rate(session, line, of.rows, response["seconds"])

    return work


def to_noop(kind: str, columns: str, line: str, *, is_tuned: bool = False) -> Callable[[Session], Figures]:
    def work(session: Session) -> Figures:
        of = rows_of(session, kind)
        response = driver_of(session).ask_batch("to_noop", of, columns, is_tuned=is_tuned)
        return rate(session, line, of.rows, response["seconds"])

    return work


def filtered(session: Session) -> Figures:
    """The last hundredth of the offsets."""
    of = rows_of(session, "plain")
    first = of.rows // driver_of(session).cores * 99 // 100
    response = driver_of(session).ask_batch("count", of, where=f"offset >= {first}")
    if response["rows"] != of.rows // 100:
        raise SparkFailed(f"{response['rows']} rows were counted, and not {of.rows // 100}")
    return {"spark-filter": response["seconds"]}


def to_parquet(session: Session) -> Figures:
    of = rows_of(session, "plain")
    session.write_back()
    return rate(session, "parquet", of.rows, driver_of(session).ask_batch("to_parquet", of)["seconds"])


def to_topic(delivery: str, line: str) -> Callable[[Session], Figures]:
    def work(session: Session) -> Figures:
        driver = driver_of(session)
        topic = f"written-{driver.directory.name}-{time.monotonic_ns()}"
        driver.stage.create_topic(topic, driver.cores)
        session.write_back()
        response = driver.ask("to_topic", path=parquet_path(driver), topic=topic, delivery=delivery)
        return rate(session, line, rows_of(session, "plain").rows, response["seconds"])

    return work


def rate(session: Session, line: str, rows: int, seconds: float) -> dict[str, float]:
    return {f"spark-{driver_of(session).cores}-{line}": rows / seconds}


# -- streams


def stream(rows_per_trigger: int, triggers: int, sink: str, line: str) -> Callable[[Session], Figures]:
    def work(session: Session) -> Figures:
        driver = driver_of(session)
        response = run_stream(driver, driver.plain.last(triggers * rows_per_trigger), rows_per_trigger, sink)
        steady = [batch["ms"] / batch["rows"] for batch in response["micro_batches"][1:]]
        if not steady:
            raise SparkFailed("there was one micro-batch only")
        return {f"spark-{driver.cores}-{line}": 1000 / median(steady)}

    return work


def run_stream(driver: SparkPeer, of: Slice, rows_per_trigger: int, sink: str) -> dict[str, Any]:
    limits = {"start": of.starting_offsets, "rows_per_trigger": rows_per_trigger}
    response = driver.ask("stream", topic=of.topic, sink=sink, **limits)
    read = sum(batch["rows"] for batch in response["micro_batches"])
    if read != of.rows:
        raise SparkFailed(f"{read} rows were read, and not {of.rows}")
    return response


def query_starts(session: Session) -> Figures:
    driver = driver_of(session)
    few = driver.plain.last(QUERY_START_ROWS)
    starts = [run_stream(driver, few, QUERY_START_ROWS, "noop") for _ in range(session.sizes.spark_query_starts)]
    return {
        "spark-query-start": [start["seconds"] for start in starts],
        "spark-query-start-cpu": [start["cpu_seconds"] for start in starts],
    }


def two_sinks(session: Session) -> Figures:
    driver = driver_of(session)
    few = driver.plain.last(QUERY_START_ROWS)
    found: dict[str, float] = {}
    for line, is_shared in (("two-queries", False), ("shared-query", True)):
        response = driver.ask("two_sinks", topic=few.topic, start=few.starting_offsets, is_shared=is_shared)
        found |= {f"spark-{line}": response["seconds"], f"spark-{line}-cpu": response["cpu_seconds"]}
    return found


def small_micro_batches(line: str, *, is_tuned: bool) -> Callable[[Session], Figures]:
    def work(session: Session) -> Figures:
        response = follow(session, "noop", is_tuned=is_tuned)
        times = sorted(batch["ms"] for batch in after_the_start(response["micro_batches"]))
        return {f"spark-{line}-p{percent}": percentile(times, percent) for percent in (50, 99)}

    return work


def latency(line: str, *, is_tuned: bool) -> Callable[[Session], Figures]:
    def work(session: Session) -> Figures:
        response = follow(session, "collect", is_tuned=is_tuned)
        found = sorted(value / 1e6 for batch in after_the_start(response["latencies_ns"]) for value in batch)
        return {f"spark-{line}-p{percent}": percentile(found, percent) for percent in (50, 99)}

    return work


def after_the_start(batches: Sequence[Any]) -> Sequence[Any]:
    return batches[len(batches) // 3 :]


def follow(session: Session, sink: str, *, is_tuned: bool) -> dict[str, Any]:
    driver = driver_of(session)
    topic = f"trickle-{driver.directory.name}-{sink}{'-tuned' if is_tuned else ''}"
    driver.stage.create_topic(topic, 1)
    question = {"topic": topic, "start": "latest", "sink": sink, "is_tuned": is_tuned}
    with trickle(session.peer.bootstrap, topic):
        return driver.ask("follow", **question, seconds=session.sizes.spark_follow_seconds)


@contextmanager
def trickle(bootstrap: str, topic: str) -> Iterator[None]:
    """Produces a record every few milliseconds; its value is the time."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "1"})
    ended = threading.Event()

    def run() -> None:
        due = time.monotonic()
        while not ended.wait(max(0.0, due - time.monotonic())):
            producer.produce(topic, b"%d" % time.time_ns())
            producer.poll(0)
            due += 1 / TRICKLE_PER_SECOND

    thread = threading.Thread(target=run, name="trickle")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        producer.flush(10)


# -- scenarios


def spark_scenarios(sizes: Sizes) -> list[Scenario]:
    stage = Stage(sizes)
    first = Scenario("spark-start", (Step("start", started),), spark_peers(1, stage), stage.close)
    return [
        first,
        *(Scenario(f"spark-{cores}", _steps(cores, sizes), spark_peers(cores, stage), stage.close) for cores in CORES),
    ]


def _steps(cores: int, sizes: Sizes) -> tuple[Step, ...]:
    rows, triggers = sizes.spark_parquet_stream
    return (
        Step("warm up", warm_up),
        Step("count", count("plain", "count")),
        Step("all columns", to_noop("plain", "all", "noop")),
        Step("few columns", to_noop("plain", "few", "few")),
        Step("lz4: count", count("lz4", "lz4-count")),
        Step("lz4: all columns", to_noop("lz4", "all", "lz4-noop")),
        Step("to Parquet", to_parquet),
        Step("to a topic", to_topic("at-least-once", "write")),
        Step("to a topic, exactly once", to_topic("exactly-once", "write-once")),
        *(Step(f"stream, {of:,} rows", stream(of, times, "noop", f"stream-{of}")) for of, times in sizes.spark_streams),
        Step("stream to Parquet", stream(rows, triggers, "parquet", "stream-parquet")),
        *(_SMALL if cores == 1 else ()),
    )


_SMALL = (
    Step("tuned: count", count("plain", "tuned-count", is_tuned=True)),
    Step("tuned: all columns", to_noop("plain", "all", "tuned-noop", is_tuned=True)),
    Step("a filter", filtered),
    Step("start of a query", query_starts),
    Step("two sinks", two_sinks),
    Step("small micro-batches", small_micro_batches("small", is_tuned=False)),
    Step("latency", latency("latency", is_tuned=False)),
    Step("tuned: small micro-batches", small_micro_batches("tuned-small", is_tuned=True)),
    Step("tuned: latency", latency("tuned-latency", is_tuned=True)),
)
