"""Declaration of one metric: Kafka's MBean name, from which the Prometheus name is derived."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from tidelog.server.metrics.reading import Reading

RATES = ("PerSec", "-rate")
"""Suffixes of Kafka's names for rates."""

Sample: TypeAlias = tuple[tuple[object, ...], float]
"""Label values and value. An empty label is left out, which means the same in Prometheus."""

Read: TypeAlias = Callable[[Reading], Iterable[Sample]]


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    SUMMARY = "summary"  # two samples: count and sum
    HISTOGRAM = "histogram"  # the last label is `le`; the sample without it is the count


@dataclass(frozen=True, slots=True)
class Metric:
    kind: Kind
    origin: str
    """Kafka's MBean name, such as `kafka.server:type=ReplicaManager,name=LeaderCount`; without a colon, a Prometheus
    name for a metric that Kafka does not have."""
    documentation: str
    read: Read
    labels: tuple[str, ...] = ()

    @property
    def is_kafkas(self) -> bool:
        return ":" in self.origin

    @property
    def name(self) -> str:
        return prometheus_name(self.origin) if self.is_kafkas else self.origin


def prometheus_name(object_name: str) -> str:
    """Name as the usual configuration of the JMX exporter maps it: lower case, and a rate becomes its counter.

    >>> prometheus_name("kafka.server:type=ReplicaManager,name=IsrShrinksPerSec")
    'kafka_server_replicamanager_isrshrinks_total'
    """
    domain, _, keys = object_name.partition(":")
    values = dict(key.split("=", 1) for key in keys.split(","))
    name = values["name"]
    for ending in RATES:
        if name.endswith(ending):
            name = f"{name.removesuffix(ending)}_total"
    return f"{domain}_{values['type']}_{name}".replace(".", "_").replace("-", "_").lower()
