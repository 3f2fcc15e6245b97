"""Test kit: Kafka clusters inside the process of a test, on real sockets, with records in memory.

from tidelog.testing import Cluster

with Cluster(brokers=1) as kafka:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.testing.cluster import Cluster

__all__ = ["Cluster"]


def __getattr__(name: str) -> Any:
    """Imported on first use: pytest loads the plugin of this package in every run, also where nobody needs a broker."""
    if name != "Cluster":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tidelog.testing.cluster import Cluster

    return Cluster
