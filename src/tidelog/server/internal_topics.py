"""The topics in which coordinators keep their state: what they are like, and their creation when first needed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tidelog.cluster.topic_names import GROUP_TOPIC, TRANSACTION_TOPIC
from tidelog.config.broker import BrokerSettings
from tidelog.config.setting import settings_of
from tidelog.errors import NO_ERROR, InvalidReplicationFactor, TopicAlreadyExists
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.server.cluster_state import ClusterState
from tidelog.types import NO_BROKER

logger = logging.getLogger(__name__)


CREATION_TIMEOUT_MS = 5000
REST_AFTER_FAILURE_S = 1.0
"""A creation that failed is not tried again at once, however many ask for it."""


class _Kind(NamedTuple):
    """Which settings an internal topic is made of."""

    partition_count: str
    replication_factor: str
    configs: Callable[[BrokerSettings, int], dict[str, object]]


def _group_configs(settings: BrokerSettings, _: int) -> dict[str, object]:
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": settings.offsets_topic_segment_bytes,
    }


def _transaction_configs(settings: BrokerSettings, replication_factor: int) -> dict[str, object]:
    return {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": min(settings.transaction_state_log_min_isr, replication_factor),
        "segment.bytes": settings.transaction_state_log_segment_bytes,
        "unclean.leader.election.enable": "false",
    }


_KINDS = {
    GROUP_TOPIC: _Kind("offsets.topic.num.partitions", "offsets.topic.replication.factor", _group_configs),
    TRANSACTION_TOPIC: _Kind(
        "transaction.state.log.num.partitions", "transaction.state.log.replication.factor", _transaction_configs
    ),
}


def internal_topic_configs(settings: BrokerSettings, name: str, replication_factor: int) -> dict[str, str] | None:
    """The settings that an internal topic is made with; None if the name is not one of ours."""
    kind = _KINDS.get(name)
    if kind is None:
        return None
    return {config: str(value) for config, value in kind.configs(settings, replication_factor).items()}


class _Creation(NamedTuple):
    """Under way, or failed a moment ago."""

    task: asyncio.Task[None]
    is_created: asyncio.Future[bool]


def _is_done(created: asyncio.Future[bool]) -> bool:
    return created.done() and not created.cancelled() and created.result()


class InternalTopics:
    def __init__(
        self, cluster: ClusterState, create: Callable[[CreateTopicsRequest], Awaitable[CreateTopicsResponse]]
    ) -> None:
        self._cluster = cluster
        self._create = create
        self._creations: dict[str, _Creation] = {}
        self._lacking_brokers: set[str] = set()
        """What could not be created so far; told once."""

    def partition_count(self, name: str) -> int:
        """Of the topic if there is one, else of the one that would be made."""
        topic = self._cluster.image.topics.get(name)
        return len(topic.partitions) if topic is not None else self._setting(_KINDS[name].partition_count)

    def wanted(self, name: str) -> CreatableTopic | None:
        """The topic to create; None if no broker lives, or if the name is not one of ours.

        Where nobody chose the number of replicas, there are no more than brokers that live.
        """
        kind = _KINDS.get(name)
        live = len(self._cluster.image.brokers)
        if kind is None or live == 0:
            return None
        factor = self._setting(kind.replication_factor)
        return self._with_replicas(name, factor if self._is_chosen(kind.replication_factor) else min(factor, live))

    def _with_replicas(self, name: str, factor: int) -> CreatableTopic:
        kind = _KINDS[name]
        configs = kind.configs(self._cluster.settings, factor)
        return CreatableTopic(
            name=name,
            num_partitions=self._setting(kind.partition_count),
            replication_factor=factor,
            configs=[CreatableTopicConfig(config, str(value)) for config, value in configs.items()],
        )

    def _is_chosen(self, name: str) -> bool:
        """Whether somebody decided on the number of replicas, or data is expected to survive machines."""
        settings, declared = self._cluster.settings, settings_of(BrokerSettings)[name]
        is_given = name in settings.originals or getattr(settings, declared.attribute) != declared.default
        return is_given or settings.zookeeper_connect is not None

    def _setting(self, name: str) -> int:
        value: int = getattr(self._cluster.settings, settings_of(BrokerSettings)[name].attribute)
        return value

    async def ensure(self, name: str, patience_s: float) -> None:
        """Create the topic unless it is there, and give it a moment to get its leaders; callers look for themselves."""
        if name not in self._cluster.image.topics:
            self._begin(name)
        creation = self._creations.get(name)
        if creation is None:
            return
        await asyncio.wait([creation.is_created], timeout=patience_s)
        if _is_done(creation.is_created):
            await self._cluster.wait_until(lambda _: self._is_ready(name), patience_s)

    def _is_ready(self, name: str) -> bool:
        topic = self._cluster.image.topics.get(name)
        return topic is not None and all(partition.leader > NO_BROKER for partition in topic.partitions)

    def _begin(self, name: str) -> None:
        wanted = self.wanted(name)
        if name in self._creations or wanted is None:
            return
        loop = asyncio.get_running_loop()
        is_created: asyncio.Future[bool] = loop.create_future()
        self._creations[name] = _Creation(loop.create_task(self._run(wanted, is_created)), is_created)

    def _tell_lack(self, name: str) -> None:
        if name not in self._lacking_brokers:
            self._lacking_brokers.add(name)
            logger.warning(
                "too few brokers for an internal topic, there are no coordinators yet topic=%s live=%d wanted=%d",
                name,
                len(self._cluster.image.brokers),
                self._setting(_KINDS[name].replication_factor),
            )

    async def _run(self, wanted: CreatableTopic, is_created: asyncio.Future[bool]) -> None:
        try:
            is_created.set_result(await self._create_with_members(wanted) or await self._try(wanted))
            if not is_created.result():
                await asyncio.sleep(REST_AFTER_FAILURE_S)
        finally:
            is_created.cancel()
            del self._creations[wanted.name]

    async def _create_with_members(self, wanted: CreatableTopic) -> bool:
        """With all replicas, where too few brokers live but enough belong to the cluster: the others come back."""
        factor = self._setting(_KINDS[wanted.name].replication_factor)
        if wanted.replication_factor == factor:
            return False
        return await self._try(self._with_replicas(wanted.name, factor), may_lack_brokers=True)

    async def _try(self, wanted: CreatableTopic, *, may_lack_brokers: bool = False) -> bool:
        try:
            answer = await self._create(CreateTopicsRequest(topics=[wanted], timeout_ms=CREATION_TIMEOUT_MS))
        except Exception:
            logger.exception("cannot create internal topic topic=%s", wanted.name)
            return False
        (result,) = answer.topics
        if result.error_code == NO_ERROR:
            self._tell_created(wanted)
        elif result.error_code == InvalidReplicationFactor.code:
            if not may_lack_brokers:
                self._tell_lack(wanted.name)
            return False
        elif result.error_code != TopicAlreadyExists.code:
            logger.warning(
                "cannot create internal topic topic=%s error_code=%d reason=%s",
                wanted.name,
                result.error_code,
                result.error_message,
            )
            return False
        return True

    def _tell_created(self, wanted: CreatableTopic) -> None:
        self._lacking_brokers.discard(wanted.name)
        setting = _KINDS[wanted.name].replication_factor
        logger.info(
            "created internal topic topic=%s partitions=%d replicas=%d",
            wanted.name,
            wanted.num_partitions,
            wanted.replication_factor,
        )
        if wanted.replication_factor < self._setting(setting):
            logger.warning(
                "internal topic has fewer replicas than usual, since no more brokers live; choose with %s topic=%s",
                setting,
                wanted.name,
            )

    async def close(self) -> None:
        tasks = [creation.task for creation in self._creations.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
