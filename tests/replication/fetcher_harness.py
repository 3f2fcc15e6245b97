"""A follower's fetchers, a scripted leader and the network between them, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.replication.scripted_leader import ScriptedLeader, topic_id_of
from tests.storage.logs import new_log
from tidelog.config.broker import BrokerSettings
from tidelog.replication.assignment import LeaderAddress, PartitionAssignment
from tidelog.replication.fetcher_manager import FetcherManager
from tidelog.replication.partition import Partition, PartitionContext
from tidelog.replication.quota import ReplicationQuotas
from tidelog.runtime.deadlines import Deadlines
from tidelog.runtime.memory_network import MemoryNetwork
from tidelog.runtime.purgatory import Purgatory
from tidelog.runtime.virtual_time import VirtualClock, VirtualTimeLoop, run_virtually
from tidelog.storage.log import Log
from tidelog.store.memory import MemoryStore, MemoryStoreState
from tidelog.types import TopicPartition

FOLLOWER = 2


class FetcherHarness:
    def __init__(self, **settings: Any) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        self.clock = VirtualClock(loop)
        self.network = MemoryNetwork()
        self.settings = BrokerSettings(**settings)
        self.leader = ScriptedLeader(self.network)
        self.quota = ReplicationQuotas(self.settings).follower
        self.fetchers = FetcherManager(FOLLOWER, lambda: 7, self.network, self.clock, lambda: self.settings, self.quota)
        purgatory, store = Purgatory(loop, Deadlines(loop)), MemoryStore(MemoryStoreState())
        self._context = PartitionContext(FOLLOWER, purgatory, self.clock.now_ms, 30_000, lambda *_: None, lambda: store)

    def replica(self, topic: str, partition: int = 0, *, log: Log | None = None) -> Partition:
        return Partition(TopicPartition(topic, partition), topic_id_of(topic), log or new_log(), self._context)

    def follow(self, replica: Partition, leader_epoch: int = 1, leader: ScriptedLeader | None = None) -> None:
        """As a LeaderAndIsr request makes it happen."""
        address = (leader or self.leader).address
        self.fetchers.forget([replica.topic_partition])
        replica.become_follower(assignment(replica, address, leader_epoch))
        self.fetchers.follow(replica, address)

    def start_following(self, topic: str, partition: int = 0, *, leader_epoch: int = 1) -> Partition:
        replica = self.replica(topic, partition)
        self.follow(replica, leader_epoch)
        return replica

    async def until(self, is_true: Callable[[], bool], *, within_s: float = 10.0) -> float:
        """Wait, a millisecond at a time. Returns how long it took."""
        started = self.clock.monotonic()
        while not is_true():
            assert self.clock.monotonic() - started < within_s, "it did not happen in time"
            await asyncio.sleep(0.001)
        return self.clock.monotonic() - started


def assignment(replica: Partition, leader: LeaderAddress, leader_epoch: int) -> PartitionAssignment:
    return PartitionAssignment(
        topic_partition=replica.topic_partition,
        topic_id=replica.topic_id,
        controller_epoch=1,
        leader=leader.broker_id,
        leader_epoch=leader_epoch,
        in_sync_replicas=(leader.broker_id, FOLLOWER),
        version=leader_epoch,
        replicas=(leader.broker_id, FOLLOWER),
    )


def content(log: Log) -> bytes:
    """All bytes of a log of one segment."""
    found = log.read(log.log_start_offset, 100_000_000, log.log_end_offset).slice
    return b"" if found is None else bytes(found.read())


def run_fetching(scenario: Callable[[FetcherHarness], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        harness = FetcherHarness(**settings)
        await harness.leader.start()
        try:
            await scenario(harness)
        finally:
            await harness.fetchers.close()

    run_virtually(main())
