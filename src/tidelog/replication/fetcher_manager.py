"""Which fetcher follows which partition (R25)."""

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
from tidelog.runtime.clock import Clock
from tidelog.runtime.network import Network
from tidelog.types import BrokerId, TopicPartition

logger = logging.getLogger(__name__)

DOUBT_S = 1.0
"""Longer than a controller on the same machine takes; a leader that only this broker has lost is named again then."""


class FetchersStatistics(NamedTuple):
    """`max_lag` is kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica."""

    fetchers: tuple[FetcherStatistics, ...]
    failed_partitions: dict[TopicPartition, str]

    @property
    def max_lag(self) -> int:
        return max((lag for fetcher in self.fetchers for lag in fetcher.lags.values()), default=0)


def fetcher_id_of(topic_partition: TopicPartition, fetchers: int) -> int:
    """The same in every process, and partitions of one topic spread evenly."""
    return (zlib.crc32(topic_partition.topic.encode()) + topic_partition.partition) % fetchers


class FetcherManager:
    """One fetcher per leader and fetcher id; it lives while the leader's address is the same and it has partitions."""

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        network: Network,
        clock: Clock,
        settings: Callable[[], BrokerSettings],
    ) -> None:
        self._broker = FetchingBroker(broker_id, broker_epoch, network, clock, settings)
        self._fetchers: dict[tuple[BrokerId, int], Fetcher] = {}
        self._fetcher_of: dict[TopicPartition, Fetcher] = {}
        self._fetcher_count = settings().num_replica_fetchers
        self._closing: set[asyncio.Task[None]] = set()
        self.failed_partitions: dict[TopicPartition, str] = {}
        """Those that are not fetched any more until their leader changes, and those that cannot be written here now
        though it is tried again and again; and why."""

    def statistics(self) -> FetchersStatistics:
        fetchers = tuple(fetcher.statistics() for fetcher in self._fetchers.values())
        return FetchersStatistics(fetchers, dict(self.failed_partitions))

    def doubted_leaders(self) -> set[BrokerId]:
        """They have just ended their connection: they may be dead, and the controller may be about to say so."""
        since = self._broker.clock.monotonic() - DOUBT_S
        return {leader for (leader, _), fetcher in self._fetchers.items() if fetcher.lost_at > since}

    def follow(self, partition: Partition, leader: LeaderAddress) -> None:
        """Fetch from this leader in the partition's role of now, after reconciling with it (R27); asks at once."""
        topic_partition = partition.topic_partition
        self.forget([topic_partition])
        fetcher = self._fetcher_for(topic_partition, leader)
        self._fetcher_of[topic_partition] = fetcher
        fetcher.add(partition)

    def _fetcher_for(self, topic_partition: TopicPartition, leader: LeaderAddress) -> Fetcher:
        fetcher_id = fetcher_id_of(topic_partition, self._fetcher_count)
        fetcher = self._fetchers.get((leader.broker_id, fetcher_id))
        if fetcher is None:
            fetcher = Fetcher(self._broker, leader, fetcher_id, self._on_given_up, self._on_trouble)
            self._fetchers[leader.broker_id, fetcher_id] = fetcher
        elif fetcher.leader != leader:
            self.retarget(leader)
        return fetcher

    def forget(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Before anything else happens to them (R8, R11); an answer on its way no longer counts."""
        for topic_partition in topic_partitions:
            self.failed_partitions.pop(topic_partition, None)
            fetcher = self._fetcher_of.pop(topic_partition, None)
            if fetcher is not None:
                fetcher.remove(topic_partition)

    def _on_given_up(self, topic_partition: TopicPartition, reason: str) -> None:
        self._fetcher_of.pop(topic_partition, None)
        self.failed_partitions[topic_partition] = reason

    def _on_trouble(self, topic_partition: TopicPartition, reason: str | None) -> None:
        if reason is None:
            self.failed_partitions.pop(topic_partition, None)
        else:
            self.failed_partitions[topic_partition] = reason

    def retarget(self, address: LeaderAddress) -> None:
        """The leader listens elsewhere now; nothing happens if it does not."""
        for (broker_id, _), fetcher in self._fetchers.items():
            if broker_id == address.broker_id and fetcher.leader != address:
                logger.info("leader moved leader=%d address=%s:%d", broker_id, address.host, address.port)
                fetcher.retarget(address)

    def resize(self) -> None:
        """Take num.replica.fetchers anew: every partition goes to the fetcher that it then belongs to."""
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
        """Stop fetchers that have no partitions."""
        for key, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                del self._fetchers[key]
                task = asyncio.get_running_loop().create_task(fetcher.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Stop all."""
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        self._fetcher_of.clear()
        await asyncio.gather(*(fetcher.close() for fetcher in fetchers), *self._closing)
