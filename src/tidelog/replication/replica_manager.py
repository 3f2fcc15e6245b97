"""Replica manager: the hosted partitions of this broker, events for all of them, and their background tasks."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tidelog.config.broker import BrokerSettings
from tidelog.config.topic import TopicSettings
from tidelog.replication.alter_partition_manager import AlterPartitionManager
from tidelog.replication.assignment import LeaderAddress, PartitionAssignment, ReplicaStop
from tidelog.replication.hosted_partitions import HostedPartitions
from tidelog.replication.isr_change_propagation import IsrChangePropagation
from tidelog.replication.leader import PartitionLeader
from tidelog.replication.leader_confirmation import LeaderConfirmation
from tidelog.replication.partition import Partition, PartitionContext
from tidelog.replication.replica_logs import ReplicaLogs
from tidelog.replication.role_changes import Fetchers, Outcomes, RoleChanges
from tidelog.replication.traffic import Traffic
from tidelog.runtime.clock import Clock
from tidelog.runtime.purgatory import Purgatory
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.store.interface import Store
from tidelog.types import BrokerId, TopicPartition

logger = logging.getLogger(__name__)


class ReplicaManager:
    """All partitions of a broker, online or offline. `RoleChanges` gives them their roles."""

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
        self._logs = ReplicaLogs(logs, topic_settings)
        self._fetchers = fetchers
        self._clock = clock
        self._isr_change_propagation = IsrChangePropagation(store, clock)
        self.alter_partition_manager = AlterPartitionManager(store, self.monotonic_ms, self._isr_change_propagation.add)
        self.leader_confirmation = LeaderConfirmation(store, self.monotonic_ms)
        self._context = PartitionContext(
            broker_id,
            purgatory,
            self.monotonic_ms,
            settings.replica_lag_time_max_ms,
            self.alter_partition_manager.propose,
            store,
        )
        self._hosted = HostedPartitions()
        self._online = self._hosted.online
        self._roles = RoleChanges(self._hosted, self._logs, fetchers, self._context)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._hosted)

    def __len__(self) -> int:
        return len(self._online)

    def is_hosted(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition is offline, or online with a role from the controller."""
        return self._hosted.is_hosted(topic_partition)

    def suspected_leaders(self) -> set[BrokerId]:
        """Leaders that closed their connection a moment ago and may be dead."""
        return self._fetchers.suspected_leaders()

    def fetch_failure(self, topic_partition: TopicPartition) -> str:
        """Why the fetches of a followed partition fail; empty if they do not."""
        return self._fetchers.failed_partitions.get(topic_partition, "")

    def get(self, topic: str, partition: int) -> Partition:
        found = self._online.get((topic, partition))  # type: ignore[call-overload]  # a tuple equals its named twin
        if found is None:
            raise self._hosted.absence(TopicPartition(topic, partition))
        return found  # type: ignore[no-any-return]

    def leader_of(self, topic_partition: TopicPartition) -> PartitionLeader | None:
        """The role of a partition that this broker leads."""
        found = self._online.get(topic_partition)
        return None if found is None else found.leader

    def log_of(self, topic_partition: TopicPartition) -> Log | None:
        """Also the log of a partition that the controller has not assigned yet."""
        return self._logs.get(topic_partition)

    # ---- requests of the controller

    def become_leader_or_follower(
        self,
        controller_epoch: int,
        assignments: Sequence[PartitionAssignment],
        live_leaders: Mapping[BrokerId, LeaderAddress],
    ) -> Outcomes:
        """R7 to R9. Raises StaleControllerEpoch before anything has changed."""
        return self._roles.become_leader_or_follower(controller_epoch, assignments, live_leaders)

    def stop_replicas(self, controller_epoch: int, stops: Sequence[ReplicaStop]) -> Outcomes:
        """R11. Raises StaleControllerEpoch before anything has changed."""
        return self._roles.stop_replicas(controller_epoch, stops)

    @property
    def controller_epoch(self) -> int:
        """The latest controller epoch of a request."""
        return self._roles.controller_epoch

    @controller_epoch.setter
    def controller_epoch(self, epoch: int) -> None:
        self._roles.controller_epoch = epoch

    @property
    def on_leadership_change(self) -> list[Callable[[list[Partition], list[Partition]], None]]:
        """Listeners, called with the partitions that this broker now leads and those that it does not (R10)."""
        return self._roles.on_leadership_change

    # ---- events of the broker

    def monotonic_ms(self) -> int:
        """Time of leaders and followers. The wall clock may be set, by hours and in both directions (R17, R19)."""
        return int(self._clock.monotonic() * 1000)

    @property
    def wall_offset_ms(self) -> int:
        """For reports: wall time minus monotonic time."""
        return self._clock.now_ms() - self.monotonic_ms()

    def on_follower_request(self, replica_id: BrokerId) -> int:
        """A follower's Fetch arrived, for any partitions: its time. Noted only of registered brokers."""
        peers, now_ms = self._context.peers, self.monotonic_ms()
        if replica_id in peers.epochs:
            peers.last_fetch_ms[replica_id] = now_ms
        return now_ms

    def on_brokers_changed(self, epochs: Mapping[BrokerId, int]) -> None:
        """`epochs`: broker epochs of all registered brokers; -1 if unknown."""
        peers = self._context.peers
        if peers.epochs == epochs:
            return
        peers.epochs = dict(epochs)
        now_ms = self.monotonic_ms()
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
        self._hosted.offline.update(failed)
        left = [self._online.pop(each) for each in failed if each in self._online]
        for partition in left:
            partition.resign()
        self._fetchers.stop_idle()
        self._roles.notify_listeners([], left)

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
        self._roles.notify_listeners([], list(self._online.values()))

    # ---- background tasks

    async def run(self) -> None:
        """Check the ISR, write and propagate ISR changes, confirm leaderships, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._check_in_sync())
            group.create_task(self.alter_partition_manager.run())
            group.create_task(self.leader_confirmation.run())
            group.create_task(self._isr_change_propagation.run())

    async def _check_in_sync(self) -> None:
        """R19: runs every half of replica.lag.time.max.ms, so that a replica leaves after 1.5 times that at most.

        At the log end no follower is lagging. If they are silent, the leader may have a successor, and asks the store.
        """
        while True:
            await asyncio.sleep(self._context.lag_time_max_ms / 2000)
            now_ms = self.monotonic_ms()
            for partition in self._online.values():
                leader = partition.leader
                if leader is not None:
                    partition.perform(leader, leader.on_check(now_ms))
                    if leader.has_silent_followers(now_ms):
                        self.leader_confirmation.ask(partition)

    # ---- metrics

    @property
    def traffic(self) -> Traffic:
        return self._context.traffic

    @property
    def offline_partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._hosted.offline)

    def leaderships(self) -> Iterator[PartitionLeader]:
        """Leader roles of this broker, also while suspended."""
        return self._hosted.leaderships()

    @property
    def leader_count(self) -> int:
        return sum(1 for _ in self.leaderships())
