"""The partitions that this broker hosts: a thin owner, which knows only where each of them is."""

import logging
from collections.abc import Iterator

from tidelog.config.topic import TopicSettings
from tidelog.errors import KafkaStorageError, UnknownTopicOrPartition
from tidelog.replication.leader import PartitionLeader
from tidelog.replication.partition import Partition
from tidelog.runtime.purgatory import Purgatory
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.types import TopicPartition, Uuid

logger = logging.getLogger(__name__)


class ReplicaManager:
    """A partition is online here, offline (its log directory failed), or not here at all."""

    def __init__(self, logs: LogManager, fetches: Purgatory) -> None:
        self._logs = logs
        self._fetches = fetches
        self._online: dict[TopicPartition, Partition] = {}
        self._offline: set[TopicPartition] = set()

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._online.values())

    def __len__(self) -> int:
        return len(self._online)

    @property
    def offline_partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._offline)

    def get(self, topic: str, partition: int) -> Partition:
        found = self._online.get((topic, partition))  # type: ignore[call-overload]  # a tuple equals its named twin
        if found is None:
            raise self._absence(TopicPartition(topic, partition))
        return found  # type: ignore[no-any-return]

    def _absence(self, topic_partition: TopicPartition) -> KafkaStorageError | UnknownTopicOrPartition:
        if topic_partition in self._offline:
            return KafkaStorageError(f"the log directory of {topic_partition} is offline")
        return UnknownTopicOrPartition(f"{topic_partition} is not on this broker")

    def make_leader(
        self, topic_partition: TopicPartition, topic_id: Uuid, leader: PartitionLeader, settings: TopicSettings
    ) -> None:
        """Host the partition, with a new log if it has none."""
        if topic_partition in self._offline:
            return
        partition = self._online.get(topic_partition)
        if partition is None:
            try:
                log = self._log_of(topic_partition, topic_id) or self._logs.create(topic_partition, topic_id, settings)
            except KafkaStorageError:
                self._offline.add(topic_partition)
                return
            partition = self._online[topic_partition] = Partition(topic_partition, topic_id, log, self._fetches)
        partition.become_leader(leader)

    def _log_of(self, topic_partition: TopicPartition, topic_id: Uuid) -> Log | None:
        """The log that is there, if it is of this topic and not of an earlier one of the same name."""
        log = self._logs.get(topic_partition)
        if log is None or log.topic_id == topic_id:
            return log
        if log.topic_id is None:
            log.assign_topic_id(topic_id)
            return log
        logger.warning("deleting the log of an earlier topic partition=%s", topic_partition)
        self._logs.delete(topic_partition)
        return None

    def configure(self, topic: str, partition_count: int, settings: TopicSettings) -> None:
        """New settings act at once, from the next append on."""
        for index in range(partition_count):
            partition = self._online.get(TopicPartition(topic, index))
            if partition is not None:
                partition.log.settings = settings

    def delete(self, topic_partition: TopicPartition) -> None:
        """R11: complete what waits, then drop the log."""
        partition = self._online.pop(topic_partition, None)
        self._offline.discard(topic_partition)
        if partition is not None:
            partition.resign()
        self._logs.delete(topic_partition)

    def take_offline(self, topic_partitions: set[TopicPartition]) -> None:
        """R5: their log directory failed."""
        for topic_partition in topic_partitions:
            self._offline.add(topic_partition)
            partition = self._online.pop(topic_partition, None)
            if partition is not None:
                partition.resign()
