"""The parts of the benchmark: what is measured in each, and by which scenarios."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.cluster_measures import cluster_measures
from bench.cluster_workloads import cluster_scenarios
from bench.measures import Measure, Sizes
from bench.one_broker_measures import one_broker_measures
from bench.scenarios import Scenario
from bench.workloads import one_broker_scenarios

ABOUT_CLUSTERS = """
Three processes on the same machine: three times the work on the same cores, and no network between them. Kafka's are
broker and controller at once. A leader is killed while clients write; what counts is the time until a record is
acknowledged that was sent after the kill, to a client that asks every 5 ms who leads now, and to librdkafka with its
defaults. Each trial is a sample. The broker that is killed may be the controller too.
"""


@dataclass(frozen=True)
class Part:
    name: str
    plot: str
    about: str
    measures: Callable[[Sizes], list[Measure]]
    scenarios: Callable[[Sizes], list[Scenario]]


PARTS = {
    part.name: part
    for part in (
        Part("one-broker", "performance.png", "", one_broker_measures, one_broker_scenarios),
        Part("cluster", "performance-cluster.png", ABOUT_CLUSTERS, cluster_measures, cluster_scenarios),
    )
}
