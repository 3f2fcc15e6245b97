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
STREAM_GOALS = {1_000_000: 2.0, 200_000: 1.5, 50_000: 1.2}


def spark_measures(sizes: Sizes) -> list[Measure]:
    batches = [measure for cores in CORES for measure in _batches(cores)]
    streams = [measure for cores in CORES for measure in _streams(cores, sizes)]
    return [*batches, *streams, *_small(), *_starts()]


def _batches(cores: int) -> list[Measure]:
    return [
        _rate(f"spark-{cores}-{line}", SECTION, f"local[{cores}]: {title}", _times(limit))
        for line, title, limit in BATCH_LINES
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
    return [
        Measure("spark-small-p50", section, "time per micro-batch, to nowhere: p50", "ms", goal=at_most(50)),
        Measure("spark-small-p99", section, "time per micro-batch, to nowhere: p99", "ms"),
        Measure("spark-latency-p50", section, "from production to sink: p50", "ms", goal=at_most(80)),
        Measure("spark-latency-p99", section, "from production to sink: p99", "ms", goal=at_most(150)),
    ]


def _starts() -> list[Measure]:
    section = "Spark: starts, local[1]"
    return [
        Measure("spark-query-start", section, "a streaming query of 1,000 rows, from start to end", "s"),
        Measure("spark-session", section, "exec to session", "s"),
        Measure("spark-first-row", section, "exec to first row", "s", goal=at_most(10)),
    ]


def _rate(identity: str, section: str, title: str, goal: Goal | None = None) -> Measure:
    return Measure(identity, section, title, "rows/s", "higher", goal, bytes_each=ROW_BYTES)


def _times(limit: float) -> Goal:
    return at_least(limit, "peer", "the connector")
