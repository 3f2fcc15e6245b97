"""Test kit: Kafka clusters for tests, on real sockets, with records in memory, and faults by name.

from tidelog.testing import Cluster

with Cluster(brokers=1) as kafka:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

Public is what `__all__` lists. The modules of this package are internal.
"""

import gc
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

    from tidelog.testing.cluster import Cluster, ClusterClock, ClusterError
    from tidelog.testing.cluster_view import Group, Member, OpenTransaction, TopicRecord
    from tidelog.testing.on_request import OnRequest, Rule
    from tidelog.testing.request_parts import RecordedRequest
    from tidelog.testing.topic_view import TopicView

__all__ = [
    "Cluster",
    "ClusterClock",
    "ClusterError",
    "Group",
    "Member",
    "OnRequest",
    "OpenTransaction",
    "RecordedRequest",
    "Rule",
    "TopicRecord",
    "TopicView",
]

_MODULES = {
    "Cluster": "cluster",
    "ClusterClock": "cluster",
    "ClusterError": "cluster",
    "Group": "cluster_view",
    "Member": "cluster_view",
    "OnRequest": "on_request",
    "OpenTransaction": "cluster_view",
    "RecordedRequest": "request_parts",
    "Rule": "on_request",
    "TopicRecord": "cluster_view",
    "TopicView": "topic_view",
}


def __getattr__(name: str) -> Any:
    """Imported on first use: pytest loads the plugin of this package in every run, also where nobody needs a broker."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _without_garbage_collection():
        return getattr(import_module(f"tidelog.testing.{module}"), name)


@contextmanager
def _without_garbage_collection() -> "Generator[None]":
    """Imports create many objects and no garbage: garbage collections took a tenth of their time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count() == 0:
            # The new objects count as old. Otherwise the next collection would look at all of them.
            gc.freeze()
            gc.unfreeze()
        if was_enabled:
            gc.enable()
