"""The table of what is measured of Spark: a line per figure, with its unit, its direction and its goal."""

from bench.figures import Goal
from bench.measures import Measure, Sizes, at_least, at_most
from bench.spark_data import ROW_BYTES

SECTION = "Spark: batches"
CORES = (1, 2)

BATCH_LINES = (
    ("count", "count()", 2.0),
    ("noop", "all columns, to nowhere", 2.0),
    ("few", "value and offset, to nowhere", 3.0),
    ("lz4-count", "lz4: count()", 2.0),
    ("lz4-noop", "lz4: all columns, to nowhere", 2.0),
    ("parquet", "to Parquet", 1.4),
    ("write", "from Parquet to a topic, acks=all", 1.5),
    ("write-once", "from Parquet to a topic, exactly once (connector: at least once)", 1.0),
)
NO_MORE = at_most(1, "peer", "the connector")
STREAM_GOALS = {1_000_000: 2.0, 200_000: 1.5, 50_000: 1.2}


def spark_measures(sizes: Sizes) -> list[Measure]:
    batches = [measure for cores in CORES for measure in _batches(cores)] + _more_batches()
    streams = [measure for cores in CORES for measure in _streams(cores, sizes)]
    return [*batches, *streams, *_small(), *_starts()]


def _batches(cores: int) -> list[Measure]:
    return [
        _rate(f"spark-{cores}-{line}", SECTION, f"local[{cores}]: {title}", _times(limit))
        for line, title, limit in BATCH_LINES
    ]


def _more_batches() -> list[Measure]:
    filtered = "local[1]: count() of the last hundredth, by a filter on the offset"
    return [
        *(
            _rate(
                f"spark-1-tuned-{line}", SECTION, f"local[1]: {title}; the connector with larger fetches", _times(2.0)
            )
            for line, title, _limit in BATCH_LINES[:2]
        ),
        Measure("spark-filter", SECTION, filtered, "s", goal=NO_MORE),
    ]


def _streams(cores: int, sizes: Sizes) -> list[Measure]:
    section = "Spark: streams, per trigger"
    found = []
    for rows, _triggers in sizes.spark_streams:
        goal = _times(STREAM_GOALS[rows]) if rows in STREAM_GOALS else None
        found.append(_rate(f"spark-{cores}-stream-{rows}", section, f"local[{cores}]: to nowhere, {rows:,} rows", goal))
    rows, _triggers = sizes.spark_parquet_stream
    return [*found, _rate(f"spark-{cores}-stream-parquet", section, f"local[{cores}]: to Parquet, {rows:,} rows")]


def _small() -> list[Measure]:
    section = "Spark: small micro-batches, 200 records a second, local[1]"
    goals = {"small-p50": at_most(50), "latency-p50": at_most(80), "latency-p99": at_most(150)}
    found = []
    for line, title in (("small", "time per micro-batch, to nowhere"), ("latency", "from production to sink")):
        for percent in (50, 99):
            name = f"{line}-p{percent}"
            tuned = f"{title}: p{percent}; the connector with larger fetches"
            found.append(Measure(f"spark-{name}", section, f"{title}: p{percent}", "ms", goal=goals.get(name)))
            found.append(Measure(f"spark-tuned-{name}", section, tuned, "ms", goal=NO_MORE))
    return found


def _starts() -> list[Measure]:
    section = "Spark: starts, local[1]"
    query, each, shared = (
        "a streaming query of 1,000 rows, from start to end",
        "two sinks, a query each",
        "two sinks, one query",
    )
    return [
        Measure("spark-query-start", section, query, "s", goal=at_most(3, "peer", "the connector")),
        Measure("spark-query-start-cpu", section, f"{query}: CPU of the driver and all below it", "s"),
        Measure("spark-two-queries", section, each, "s"),
        Measure("spark-two-queries-cpu", section, f"{each}: CPU", "s"),
        Measure("spark-shared-query", section, shared, "s"),
        Measure("spark-shared-query-cpu", section, f"{shared}: CPU", "s"),
        Measure("spark-session", section, "exec to session", "s"),
        Measure("spark-first-row", section, "exec to first row", "s", goal=NO_MORE),
    ]


def _rate(identity: str, section: str, title: str, goal: Goal | None = None) -> Measure:
    return Measure(identity, section, title, "rows/s", "higher", goal, bytes_each=ROW_BYTES)


def _times(limit: float) -> Goal:
    return at_least(limit, "peer", "the connector")
