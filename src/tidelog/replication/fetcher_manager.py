"""Fetcher manager (Kafka: ReplicaFetcherManager): assigns followed partitions to fetchers (R25)."""

import asyncio
import logging
import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tidelog.config.broker import BrokerSettings
from tidelog.replication.assignment import LeaderAddress
from tidelog.replication.fetcher import Fetcher, FetcherStatistics
from tidelog.replication.leader_link import FetchingBroker
from tidelog.replication.partition import Partition
from tidelog.replication.quota import ReplicationQuota
from tidelog.runtime.clock import Clock
from tidelog.runtime.network import Network
from tidelog.types import BrokerId, TopicPartition

logger = logging.getLogger(__name__)

DOUBT_S = 1.0
"""Longer than an election takes. After that Metadata names the leader again: only this broker may have lost it."""


class FetchersStatistics(NamedTuple):
    """`max_lag` is kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica."""

    fetchers: tuple[FetcherStatistics, ...]
    failed_partitions: dict[TopicPartition, str]

    @property
    def max_lag(self) -> int:
        return max((lag for fetcher in self.fetchers for lag in fetcher.lags.values()), default=0)


def fetcher_id_of(topic_partition: TopicPartition, fetchers: int) -> int:
    """Stable across processes; spreads the partitions of one topic evenly."""
    return (zlib.crc32(topic_partition.topic.encode()) + topic_partition.partition) % fetchers


class FetcherManager:
    """One fetcher per leader and fetcher id. A fetcher without partitions is stopped."""

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        network: Network,
        clock: Clock,
        settings: Callable[[], BrokerSettings],
        quota: ReplicationQuota,
    ) -> None:
        self._broker = FetchingBroker(broker_id, broker_epoch, network, clock, settings, quota)
        self._fetchers: dict[tuple[BrokerId, int], Fetcher] = {}
        self._fetcher_of: dict[TopicPartition, Fetcher] = {}
        self._fetcher_count = settings().num_replica_fetchers
        self._closing: set[asyncio.Task[None]] = set()
        self.failed_partitions: dict[TopicPartition, str] = {}
        """Reasons, by partition: not fetched until its leader changes, or not writable here and retried."""

    def statistics(self) -> FetchersStatistics:
        fetchers = tuple(fetcher.statistics() for fetcher in self._fetchers.values())
        return FetchersStatistics(fetchers, dict(self.failed_partitions))

    def suspected_leaders(self) -> set[BrokerId]:
        """Leaders that closed their connection a moment ago: they may be dead, and an election may follow."""
        since = self._broker.clock.monotonic() - DOUBT_S
        return {leader for (leader, _), fetcher in self._fetchers.items() if fetcher.lost_at > since}

    def follow(self, partition: Partition, leader: LeaderAddress) -> None:
        """Fetch from this leader in the partition's current role, after truncation (R27). Starts at once."""
        topic_partition = partition.topic_partition
        self.forget([topic_partition])
        fetcher = self._fetcher_for(topic_partition, leader)
        self._fetcher_of[topic_partition] = fetcher
        fetcher.add(partition)

    def _fetcher_for(self, topic_partition: TopicPartition, leader: LeaderAddress) -> Fetcher:
        fetcher_id = fetcher_id_of(topic_partition, self._fetcher_count)
        fetcher = self._fetchers.get((leader.broker_id, fetcher_id))
        if fetcher is None:
            fetcher = Fetcher(self._broker, leader, fetcher_id, self._on_partition_failed, self._on_write_error)
            self._fetchers[leader.broker_id, fetcher_id] = fetcher
        elif fetcher.leader != leader:
            self.retarget(leader)
        return fetcher

    def forget(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching, before anything else changes in the partitions (R8, R11). Responses in flight are ignored."""
        for topic_partition in topic_partitions:
            self.failed_partitions.pop(topic_partition, None)
            fetcher = self._fetcher_of.pop(topic_partition, None)
            if fetcher is not None:
                fetcher.remove(topic_partition)

    def _on_partition_failed(self, topic_partition: TopicPartition, reason: str) -> None:
        self._fetcher_of.pop(topic_partition, None)
        self.failed_partitions[topic_partition] = reason

    def _on_write_error(self, topic_partition: TopicPartition, reason: str | None) -> None:
        if reason is None:
            self.failed_partitions.pop(topic_partition, None)
        else:
            self.failed_partitions[topic_partition] = reason

    def retarget(self, address: LeaderAddress) -> None:
        """The leader's address may have changed; does nothing if it has not."""
        for (broker_id, _), fetcher in self._fetchers.items():
            if broker_id == address.broker_id and fetcher.leader != address:
                logger.info("leader moved leader=%d address=%s:%d", broker_id, address.host, address.port)
                fetcher.retarget(address)

    def resize(self) -> None:
        """Apply a new num.replica.fetchers: moves each partition to its new fetcher."""
        count = self._broker.settings().num_replica_fetchers
        if count == self._fetcher_count:
            return
        self._fetcher_count = count
        fetched = [(fetcher.leader, each) for fetcher in self._fetchers.values() for each in fetcher.partitions()]
        for leader, partition in fetched:
            partition.restart_following()
            self.follow(partition, leader)
        self.stop_idle()

    def stop_idle(self) -> None:
        """Stop fetchers without partitions."""
        for key, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                del self._fetchers[key]
                task = asyncio.get_running_loop().create_task(fetcher.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Stop all fetchers."""
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        self._fetcher_of.clear()
        await asyncio.gather(*(fetcher.close() for fetcher in fetchers), *self._closing)
