"""asyncio client for Kafka's protocol: producer, consumer, admin.

async with Producer("localhost:29092") as producer:
    await producer.send("tides", b"low")

Public is what `__all__` lists, under semantic versioning: see docs/client.md. All other names below this package are
internal, those of its modules included, and change without notice.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.client.api.admin import Admin
    from tidelog.client.api.consumer import Consumer
    from tidelog.client.api.producer import Producer
    from tidelog.client.api.values import (
        Acknowledgement,
        Broker,
        ClusterInfo,
        Delivery,
        Group,
        GroupMember,
        Partition,
        Record,
        RecordBatch,
        Topic,
        TopicPartition,
    )
    from tidelog.client.network.in_flight import ConnectionLost
    from tidelog.client.network.retries import GaveUp
    from tidelog.errors import KafkaError

__all__ = [
    "Acknowledgement",
    "Admin",
    "Broker",
    "ClusterInfo",
    "ConnectionLost",
    "Consumer",
    "Delivery",
    "GaveUp",
    "Group",
    "GroupMember",
    "KafkaError",
    "Partition",
    "Producer",
    "Record",
    "RecordBatch",
    "Topic",
    "TopicPartition",
]

_MODULES = {
    "Admin": "tidelog.client.api.admin",
    "Consumer": "tidelog.client.api.consumer",
    "Producer": "tidelog.client.api.producer",
    "ConnectionLost": "tidelog.client.network.in_flight",
    "GaveUp": "tidelog.client.network.retries",
    "KafkaError": "tidelog.errors",
}


def __getattr__(name: str) -> Any:
    """Imported on first use: brokers import the internal packages, and need nothing of this."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "tidelog.client.api.values")), name)
