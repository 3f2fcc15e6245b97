"""Replica manager: the partitions that this broker hosts, and the controller's requests for them (R7 to R11)."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from tidelog.config.broker import BrokerSettings
from tidelog.config.topic import TopicSettings
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
from tidelog.replication.alter_partition_manager import AlterPartitionManager
from tidelog.replication.assignment import (
    EPOCH_DURING_DELETE,
    NO_EPOCH_CHECK,
    LeaderAddress,
    PartitionAssignment,
    ReplicaStop,
)
from tidelog.replication.isr_change_propagation import IsrChangePropagation
from tidelog.replication.leader import PartitionLeader
from tidelog.replication.partition import Partition, PartitionContext
from tidelog.replication.replica_logs import ReplicaLogs
from tidelog.replication.role_log_lines import log_roles, log_stopped
from tidelog.replication.traffic import Traffic
from tidelog.runtime.clock import Clock
from tidelog.runtime.purgatory import Purgatory
from tidelog.storage.disk_errors import ResourceShortage
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.store.interface import Store
from tidelog.types import NO_LEADER_EPOCH, ZERO_UUID, BrokerId, TopicPartition, Uuid

logger = logging.getLogger(__name__)

Outcomes = dict[TopicPartition, KafkaError | None]
"""The error for each partition; None is success."""


class Fetchers(Protocol):
    """The part of the fetcher manager that the replica manager uses."""

    failed_partitions: dict[TopicPartition, str]

    def follow(self, partition: Partition, leader: LeaderAddress) -> None: ...

    def forget(self, topic_partitions: Iterable[TopicPartition]) -> None: ...

    def stop_idle(self) -> None: ...

    def suspected_leaders(self) -> set[BrokerId]: ...


class ReplicaManager:
    """Each partition is online, offline (its log directory failed) or not hosted here."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        logs: LogManager,
        purgatory: Purgatory,
        fetchers: Fetchers,
        store: Callable[[], Store],
        clock: Clock,
        settings: BrokerSettings,
        topic_settings: Callable[[str], TopicSettings],
    ) -> None:
        self._broker_id = broker_id
        self._logs = ReplicaLogs(logs, topic_settings)
        self._fetchers = fetchers
        self._clock = clock
        self._isr_change_propagation = IsrChangePropagation(store, clock)
        self.alter_partition_manager = AlterPartitionManager(store, clock.now_ms, self._isr_change_propagation.add)
        self._context = PartitionContext(
            broker_id,
            purgatory,
            clock.now_ms,
            settings.replica_lag_time_max_ms,
            self.alter_partition_manager.propose,
            store,
        )
        self._online: dict[TopicPartition, Partition] = {}
        self._offline: set[TopicPartition] = set()
        self.controller_epoch = 0
        self.on_leadership_change: list[Callable[[list[Partition], list[Partition]], None]] = []
        """Listeners, called with the partitions that this broker now leads and those that it does not (R10)."""

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._online.values())

    def __len__(self) -> int:
        return len(self._online)

    def is_hosted(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition is offline, or online with a role from the controller."""
        partition = self._online.get(topic_partition)
        return topic_partition in self._offline or (partition is not None and partition.leader_epoch >= 0)

    def suspected_leaders(self) -> set[BrokerId]:
        """Leaders that closed their connection a moment ago and may be dead."""
        return self._fetchers.suspected_leaders()

    def fetch_failure(self, topic_partition: TopicPartition) -> str:
        """Why the fetches of a followed partition fail; empty if they do not."""
        return self._fetchers.failed_partitions.get(topic_partition, "")

    def get(self, topic: str, partition: int) -> Partition:
        found = self._online.get((topic, partition))  # type: ignore[call-overload]  # a tuple equals its named twin
        if found is None:
            raise self._absence(TopicPartition(topic, partition))
        return found  # type: ignore[no-any-return]

    def log_of(self, topic_partition: TopicPartition) -> Log | None:
        """Also the log of a partition that the controller has not assigned yet."""
        return self._logs.get(topic_partition)

    def _absence(self, topic_partition: TopicPartition) -> KafkaStorageError | UnknownTopicOrPartition:
        if topic_partition in self._offline:
            return KafkaStorageError(f"the log directory of {topic_partition} is offline")
        return UnknownTopicOrPartition(f"{topic_partition} is not on this broker")

    # ---- requests of the controller

    def become_leader_or_follower(
        self,
        controller_epoch: int,
        assignments: Sequence[PartitionAssignment],
        live_leaders: Mapping[BrokerId, LeaderAddress],
    ) -> Outcomes:
        """R7 to R9. Raises StaleControllerEpoch before anything has changed."""
        self._accept_controller_epoch(controller_epoch)
        outcomes: Outcomes = {each.topic_partition: self._refusal(each) for each in assignments}
        accepted = [each for each in assignments if outcomes[each.topic_partition] is None]
        self._fetchers.forget([each.topic_partition for each in accepted])
        leading: list[Partition] = []
        following: list[Partition] = []
        for assignment in sorted(accepted, key=self._is_to_follow):
            try:
                partition = self._make_leader_or_follower(assignment, live_leaders)
            except ResourceShortage as shortage:
                # Not a storage error, which would mean a failed log directory: the controller sends this again (R43).
                outcomes[assignment.topic_partition] = UnknownServerError(str(shortage))
            except KafkaStorageError as error:
                self._offline.add(assignment.topic_partition)
                outcomes[assignment.topic_partition] = error
            else:
                (following if self._is_to_follow(assignment) else leading).append(partition)
        self._fetchers.stop_idle()
        log_roles(leading, following, controller_epoch)
        self._notify_leadership_listeners(leading, following)
        return outcomes

    def _accept_controller_epoch(self, controller_epoch: int) -> None:
        if controller_epoch < self.controller_epoch:
            raise StaleControllerEpoch(f"controller epoch {controller_epoch} is older than {self.controller_epoch}")
        self.controller_epoch = controller_epoch

    def _refusal(self, assignment: PartitionAssignment) -> KafkaError | None:
        topic_partition = assignment.topic_partition
        if topic_partition in self._offline:
            return self._absence(topic_partition)
        hosted = self._online.get(topic_partition)
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
        if self._is_to_follow(assignment):
            self._follow(partition, assignment, live_leaders)
        else:
            partition.become_leader(assignment)
        return partition

    def _is_to_follow(self, assignment: PartitionAssignment) -> bool:
        return assignment.leader != self._broker_id

    def _host_partition(self, assignment: PartitionAssignment) -> Partition:
        """The partition, with a log. Created also if there is no leader, so that the high watermark is kept."""
        topic_partition, topic_id = assignment.topic_partition, assignment.topic_id
        partition = self._online.get(topic_partition)
        if partition is not None and _are_different(topic_id, partition.topic_id):
            partition = None  # without a role since this broker registered again, and its topic was recreated meanwhile
        if partition is None:
            log = self._logs.find_or_create(assignment)
            partition = Partition(topic_partition, topic_id, log, self._context)
            self._online[topic_partition] = partition
        return partition

    def _follow(
        self,
        partition: Partition,
        assignment: PartitionAssignment,
        live_leaders: Mapping[BrokerId, LeaderAddress],
    ) -> None:
        partition.become_follower(assignment)
        address = live_leaders.get(assignment.leader)
        if address is not None:
            self._fetchers.follow(partition, address)

    def _notify_leadership_listeners(self, leading: list[Partition], left: list[Partition]) -> None:
        if leading or left:
            for callback in self.on_leadership_change:
                callback(leading, left)

    def stop_replicas(self, controller_epoch: int, stops: Sequence[ReplicaStop]) -> Outcomes:
        """R11. Raises StaleControllerEpoch before anything has changed."""
        self._accept_controller_epoch(controller_epoch)
        outcomes: Outcomes = {stop.topic_partition: self.stop_refusal(stop) for stop in stops}
        accepted = [stop for stop in stops if outcomes[stop.topic_partition] is None and not self._is_superseded(stop)]
        self._fetchers.forget([stop.topic_partition for stop in accepted])
        left = []
        for stop in accepted:
            partition = self._online.get(stop.topic_partition)
            if partition is not None:
                partition.resign()
                left.append(partition)
            if stop.delete:
                outcomes[stop.topic_partition] = self._delete(stop)
        self._fetchers.stop_idle()
        self._forget_traffic({stop.topic_partition.topic for stop in accepted if stop.delete})
        log_stopped(accepted, controller_epoch)
        self._notify_leadership_listeners([], left)
        return outcomes

    def stop_refusal(self, stop: ReplicaStop) -> KafkaError | None:
        """KIP-570: a late request must not stop a replica that was added again after it was sent."""
        if stop.topic_partition in self._offline:
            return self._absence(stop.topic_partition)
        hosted = self._online.get(stop.topic_partition)
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
        """R37: whoever has a log deleted knows of every leader that has written to it, or knows too little."""
        log = self._logs.get(stop.topic_partition)
        if log is None or _are_different(log.topic_id or ZERO_UUID, stop.topic_id):
            return NO_LEADER_EPOCH
        starts = log.leader_epochs.starts
        return starts[-1].epoch if starts else NO_LEADER_EPOCH

    def _is_superseded(self, stop: ReplicaStop) -> bool:
        """The named topic id is gone, and a later topic with the same name has a role here."""
        hosted = self._online.get(stop.topic_partition)
        return (
            hosted is not None
            and hosted.leader_epoch >= 0
            and ZERO_UUID != stop.topic_id != hosted.topic_id != ZERO_UUID
        )

    def _delete(self, stop: ReplicaStop) -> KafkaError | None:
        self._online.pop(stop.topic_partition, None)
        try:
            self._logs.delete(stop)
        except ResourceShortage as shortage:
            return UnknownServerError(str(shortage))  # the controller retries (R43)
        except KafkaStorageError as error:
            self._offline.add(stop.topic_partition)
            return error
        return None

    def _forget_traffic(self, topics: set[str]) -> None:
        if topics:
            for topic in topics.difference(each.topic for each in self._online):
                self.traffic.forget(topic)

    # ---- events of the broker

    def on_follower_request(self, replica_id: BrokerId, now_ms: int) -> None:
        """A follower's Fetch arrived, for any partitions. Ignored unless the replica id is a registered broker."""
        peers = self._context.peers
        if replica_id in peers.epochs:
            peers.last_fetch_ms[replica_id] = now_ms

    def on_brokers_changed(self, epochs: Mapping[BrokerId, int]) -> None:
        """`epochs`: broker epochs of all registered brokers; -1 if unknown."""
        peers = self._context.peers
        if peers.epochs == epochs:
            return
        peers.epochs = dict(epochs)
        now_ms = self._clock.now_ms()
        for partition in self._online.values():
            leader = partition.leader
            if leader is not None:
                partition.perform(leader, leader.on_peers_changed(now_ms))

    def configure(self, topic: str, partition_count: int, settings: TopicSettings) -> None:
        for index in range(partition_count):
            partition = self._online.get(TopicPartition(topic, index))
            if partition is not None:
                partition.configure(settings)

    def mark_offline(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """R5: their log directory failed."""
        failed = dict.fromkeys(topic_partitions)
        self._fetchers.forget(failed)
        self._offline.update(failed)
        left = [self._online.pop(each) for each in failed if each in self._online]
        for partition in left:
            partition.resign()
        self._fetchers.stop_idle()
        self._notify_leadership_listeners([], left)

    # ---- self-fencing

    def suspend(self) -> None:
        """The session with the store may have ended: stop acting as leader."""
        self._context.is_suspended = True
        for partition in self._online.values():
            partition.suspend()
        logger.warning("suspended leadership partitions=%d", self.leader_count)

    def resume(self) -> None:
        """The session is alive: lead again in the same epochs."""
        self._context.is_suspended = False
        for partition in self._online.values():
            partition.resume()
        logger.info("resumed leadership partitions=%d", self.leader_count)

    def resign_all(self) -> None:
        """The session has ended: no roles until the controller assigns them again."""
        logger.warning("resigned from all roles leading=%d hosted=%d", self.leader_count, len(self._online))
        self._context.is_suspended = False
        self._fetchers.forget(list(self._online))
        for partition in self._online.values():
            partition.forget_epoch()
        self._fetchers.stop_idle()
        self._notify_leadership_listeners([], list(self._online.values()))

    # ---- background tasks

    async def run(self) -> None:
        """Check the ISR, write ISR changes and propagate them, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._check_in_sync())
            group.create_task(self.alter_partition_manager.run())
            group.create_task(self._isr_change_propagation.run())

    async def _check_in_sync(self) -> None:
        """R19: runs every half of replica.lag.time.max.ms, so that a replica leaves after 1.5 times that at most."""
        while True:
            await asyncio.sleep(self._context.lag_time_max_ms / 2000)
            now_ms = self._clock.now_ms()
            for partition in self._online.values():
                leader = partition.leader
                if leader is not None:
                    partition.perform(leader, leader.on_check(now_ms))

    # ---- metrics

    @property
    def traffic(self) -> Traffic:
        return self._context.traffic

    @property
    def offline_partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._offline)

    def leaderships(self) -> Iterator[PartitionLeader]:
        """Leader roles of this broker, also while suspended."""
        return (partition.role for partition in self if isinstance(partition.role, PartitionLeader))

    @property
    def leader_count(self) -> int:
        return sum(1 for _ in self.leaderships())


def _are_different(one: Uuid, other: Uuid) -> bool:
    """False if either id is unknown (ZERO_UUID)."""
    return ZERO_UUID != one != other != ZERO_UUID
