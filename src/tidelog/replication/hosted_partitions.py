"""Partitions that this broker hosts: online, or offline because their log directory failed."""

from collections.abc import Iterator

from tidelog.errors import KafkaStorageError, UnknownTopicOrPartition
from tidelog.replication.leader import PartitionLeader
from tidelog.replication.partition import Partition
from tidelog.types import TopicPartition


class HostedPartitions:
    """Each partition is online, offline or not hosted here."""

    __slots__ = ("offline", "online")

    def __init__(self) -> None:
        self.online: dict[TopicPartition, Partition] = {}
        self.offline: set[TopicPartition] = set()

    def __iter__(self) -> Iterator[Partition]:
        """Those that are online."""
        return iter(self.online.values())

    def __len__(self) -> int:
        return len(self.online)

    def is_hosted(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition is offline, or online with a role from the controller."""
        partition = self.online.get(topic_partition)
        return topic_partition in self.offline or (partition is not None and partition.leader_epoch >= 0)

    def absence(self, topic_partition: TopicPartition) -> KafkaStorageError | UnknownTopicOrPartition:
        """The error for a partition that is not online."""
        if topic_partition in self.offline:
            return KafkaStorageError(f"the log directory of {topic_partition} is offline")
        return UnknownTopicOrPartition(f"{topic_partition} is not on this broker")

    def leaderships(self) -> Iterator[PartitionLeader]:
        """Leader roles of this broker, also while suspended."""
        return (partition.role for partition in self if isinstance(partition.role, PartitionLeader))
