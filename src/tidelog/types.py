"""Plain types shared by all layers."""

import base64
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

BrokerId: TypeAlias = int

Uuid: TypeAlias = bytes
"""Sixteen bytes, as on the wire. `uuid_text` and `uuid_from_text` convert to Kafka's 22 characters."""

ZERO_UUID: Uuid = bytes(16)

Buffer: TypeAlias = bytes | bytearray | memoryview

NO_BROKER: BrokerId = -1
NO_LEADER_EPOCH = -1
NO_OFFSET = -1
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def indexes_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition indexes by topic, as in messages."""
    indexes: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        indexes.setdefault(topic, []).append(index)
    return indexes


def ids_text(broker_ids: Iterable[BrokerId]) -> str:
    """Broker ids in log lines: `1,2,3`, or `-` for none."""
    return ",".join(map(str, broker_ids)) or "-"


def uuid_text(value: Uuid) -> str:
    """Kafka's form: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    value = base64.urlsafe_b64decode(text + "==")
    if len(value) != 16:
        raise ValueError(f"not a Kafka id (22 characters of URL-safe base64): {text!r}")
    return value
