"""Measures, and how much work goes into one: the tables of measures are made of these."""

from dataclasses import dataclass
from typing import Literal

from bench.figures import Goal

Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Sizes:
    """How much work one run does."""

    bytes_per_run: int = 1_000_000_000
    warm_bytes: int = 2_000_000_000
    warm_requests: int = 30_000
    pipelined_requests: int = 100_000
    one_in_flight_requests: int = 50_000
    load_requests: int = 50_000
    end_to_end_seconds: int = 10
    ack_seconds: int = 5
    idle_seconds: float = 10.0
    partition_counts: tuple[int, ...] = (1, 100, 1_000)
    connection_counts: tuple[int, ...] = (1, 100, 500)
    many_partitions: int = 2_000
    stored_bytes: int = 5_000_000_000
    starts: int = 3
    cluster_bytes_per_run: int = 1_000_000_000
    cluster_warm_requests: int = 10_000
    cluster_pipelined_requests: int = 20_000
    cluster_latency_seconds: int = 10
    cluster_partition_counts: tuple[int, ...] = (1, 100, 1_000)
    failovers: int = 7
    """In each round."""
    latency_warm_seconds: int = 2
    move_bytes: int = 1_000_000_000
    move_rate: int = 10_000_000
    """Bytes a second of a move that is throttled."""
    move_latency_seconds: int = 60
    spark_rows: int = 2_000_000
    """Of a batch."""
    spark_topic_rows: int = 4_000_000
    spark_streams: tuple[tuple[int, int], ...] = ((1_000_000, 4), (200_000, 10), (50_000, 20))
    """Rows per trigger, and how many triggers."""
    spark_parquet_stream: tuple[int, int] = (200_000, 6)
    spark_query_starts: int = 3
    spark_follow_seconds: int = 12
    groups: int = 1_000
    members_per_group: int = 10
    offsets_per_group: int = 100
    """Ten of each member."""
    group_requests: int = 20_000
    steady_heartbeat_rounds: int = 3
    group_failovers: int = 2
    """In each round."""
    transactional_producers: int = 10
    transactions: int = 300
    fills_page_cache: bool = True
    left_out: tuple[str, ...] = ()
    """Scenarios that take too long."""
    shares_peers: bool = False
    """Whether scenarios follow each other on one peer instead of each on a fresh one."""

    @property
    def committed_offsets(self) -> int:
        return self.groups * self.offsets_per_group

    @property
    def stored_text(self) -> str:
        return f"{self.stored_bytes / 1e9:g} GB"


QUICK = Sizes(
    bytes_per_run=100_000_000,
    warm_bytes=100_000_000,
    warm_requests=1_000,
    pipelined_requests=5_000,
    one_in_flight_requests=2_000,
    load_requests=2_000,
    end_to_end_seconds=2,
    ack_seconds=1,
    idle_seconds=2.0,
    partition_counts=(1, 50),
    connection_counts=(1, 100),
    many_partitions=50,
    stored_bytes=100_000_000,
    starts=1,
    cluster_bytes_per_run=50_000_000,
    cluster_warm_requests=500,
    cluster_pipelined_requests=1_000,
    cluster_latency_seconds=1,
    cluster_partition_counts=(50,),
    failovers=1,
    latency_warm_seconds=1,
    move_bytes=40_000_000,
    move_latency_seconds=3,
    spark_rows=200_000,
    spark_topic_rows=400_000,
    spark_streams=((100_000, 4), (20_000, 5)),
    spark_parquet_stream=(100_000, 3),
    spark_query_starts=1,
    spark_follow_seconds=5,
    groups=50,
    group_requests=5_000,
    steady_heartbeat_rounds=1,
    transactional_producers=5,
    transactions=50,
    fills_page_cache=False,
    left_out=(
        "start-partitions",
        "start-stored",
        "cluster-growth",
        "failover-short-sessions",
        "group-start",
        "group-failover",
        "transactions",
        "tls-one-broker",
        "tls-cluster",
        "spark-start",
        "spark-1",
        "spark-2",
    ),
    shares_peers=True,
)


@dataclass(frozen=True)
class Measure:
    id: str
    section: str
    title: str
    unit: str
    better: Better = "lower"
    goal: Goal | None = None
    percent: float = 50
    """Which percentile of its samples the figure is."""
    bytes_each: int = 0
    """Of what is counted per second, if MB/s are shown besides."""


def at_most(limit: float, of: str = "", of_title: str = "") -> Goal:
    return Goal("at most", limit, of, of_title)


def at_least(limit: float, of: str = "", of_title: str = "") -> Goal:
    return Goal("at least", limit, of, of_title)
