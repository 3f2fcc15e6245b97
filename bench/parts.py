"""The parts of the benchmark: what is measured in each, and by which scenarios."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench.cluster_measures import cluster_measures
from bench.cluster_workloads import cluster_scenarios
from bench.coordinator_measures import coordinator_measures
from bench.coordinator_workloads import coordinator_scenarios
from bench.measures import Measure, Sizes
from bench.move_measures import move_measures
from bench.move_workloads import move_scenarios
from bench.one_broker_measures import one_broker_measures
from bench.scenarios import Scenario
from bench.spark_data import KEY_BYTES, RECORDS_PER_BATCH, VALUE_BYTES
from bench.spark_measures import spark_measures
from bench.spark_peers import TITLES as SPARK_TITLES
from bench.spark_workloads import spark_scenarios
from bench.tls_measures import tls_measures
from bench.tls_workloads import tls_scenarios
from bench.workloads import one_broker_scenarios

ABOUT_CLUSTERS = """
Three processes on the same machine: three times the work on the same cores, and no network between them. Kafka's are
broker and controller at once. A leader is killed while clients write. The time ends when a record that was sent after
the kill is acknowledged: to a client that asks for the leader every 5 ms, and to librdkafka with its defaults. Each
trial is a sample. The killed broker may also be the controller.
"""

ABOUT_COORDINATORS = """
Requests over raw sockets, the same for both: four members share a connection, with one unanswered request on each. The
initial delay of groups is also the same (3 s; 0 where the first message is timed). Memory is that of the broker after
all have joined and committed. A transaction begins with its first record and ends with the answer to its commit; its
markers follow, and a request that comes before them is repeated every 2 ms. A failover includes what it takes to notice
it (Kafka: a session of 9 s).
"""

ABOUT_MOVES = """
A topic of four partitions, two replicas each, is written, then moves to one replica on the third broker, which copies
all of it; the move ends when it is no longer listed and every broker names the new replica. One event loop of Tidelog
does on each broker what Kafka's threads do. The throttle is set as `kafka-reassign-partitions --throttle` sets it. Its
move must take the bytes of the records divided by the rate; batches have headers of their own, which it copies too.
"""

ABOUT_SPARK = f"""
Tidelog's data source and Spark's own connector for Kafka, each in a Spark session of its own with the same settings
(those of `tidelog.spark.session`), read from and write to the same topics of one Tidelog broker; broker and Spark share
the cores. Records have {KEY_BYTES} bytes of key and {VALUE_BYTES} of value, which MB count, in batches of
{RECORDS_PER_BATCH:,}. `local[1]` reads one partition, `local[2]` two. Sessions are warm: each kind of query ran
before. The connector keeps its own defaults. With `local[1]` it uses one thread, and a Python source two: one in Java
and a Python process; with `local[2]` both have the same two cores.

Streams are measured per trigger, as Spark's own progress reports (`triggerExecution`, the first one left out), and the
start of a query by itself. The latency of a record is the time from its production to a `foreachBatch` that has it in
Python.
"""

ABOUT_TLS = """
Certificates with keys on the curve P-256, TLS 1.3, the host name checked; between brokers certificates on both sides.
The client is confluent-kafka in a process of its own, the same for both; its work limits the rate more than in the
other parts. CPU is that of the brokers alone. Neither broker has kernel TLS or sendfile here.
"""


@dataclass(frozen=True)
class Part:
    name: str
    plot: str
    about: str
    measures: Callable[[Sizes], list[Measure]]
    scenarios: Callable[[Sizes], list[Scenario]]
    titles: Mapping[str, str] = field(default_factory=dict)
    """Of the peers, where these are not the brokers."""
    needs_librdkafka: bool = True


PARTS = {
    part.name: part
    for part in (
        Part("one-broker", "performance.png", "", one_broker_measures, one_broker_scenarios),
        Part("cluster", "performance-cluster.png", ABOUT_CLUSTERS, cluster_measures, cluster_scenarios),
        Part("moves", "performance-moves.png", ABOUT_MOVES, move_measures, move_scenarios),
        Part(
            "coordinators",
            "performance-coordinators.png",
            ABOUT_COORDINATORS,
            coordinator_measures,
            coordinator_scenarios,
            needs_librdkafka=False,
        ),
        Part("tls", "performance-tls.png", ABOUT_TLS, tls_measures, tls_scenarios, needs_librdkafka=False),
        Part(
            "spark",
            "performance-spark.png",
            ABOUT_SPARK,
            spark_measures,
            spark_scenarios,
            SPARK_TITLES,
            needs_librdkafka=False,
        ),
    )
}
