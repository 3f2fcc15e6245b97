"""State machines kept in an internal topic: one for each of its partitions that this broker leads (R10)."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from tidelog.errors import CoordinatorLoadInProgress, KafkaError, NotCoordinator
from tidelog.replicated.loading import Loader, LoadProgress
from tidelog.replicated.machine import Effects, Producer, Reply, StateMachine
from tidelog.replicated.partition_keys import partition_for
from tidelog.replicated.shard import Shard, ShardHost, ShardState
from tidelog.replication.partition import Partition
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.runtime.clock import Clock
from tidelog.runtime.deadlines import Deadlines
from tidelog.runtime.purgatory import Purgatory
from tidelog.runtime.workers import Workers

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=StateMachine)

TIMER_RESOLUTION_S = 0.001
"""Clients take a session that has run out for over: a group without other members can be deleted then."""


class ReplicatedTopic(Generic[M]):
    """Costs nothing while idle: no task and no timer but those that machines ask for."""

    def __init__(
        self,
        name: str,
        replicas: ReplicaManager,
        clock: Clock,
        make: Callable[[int], M],
        *,
        partition_count: Callable[[], int],
        commit_timeout_ms: Callable[[], int],
        purgatory: Purgatory,
        workers: Workers,
    ) -> None:
        self.name = name
        self._replicas = replicas
        self._make = make
        self._partition_count = partition_count
        self._shards: dict[int, Shard[M]] = {}
        loop = asyncio.get_running_loop()
        timers = Deadlines(loop, TIMER_RESOLUTION_S)
        self._host = ShardHost(clock, purgatory, timers, commit_timeout_ms, loop.call_soon)
        self._loader = Loader(name, clock, workers)
        replicas.on_leadership_change.append(self._on_leadership_change)

    # ---- what machines are asked

    def partition_of(self, key: str) -> int:
        return partition_for(key, self._partition_count())

    def perform(self, key: str, reply: Reply, step: Callable[[M, Effects], None]) -> None:
        """Let the machine that keeps `key` take the step. The reply is answered, here or by the step, once."""
        shard = self._shards.get(self.partition_of(key))
        if shard is not None and shard.is_acting:
            shard.perform(step, reply)
        else:
            reply.fail(self._absence(shard))

    def gather(self, key: str, reply: Reply, step: Callable[[M, Effects], None]) -> None:
        """The same for a step of which many may come at once, and which asks for nothing that others of them change."""
        shard = self._shards.get(self.partition_of(key))
        if shard is not None and shard.is_acting:
            shard.gather(step, reply)
        else:
            reply.fail(self._absence(shard))

    def perform_in(self, partition: int, step: Callable[[M, Effects], None]) -> bool:
        """The same for work that nobody waits for; False, and nothing happens, if the machine is not here."""
        shard = self._shards.get(partition)
        if shard is None or not shard.is_acting:
            return False
        shard.perform(step)
        return True

    def append_end_marker(
        self,
        partition: int,
        producer: Producer,
        *,
        is_committed: bool,
        coordinator_epoch: int,
        reply: Reply,
    ) -> None:
        """A transaction that has records in this partition ends; the answer, which is empty, follows its commit."""
        shard = self._shards.get(partition)
        if shard is None or not shard.is_acting:
            reply.fail(self._absence(shard))
            return
        shard.append_end_marker(
            producer,
            is_committed=is_committed,
            coordinator_epoch=coordinator_epoch,
            reply=reply,
        )

    def _absence(self, shard: Shard[M] | None) -> KafkaError:
        if shard is not None and shard.state is ShardState.LOADING:
            return CoordinatorLoadInProgress("the coordinator is still reading its records")
        return NotCoordinator("this broker is not the coordinator")

    # ---- what is here

    def loaded(self) -> Iterator[tuple[int, M]]:
        """The machines that answer now."""
        for partition, shard in list(self._shards.items()):
            if shard.is_acting:
                yield partition, shard.machine

    @property
    def is_loading(self) -> bool:
        return any(shard.state is ShardState.LOADING for shard in self._shards.values())

    def count_by_state(self) -> Counter[ShardState]:
        return Counter(shard.state for shard in self._shards.values())

    @property
    def last_load_s(self) -> float:
        """How long it took when records were last loaded, all partitions together."""
        return self._loader.last_load_s

    @property
    def skipped_batches(self) -> int:
        """Batches that could not be read when records were loaded."""
        return self._loader.skipped_batches

    @property
    def progress(self) -> LoadProgress | None:
        """None while nothing is being loaded."""
        return self._loader.progress

    def coordinator_epoch(self, partition: int) -> int:
        """Fences what an earlier coordinator of the partition still sends."""
        return self._shards[partition].partition.leader_epoch

    # ---- who leads

    def _on_leadership_change(self, leading: list[Partition], left: list[Partition]) -> None:
        gone = [self._leave(each.topic_partition.partition) for each in left if self._is_ours(each)]
        gained = [self._lead(each) for each in leading if self._is_ours(each)]
        if any(gained) or any(gone):
            logger.info(
                "coordinating topic=%s gained=%d left=%d in_all=%d",
                self.name,
                sum(gained),
                sum(gone),
                len(self._shards),
            )

    def _is_ours(self, partition: Partition) -> bool:
        return partition.topic_partition.topic == self.name

    def _lead(self, partition: Partition) -> bool:
        """A leader that merely got a new epoch, since a follower died, has all it needs."""
        index = partition.topic_partition.partition
        since_epoch = partition.require_leader_for_reading().leading_since_epoch
        known = self._shards.get(index)
        if known is not None and known.partition is partition and known.leading_since_epoch == since_epoch:
            return False
        self._leave(index)
        shard = self._shards[index] = Shard(partition, self._make(index), self._host, since_epoch)
        self._loader.add(shard)
        return True

    def _leave(self, index: int) -> bool:
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.leave()
        return shard is not None

    async def close(self) -> None:
        """The broker stops: whoever still waits must look for another one."""
        self._replicas.on_leadership_change.remove(self._on_leadership_change)
        for index in list(self._shards):
            self._leave(index)
        await self._loader.close()
