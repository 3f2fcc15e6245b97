"""What handlers work with: the parts of one broker, wired once in `server/broker.py`."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from tidelog.config.broker import BrokerSettings
from tidelog.controller.configs import ConfigChange, ConfigOutcome
from tidelog.controller.topic_rules import MorePartitions, NewTopic
from tidelog.controller.topics import TopicOutcome
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.runtime.clock import Clock
from tidelog.runtime.purgatory import Purgatory
from tidelog.runtime.workers import Workers
from tidelog.server.cluster_state import ClusterState
from tidelog.server.membership import Membership
from tidelog.storage.log_manager import LogManager
from tidelog.types import Uuid


class Services:
    """`membership` is replaced when the broker joins its cluster anew; the rest stays."""

    __slots__ = ("_tasks", "clock", "cluster", "logs", "membership", "purgatory", "replicas", "workers")

    def __init__(
        self,
        *,
        clock: Clock,
        workers: Workers,
        logs: LogManager,
        replicas: ReplicaManager,
        cluster: ClusterState,
        membership: Membership,
        purgatory: Purgatory,
    ) -> None:
        self.clock = clock
        self.workers = workers
        self.logs = logs
        self.replicas = replicas
        self.cluster = cluster
        self.membership = membership
        self.purgatory = purgatory
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def settings(self) -> BrokerSettings:
        """As they are now: some change while the broker runs."""
        return self.cluster.settings

    # -- changes of the cluster: decided and stored by the controller's parts, then applied here in one step

    async def create_topics(self, wanted: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicOutcome]:
        outcomes = await self.membership.topics.create_topics(wanted, validate_only=validate_only)
        if not validate_only:
            self._apply_topics(outcomes)
        return outcomes

    async def create_partitions(
        self, wanted: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        outcomes = await self.membership.topics.create_partitions(wanted, validate_only=validate_only)
        if not validate_only:
            self._apply_topics(outcomes)
        return outcomes

    async def delete_topics(self, wanted: Sequence[str | Uuid]) -> list[TopicOutcome]:
        outcomes = await self.membership.topics.delete_topics(wanted)
        gone = [outcome.name for outcome in outcomes if outcome.error is None]
        if gone:
            self.cluster.apply(self.cluster.image.without_topics(*gone))
        return outcomes

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[ConfigOutcome]:
        outcomes = await self.membership.configs.alter(changes, validate_only=validate_only)
        if not validate_only:
            for outcome in outcomes:
                if outcome.error is None:
                    self.cluster.apply_configs(outcome)
        return outcomes

    def _apply_topics(self, outcomes: Sequence[TopicOutcome]) -> None:
        changed = [outcome.topic for outcome in outcomes if outcome.topic is not None and outcome.error is None]
        if changed:
            self.cluster.apply(self.cluster.image.with_topics(*changed))

    # -- work that outlives its request

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it to its end, or to the end of the broker."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
