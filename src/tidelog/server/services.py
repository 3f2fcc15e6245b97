"""What handlers work with: the parts of one broker, wired once in `server/broker.py`."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

from tidelog.config.broker import BrokerSettings
from tidelog.controller.configs import ConfigChange, ConfigOutcome, ResourceType
from tidelog.controller.topic_rules import MorePartitions, NewTopic
from tidelog.controller.topics import TopicOutcome
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.runtime.clock import Clock
from tidelog.runtime.purgatory import Purgatory
from tidelog.runtime.workers import Workers
from tidelog.server.cluster_state import ClusterState
from tidelog.server.membership import Membership
from tidelog.server.unsettled import Unsettled, is_unsettled
from tidelog.storage.log_manager import LogManager
from tidelog.types import Uuid


class Services:
    """`membership` is replaced when the broker joins its cluster anew; the rest stays."""

    __slots__ = ("_tasks", "_unsettled", "clock", "cluster", "logs", "membership", "purgatory", "replicas", "workers")

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
        self._unsettled = Unsettled(cluster, lambda: self.membership.store)

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
            self._apply_topics([self._with_present_configs(outcome) for outcome in outcomes])
        return outcomes

    async def delete_topics(self, wanted: Sequence[str | Uuid]) -> list[TopicOutcome]:
        outcomes = await self.membership.topics.delete_topics(wanted)
        gone = [outcome.name for outcome in outcomes if outcome.error is None]
        if gone:
            self.cluster.apply(self.cluster.image.without_topics(*gone))
        self._settle_topics(outcomes)
        return outcomes

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[ConfigOutcome]:
        outcomes = await self.membership.configs.alter(changes, validate_only=validate_only)
        if not validate_only:
            for outcome in outcomes:
                if outcome.error is None:
                    self.cluster.apply_configs(outcome)
            self._settle_configs(outcomes)
        return outcomes

    def _apply_topics(self, outcomes: Sequence[TopicOutcome]) -> None:
        changed = [outcome.topic for outcome in outcomes if outcome.topic is not None and outcome.error is None]
        if changed:
            self.cluster.apply(self.cluster.image.with_topics(*changed))
        self._settle_topics(outcomes)

    def _with_present_configs(self, outcome: TopicOutcome) -> TopicOutcome:
        """Settings may have changed since the store was asked what the topic is like."""
        known = self.cluster.image.topics.get(outcome.name)
        if outcome.topic is None or known is None:
            return outcome
        return replace(outcome, topic=replace(outcome.topic, configs=known.configs))

    def _settle_topics(self, outcomes: Sequence[TopicOutcome]) -> None:
        names = self.cluster.image.topic_names
        unsettled = [outcome for outcome in outcomes if is_unsettled(outcome.error)]
        self._unsettled.topics.update(outcome.name or names.get(outcome.topic_id, "") for outcome in unsettled)
        self._unsettled.topics.discard("")
        self._settle()

    def _settle_configs(self, outcomes: Sequence[ConfigOutcome]) -> None:
        for outcome in outcomes:
            if is_unsettled(outcome.error):
                if outcome.resource_type == ResourceType.TOPIC:
                    self._unsettled.topics.add(outcome.resource_name)
                else:
                    self._unsettled.broker_configs.add(outcome.broker_config_name)
        self._settle()

    def _settle(self) -> None:
        if not self._unsettled.is_empty:
            self.spawn(self._unsettled.run())

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
