"""Replicated topic (Kafka: CoordinatorRuntime): a shard for each partition of an internal topic led here (R10)."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from tidelog.errors import CoordinatorLoadInProgress, KafkaError, NotCoordinator
from tidelog.replicated.loading import Loader, LoadProgress
from tidelog.replicated.machine import Effects, Producer, Reply, StateMachine
from tidelog.replicated.partition_keys import partition_for
from tidelog.replicated.replies import Replies
from tidelog.replicated.shard import Shard, ShardContext, ShardState
from tidelog.replication.partition import Partition
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.runtime.clock import Clock
from tidelog.runtime.deadlines import Deadlines
from tidelog.runtime.purgatory import Purgatory
from tidelog.runtime.workers import Workers

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=StateMachine)

TIMER_RESOLUTION_S = 0.001
"""Fine, because clients expect that a member is gone right after its session timeout, and delete its group."""


class ReplicatedTopic(Generic[M]):
    """Routes requests to shards. While idle it has no task, and only the timers of its machines."""

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
        timers = Deadlines(loop, TIMER_RESOLUTION_S, purgatory.turns)
        replies = Replies(purgatory.turns)
        self._context = ShardContext(clock, purgatory, timers, commit_timeout_ms, loop.call_soon, replies)
        self._loader = Loader(name, clock, workers)
        replicas.on_leadership_change.append(self._on_leadership_change)

    # ---- requests

    def partition_of(self, key: str) -> int:
        return partition_for(key, self._partition_count())

    def perform(self, key: str, reply: Reply, step: Callable[[M, Effects], None]) -> None:
        """Run a step on the machine of `key`. The reply is completed once, here or by the step."""
        shard = self._shards.get(self.partition_of(key))
        if shard is not None and shard.is_acting:
            shard.perform(step, reply)
        else:
            reply.fail(self._absence(shard))

    def perform_batched(self, key: str, reply: Reply, step: Callable[[M, Effects], None]) -> None:
        """Like `perform`, for steps that are independent of each other and can share a batch."""
        shard = self._shards.get(self.partition_of(key))
        if shard is not None and shard.is_acting:
            shard.perform_batched(step, reply)
        else:
            reply.fail(self._absence(shard))

    def perform_in(self, partition: int, step: Callable[[M, Effects], None]) -> bool:
        """Like `perform`, without a reply. False if the machine is not on this broker."""
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
        """Append the end marker of a transaction. The reply is empty and is sent when the marker is committed."""
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

    # ---- queries

    def loaded(self) -> Iterator[tuple[int, M]]:
        """The machines of active shards."""
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
        """Duration of the last load, all partitions together."""
        return self._loader.last_load_s

    @property
    def skipped_batches(self) -> int:
        """Number of unreadable batches that loading skipped."""
        return self._loader.skipped_batches

    @property
    def progress(self) -> LoadProgress | None:
        """Progress of the current load; None if there is none."""
        return self._loader.progress

    def coordinator_epoch(self, partition: int) -> int:
        """Fences requests of an earlier coordinator of the partition."""
        return self._shards[partition].partition.leader_epoch

    # ---- leadership

    def _on_leadership_change(self, leading: list[Partition], not_leading: list[Partition]) -> None:
        gone = [self._leave(each.topic_partition.partition) for each in not_leading if self._is_ours(each)]
        gained = [self._lead(each) for each in leading if self._is_ours(each)]
        if any(gained) or any(gone):
            logger.info(
                "coordinator partitions changed topic=%s gained=%d left=%d total=%d",
                self.name,
                sum(gained),
                sum(gone),
                len(self._shards),
            )

    def _is_ours(self, partition: Partition) -> bool:
        return partition.topic_partition.topic == self.name

    def _lead(self, partition: Partition) -> bool:
        """Keeps a loaded shard if this broker led the partition in the previous epoch too."""
        index = partition.topic_partition.partition
        since_epoch = partition.require_leader_for_reading().leading_since_epoch
        shard = self._shards.get(index)
        if shard is not None and shard.partition is partition and shard.leading_since_epoch == since_epoch:
            return False
        self._leave(index)
        shard = self._shards[index] = Shard(partition, self._make(index), self._context, since_epoch)
        self._loader.add(shard)
        return True

    def _leave(self, index: int) -> bool:
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.leave()
        return shard is not None

    async def close(self) -> None:
        """The broker stops: pending requests fail, so that their clients look for the new coordinator."""
        self._replicas.on_leadership_change.remove(self._on_leadership_change)
        for index in list(self._shards):
            self._leave(index)
        await self._loader.close()
