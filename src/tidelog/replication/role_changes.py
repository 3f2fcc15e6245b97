"""Role changes: LeaderAndIsr and StopReplica requests of the controller (R7 to R11)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from tidelog.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaError,
    KafkaStorageError,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from tidelog.replication.assignment import (
    EPOCH_DURING_DELETE,
    NO_EPOCH_CHECK,
    LeaderAddress,
    PartitionAssignment,
    ReplicaStop,
)
from tidelog.replication.hosted_partitions import HostedPartitions
from tidelog.replication.missing_segments import copy_missing_segments, lead_with_missing_segments
from tidelog.replication.partition import Partition, PartitionContext
from tidelog.replication.replica_logs import ReplicaLogs
from tidelog.replication.role_log_lines import log_roles, log_stopped
from tidelog.storage.disk_errors import ResourceShortage
from tidelog.types import NO_LEADER_EPOCH, ZERO_UUID, BrokerId, TopicPartition, Uuid

Outcomes = dict[TopicPartition, KafkaError | None]
"""The error for each partition; None is success."""


class Fetchers(Protocol):
    """The part of the fetcher manager that role changes and the replica manager use."""

    failed_partitions: dict[TopicPartition, str]

    def follow(self, partition: Partition, leader: LeaderAddress) -> None: ...

    def forget(self, topic_partitions: Iterable[TopicPartition]) -> None: ...

    def stop_idle(self) -> None: ...

    def suspected_leaders(self) -> set[BrokerId]: ...


class RoleChanges:
    """Makes hosted partitions leaders or followers, stops and deletes replicas, and notifies the coordinators."""

    def __init__(
        self, hosted: HostedPartitions, logs: ReplicaLogs, fetchers: Fetchers, context: PartitionContext
    ) -> None:
        self._hosted = hosted
        self._logs = logs
        self._fetchers = fetchers
        self._context = context
        self._broker_id = context.broker_id
        self.controller_epoch = 0
        self.on_leadership_change: list[Callable[[list[Partition], list[Partition]], None]] = []
        """Listeners, called with the partitions that this broker now leads and those that it does not (R10)."""

    # ---- LeaderAndIsr

    def become_leader_or_follower(
        self,
        controller_epoch: int,
        assignments: Sequence[PartitionAssignment],
        live_leaders: Mapping[BrokerId, LeaderAddress],
    ) -> Outcomes:
        """R7 to R9. Raises StaleControllerEpoch before anything has changed."""
        self._accept_controller_epoch(controller_epoch)
        outcomes: Outcomes = {each.topic_partition: self._rejection(each) for each in assignments}
        accepted = [each for each in assignments if outcomes[each.topic_partition] is None]
        self._fetchers.forget([each.topic_partition for each in accepted])
        leading: list[Partition] = []
        following: list[Partition] = []
        leaders = [each for each in accepted if each.leader == self._broker_id]
        followers = [each for each in accepted if each.leader != self._broker_id]
        for assignment in leaders + followers:
            try:
                partition = self._make_leader_or_follower(assignment, live_leaders)
            except ResourceShortage as shortage:
                # Not a storage error, which would mean a failed log directory: the controller sends this again (R43).
                outcomes[assignment.topic_partition] = UnknownServerError(str(shortage))
            except KafkaStorageError as error:
                self._hosted.offline.add(assignment.topic_partition)
                outcomes[assignment.topic_partition] = error
            else:
                (leading if assignment.leader == self._broker_id else following).append(partition)
        self._fetchers.stop_idle()
        log_roles(leading, following, controller_epoch)
        self.notify_listeners(leading, following)
        return outcomes

    def _accept_controller_epoch(self, controller_epoch: int) -> None:
        if controller_epoch < self.controller_epoch:
            raise StaleControllerEpoch(f"controller epoch {controller_epoch} is older than {self.controller_epoch}")
        self.controller_epoch = controller_epoch

    def _rejection(self, assignment: PartitionAssignment) -> KafkaError | None:
        topic_partition = assignment.topic_partition
        if topic_partition in self._hosted.offline:
            return self._hosted.absence(topic_partition)
        hosted = self._hosted.online.get(topic_partition)
        if hosted is not None and hosted.leader_epoch >= 0 and _are_different(assignment.topic_id, hosted.topic_id):
            return InconsistentTopicId(f"{topic_partition} has another topic id on this broker")
        if hosted is not None and assignment.leader_epoch <= hosted.leader_epoch:
            # The same error code as in Kafka.
            return StaleControllerEpoch(f"{topic_partition} is in leader epoch {hosted.leader_epoch} here")
        if assignment.leader == self._broker_id and assignment.is_of_earlier_incarnation(self._broker_id):
            return StaleBrokerEpoch(f"{topic_partition} was assigned to an earlier broker epoch of this broker")
        if self._broker_id not in assignment.replicas:
            return UnknownTopicOrPartition(f"broker {self._broker_id} is not a replica of {topic_partition}")
        return None

    def _make_leader_or_follower(
        self, assignment: PartitionAssignment, live_leaders: Mapping[BrokerId, LeaderAddress]
    ) -> Partition:
        partition = self._host_partition(assignment)
        if assignment.leader == self._broker_id:
            lead_with_missing_segments(partition.log)
            partition.become_leader(assignment)
        else:
            self._follow(partition, assignment, live_leaders)
        return partition

    def _host_partition(self, assignment: PartitionAssignment) -> Partition:
        """The partition, with a log. Created also if there is no leader, so that the high watermark is kept."""
        topic_partition, topic_id = assignment.topic_partition, assignment.topic_id
        partition = self._hosted.online.get(topic_partition)
        if partition is not None and _are_different(topic_id, partition.topic_id):
            partition = None  # without a role since this broker registered again, and its topic was recreated meanwhile
        if partition is None:
            log = self._logs.find_or_create(assignment)
            partition = Partition(topic_partition, topic_id, log, self._context)
            self._hosted.online[topic_partition] = partition
        return partition

    def _follow(
        self,
        partition: Partition,
        assignment: PartitionAssignment,
        live_leaders: Mapping[BrokerId, LeaderAddress],
    ) -> None:
        address = live_leaders.get(assignment.leader)
        if address is not None:
            copy_missing_segments(partition.log)
        partition.become_follower(assignment)
        if address is not None:
            self._fetchers.follow(partition, address)

    def notify_listeners(self, leading: list[Partition], not_leading: list[Partition]) -> None:
        if leading or not_leading:
            for callback in self.on_leadership_change:
                callback(leading, not_leading)

    # ---- StopReplica

    def stop_replicas(self, controller_epoch: int, stops: Sequence[ReplicaStop]) -> Outcomes:
        """R11. Raises StaleControllerEpoch before anything has changed."""
        self._accept_controller_epoch(controller_epoch)
        outcomes: Outcomes = {stop.topic_partition: self.stop_rejection(stop) for stop in stops}
        accepted = [stop for stop in stops if outcomes[stop.topic_partition] is None and not self._is_superseded(stop)]
        self._fetchers.forget([stop.topic_partition for stop in accepted])
        left = []
        for stop in accepted:
            partition = self._hosted.online.get(stop.topic_partition)
            if partition is not None:
                partition.resign()
                left.append(partition)
            if stop.delete:
                outcomes[stop.topic_partition] = self._delete(stop)
        self._fetchers.stop_idle()
        self._forget_traffic({stop.topic_partition.topic for stop in accepted if stop.delete})
        log_stopped(accepted, controller_epoch)
        self.notify_listeners([], left)
        return outcomes

    def stop_rejection(self, stop: ReplicaStop) -> KafkaError | None:
        """KIP-570: a late request must not stop a replica that was added again after it was sent."""
        if stop.topic_partition in self._hosted.offline:
            return self._hosted.absence(stop.topic_partition)
        hosted = self._hosted.online.get(stop.topic_partition)
        is_unconditional = stop.leader_epoch in (EPOCH_DURING_DELETE, NO_EPOCH_CHECK)
        if is_unconditional:
            return None
        newest = NO_LEADER_EPOCH if hosted is None else hosted.leader_epoch
        if stop.delete:
            newest = max(newest, self._latest_epoch_in_log(stop))
        if stop.leader_epoch >= newest:
            return None
        return FencedLeaderEpoch(f"{stop.topic_partition} is in leader epoch {newest} here")

    def _latest_epoch_in_log(self, stop: ReplicaStop) -> int:
        """R37: a controller that has a log deleted must know every leader that has written to it."""
        log = self._logs.get(stop.topic_partition)
        if log is None or _are_different(log.topic_id or ZERO_UUID, stop.topic_id):
            return NO_LEADER_EPOCH
        starts = log.leader_epochs.starts
        return starts[-1].epoch if starts else NO_LEADER_EPOCH

    def _is_superseded(self, stop: ReplicaStop) -> bool:
        """The named topic id is gone, and a later topic with the same name has a role here."""
        hosted = self._hosted.online.get(stop.topic_partition)
        return (
            hosted is not None
            and hosted.leader_epoch >= 0
            and ZERO_UUID != stop.topic_id != hosted.topic_id != ZERO_UUID
        )

    def _delete(self, stop: ReplicaStop) -> KafkaError | None:
        self._hosted.online.pop(stop.topic_partition, None)
        try:
            self._logs.delete(stop)
        except ResourceShortage as shortage:
            return UnknownServerError(str(shortage))  # the controller retries (R43)
        except KafkaStorageError as error:
            self._hosted.offline.add(stop.topic_partition)
            return error
        return None

    def _forget_traffic(self, topics: set[str]) -> None:
        if topics:
            for topic in topics.difference(each.topic for each in self._hosted.online):
                self._context.traffic.forget(topic)


def _are_different(one: Uuid, other: Uuid) -> bool:
    """False if either id is unknown (ZERO_UUID)."""
    return ZERO_UUID != one != other != ZERO_UUID
