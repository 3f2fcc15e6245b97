"""Values that the public client returns."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.client.consumer.fetched_records import ConsumedRecord as Record
from tidelog.client.producer.producer_batch import Acknowledgement, Delivery
from tidelog.types import TopicPartition

__all__ = [
    "Acknowledgement",
    "Broker",
    "ClusterInfo",
    "Delivery",
    "Group",
    "GroupMember",
    "Partition",
    "Record",
    "RecordBatch",
    "Topic",
    "TopicPartition",
]


class RecordBatch(NamedTuple):
    """Records of one partition that were fetched together, in the order of their offsets."""

    topic: str
    partition: int
    records: Sequence[Record]
    """A record is made each time it is looked at: iterate once, and make a list of those you keep."""


class Broker(NamedTuple):
    broker_id: int
    host: str
    port: int
    rack: str | None


class ClusterInfo(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, Broker]


class Partition(NamedTuple):
    partition: int
    leader: int
    """-1: there is none at the moment."""
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


class Topic(NamedTuple):
    name: str
    is_internal: bool
    partitions: Mapping[int, Partition]


class GroupMember(NamedTuple):
    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class Group(NamedTuple):
    group_id: str
    protocol: str
    """`classic` or `consumer`."""
    state: str
    members: tuple[GroupMember, ...]
