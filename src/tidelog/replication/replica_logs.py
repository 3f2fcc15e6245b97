"""Replica logs: found, created, deleted or set aside as the controller assigns replicas (R44)."""

from collections.abc import Callable

from tidelog.config.topic import TopicSettings
from tidelog.errors import KafkaStorageError
from tidelog.replication.assignment import PartitionAssignment, ReplicaStop
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.types import ZERO_UUID, TopicPartition


class ReplicaLogs:
    """Never deletes records because metadata is missing or new."""

    def __init__(self, logs: LogManager, topic_settings: Callable[[str], TopicSettings]) -> None:
        self._logs = logs
        self._topic_settings = topic_settings

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self._logs.get(topic_partition)

    def find_or_create(self, assignment: PartitionAssignment) -> Log:
        log = self._find(assignment) or self._create(assignment)
        # The log may have been opened before its topic settings were loaded.
        log.settings = self._topic_settings(assignment.topic_partition.topic)
        return log

    def _find(self, assignment: PartitionAssignment) -> Log | None:
        """The existing log of this topic id. A log of another topic with the same name is set aside (R44)."""
        topic_partition, topic_id = assignment.topic_partition, assignment.topic_id
        log = self._logs.get(topic_partition)
        if log is None or topic_id in (log.topic_id, ZERO_UUID):
            return log
        if log.topic_id is None and not (assignment.is_new and log.log_end_offset):
            log.assign_topic_id(topic_id)
            return log
        self._clear_name(log)
        return None

    def _clear_name(self, log: Log) -> None:
        """Set the old log aside; delete it only if it has no records."""
        if log.log_end_offset > log.log_start_offset:
            self._logs.set_aside(log.topic_partition)
        else:
            self._logs.delete(log.topic_partition)

    def _create(self, assignment: PartitionAssignment) -> Log:
        offline = [directory.path for directory in self._logs.directories if not directory.is_online]
        if offline and not assignment.is_new:
            # The records may be in the offline directory: a new empty log would look like the whole partition.
            raise KafkaStorageError(f"{assignment.topic_partition} may be in {offline[0]}, which is offline")
        settings = self._topic_settings(assignment.topic_partition.topic)
        return self._logs.create(assignment.topic_partition, assignment.topic_id, settings)

    def delete(self, stop: ReplicaStop) -> None:
        """Also deletes a log that is not hosted: the topic was deleted while this broker was down.

        Deletes only a log with this topic id; a log of another topic with the same name is set aside.
        """
        log = self._logs.get(stop.topic_partition)
        if log is not None and log.topic_id not in (None, stop.topic_id) and stop.topic_id != ZERO_UUID:
            self._clear_name(log)
        else:
            self._logs.delete(stop.topic_partition)
