"""Loss of the coordination store, and the conditions under which every record is still guaranteed (R44)."""

import json
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from tidelog.cluster import znodes
from tidelog.cluster.inventory import backup_of
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.server.cluster_backup import FILE_NAME
from tidelog.simulation.cluster import LOG_DIRECTORIES, SimulatedCluster
from tidelog.simulation.inspection import is_in_use, stored_partitions, topic_id_of
from tidelog.storage.log_directory import META_PROPERTIES
from tidelog.storage.partition_metadata import PARTITION_METADATA, read_topic_id
from tidelog.storage.partition_names import parse_partition_name, partition_name
from tidelog.store.interface import Check, Operation
from tidelog.types import BrokerId, TopicPartition, Uuid

QUIET_S = 3.0
"""Minimum time since the last change of topics or settings: brokers back up changes with a short delay."""
BACKED_UP = (znodes.TOPICS, "/config", "/admin")
"""Nodes that brokers keep a backup of."""


class LostStore:
    """The guarantee of docs/lost-store.md: complete log directories rebuild an empty store."""

    def __init__(self, cluster: SimulatedCluster, is_any_disk_lost: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._is_any_disk_lost = is_any_disk_lost
        self._changed_s = 0.0
        cluster.store_state.on_written.append(self._on_written)

    def _on_written(self, session_id: int, operations: Sequence[Operation]) -> None:
        for operation in operations:
            path = operation.path
            if not isinstance(operation, Check) and path.startswith(BACKED_UP) and not path.endswith("/state"):
                self._changed_s = self._cluster.clock.monotonic()

    def may_lose(self) -> bool:
        store = self._cluster.store_state
        if not is_in_use(store) or self._cluster.clock.monotonic() - self._changed_s < QUIET_S:
            return False
        if store.children.get(znodes.DELETE_TOPICS) or self._is_any_disk_lost():
            return False
        partitions = list(stored_partitions(store))
        if len(partitions) != sum(map(self._partition_count, store.children.get(znodes.TOPICS, ()))):
            return False  # some never had a leader, so no broker has a log of them
        members = {broker_id for _, stored in partitions for broker_id in stored.state.replicas}
        topics = {topic_partition.topic for topic_partition, _ in partitions}
        if self._is_deleted_topic_left(topics):
            return False
        return all(self._has_backup(broker_id, members, topics) for broker_id in members) and all(
            self._holds(broker_id, topic_partition)
            for topic_partition, stored in partitions
            for broker_id in stored.state.replicas
        )

    def _partition_count(self, topic: str) -> int:
        node = self._cluster.store_state.find(znodes.topic_path(topic))
        assert node is not None
        return znodes.partition_count(topic, node.data)

    def _is_deleted_topic_left(self, topics: AbstractSet[str]) -> bool:
        """True if a log of a deleted topic is left, and another topic has its name: a takeover asks the operator."""
        ids = {topic: self._topic_id(topic) for topic in topics}
        return any(
            ids.get(topic, topic_id) != topic_id
            for machine in self._cluster.machines.values()
            for topic, topic_id in _topics_on(machine.disk)
        )

    def _topic_id(self, topic: str) -> Uuid:
        node = self._cluster.store_state.find(znodes.topic_path(topic))
        assert node is not None
        return topic_id_of(topic, node.data)

    def _holds(self, broker_id: BrokerId, topic_partition: TopicPartition) -> bool:
        disk, name = self._cluster.machines[broker_id].disk, partition_name(topic_partition)
        with disk.observed():
            return any(disk.exists(f"{directory}/{name}") for directory in LOG_DIRECTORIES)

    def _has_backup(self, broker_id: BrokerId, members: AbstractSet[BrokerId], topics: AbstractSet[str]) -> bool:
        """True if the broker has a backup of the cluster's members and topics: it may be the first one to return.

        A log directory without one, because it failed at the wrong time, would be taken for a new one.
        """
        disk = self._cluster.machines[broker_id].disk
        with disk.observed():
            used = [directory for directory in LOG_DIRECTORIES if disk.exists(f"{directory}/{META_PROPERTIES}")]
            paths = [f"{directory}/{FILE_NAME}" for directory in used]
            backups = [backup_of(json.loads(disk.read_file(path))) for path in paths if disk.exists(path)]
        return len(backups) == len(used) > 0 and all(
            each.members >= members and each.topic_configs.keys() >= topics for each in backups
        )

    def lose(self) -> None:
        """Replace the store by an empty one. Running brokers learn that their sessions are unknown."""
        self._cluster.store_state.lose()


def _topics_on(disk: MemoryDisk) -> Iterator[tuple[str, Uuid]]:
    """Name and id of the topic of each log on the disk."""
    with disk.observed():
        for directory in filter(disk.exists, LOG_DIRECTORIES):
            for entry in disk.list_directory(directory):
                found, path = parse_partition_name(entry.name), f"{directory}/{entry.name}"
                if found is not None and disk.exists(f"{path}/{PARTITION_METADATA}"):
                    topic_id = read_topic_id(disk, path)
                    if topic_id is not None:
                        yield found.topic, topic_id
