"""Short ways to make leaders, partitions and replica managers."""

import asyncio
from collections.abc import Iterable, Sequence

from tests.storage.logs import manager_on
from tidelog.config.broker import BrokerSettings
from tidelog.config.topic import TopicSettings
from tidelog.errors import KafkaError
from tidelog.protocol.messages.fetch import FetchPartition, PartitionData
from tidelog.replication.assignment import LeaderAddress, PartitionAssignment
from tidelog.replication.fetch_reads import FetchParams
from tidelog.replication.leader import LeaderEffects, PartitionLeader, ProposeInSyncReplicas
from tidelog.replication.partition import Partition
from tidelog.replication.remote_replica import Peers
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.runtime.clock import Clock, ManualClock
from tidelog.runtime.deadlines import Deadlines
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.runtime.purgatory import Purgatory
from tidelog.storage.log_manager import LogManager
from tidelog.store.interface import Store
from tidelog.store.memory import MemoryStore, MemoryStoreState
from tidelog.types import BrokerId, TopicPartition, Uuid

ORDERS = TopicPartition("orders", 0)
ORDERS_ID = b"1" * 16
START_MS = 1_000_000
LAG_MS = 30_000


def assignment_of(
    *replicas: BrokerId,
    leader: BrokerId = 1,
    in_sync: Sequence[BrokerId] | None = None,
    epoch: int = 5,
    version: int = 0,
    topic_partition: TopicPartition = ORDERS,
    topic_id: Uuid = ORDERS_ID,
    is_new: bool = True,
) -> PartitionAssignment:
    return PartitionAssignment(
        topic_partition=topic_partition,
        topic_id=topic_id,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        in_sync_replicas=tuple(replicas if in_sync is None else in_sync),
        version=version,
        replicas=replicas,
        is_new=is_new,
    )


def peers_of(*alive: BrokerId) -> Peers:
    peers = Peers()
    peers.epochs = dict.fromkeys(alive, -1)
    return peers


def leader_of(
    *replicas: BrokerId,
    in_sync: Sequence[BrokerId] | None = None,
    log_end: int = 0,
    high_watermark: int = 0,
    epoch_start: int = 0,
    min_in_sync: int = 1,
    peers: Peers | None = None,
    kind: type[PartitionLeader] = PartitionLeader,
) -> PartitionLeader:
    """Broker 1 leads."""
    return kind(
        assignment_of(*replicas, in_sync=in_sync),
        epoch_start_offset=epoch_start,
        log_end_offset=log_end,
        high_watermark=high_watermark,
        min_in_sync_replicas=min_in_sync,
        lag_time_max_ms=LAG_MS,
        peers=peers or peers_of(*replicas),
        now_ms=START_MS,
    )


def proposed(effects: LeaderEffects | None) -> ProposeInSyncReplicas | None:
    return None if effects is None else effects.proposal


def fetch_as_follower(
    partition: Partition,
    replica: BrokerId,
    offset: int,
    log_start_offset: int = 0,
    at_ms: int = START_MS,
    *,
    replica_epoch: int = -1,
) -> PartitionData:
    """As a Fetch of this replica arrives."""
    request = FetchPartition(
        partition=partition.topic_partition.partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=log_start_offset,
        partition_max_bytes=1_000_000,
    )
    return partition.fetch_records(FetchParams(replica, replica_epoch, 0), request, 1_000_000, recorded_at_ms=at_ms)


class RecordingFetchers:
    """Stands for the fetchers: records its calls, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.failed_partitions: dict[TopicPartition, str] = {}

    def follow(self, partition: Partition, leader: LeaderAddress) -> None:
        self.calls.append(("follow", partition.topic_partition, leader.broker_id, partition.leader_epoch))

    def forget(self, topic_partitions: Iterable[TopicPartition]) -> None:
        self.calls += [("forget", each) for each in topic_partitions]

    def stop_idle(self) -> None: ...

    def suspected_leaders(self) -> set[int]:
        return set()


class Replicas:
    """A replica manager of broker 1 with everything around it in memory."""

    def __init__(self, manager: ReplicaManager, fetchers: RecordingFetchers, logs: LogManager) -> None:
        self.manager = manager
        self.fetchers = fetchers
        self.logs = logs

    @classmethod
    async def on(
        cls,
        disk: MemoryDisk,
        *,
        clock: Clock | None = None,
        store: Store | None = None,
        topic_settings: TopicSettings | None = None,
        log_dirs: tuple[str, ...] = ("/data",),
    ) -> "Replicas":
        loop = asyncio.get_running_loop()
        purgatory = Purgatory(loop, Deadlines(loop))
        fetchers = RecordingFetchers()
        session = store or MemoryStore(MemoryStoreState())
        logs = await manager_on(disk, *log_dirs)
        manager = ReplicaManager(
            broker_id=1,
            logs=logs,
            purgatory=purgatory,
            fetchers=fetchers,
            store=lambda: session,
            clock=clock or ManualClock(START_MS),
            settings=BrokerSettings(),
            topic_settings=lambda topic: topic_settings or TopicSettings(),
        )
        manager.on_brokers_changed(dict.fromkeys((1, 2, 3), -1))
        return cls(manager, fetchers, logs)

    def take(self, *assignments: PartitionAssignment, controller_epoch: int = 1) -> list[type[KafkaError] | None]:
        """What became of each: the class of its error, or None."""
        addresses = {broker: LeaderAddress(broker, "localhost", 9090 + broker) for broker in (1, 2, 3)}
        outcomes = self.manager.become_leader_or_follower(controller_epoch, assignments, addresses)
        return [None if error is None else type(error) for error in outcomes.values()]

    def orders(self) -> Partition:
        return self.manager.get("orders", 0)
