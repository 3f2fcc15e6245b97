"""Internal topics (__consumer_offsets, __transaction_state): their configs, and creation at first use."""

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
RETRY_BACKOFF_S = 1.0
"""Pause after a failed creation, during which further requests do not retry it."""


class _TopicTemplate(NamedTuple):
    """Broker settings from which an internal topic is created."""

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


_TEMPLATES = {
    GROUP_TOPIC: _TopicTemplate("offsets.topic.num.partitions", "offsets.topic.replication.factor", _group_configs),
    TRANSACTION_TOPIC: _TopicTemplate(
        "transaction.state.log.num.partitions", "transaction.state.log.replication.factor", _transaction_configs
    ),
}


def internal_topic_configs(settings: BrokerSettings, name: str, replication_factor: int) -> dict[str, str] | None:
    """Configs of an internal topic at creation; None if the name is no internal topic."""
    template = _TEMPLATES.get(name)
    if template is None:
        return None
    return {config: str(value) for config, value in template.configs(settings, replication_factor).items()}


class _Creation(NamedTuple):
    """A creation in progress, or in its pause after a failure."""

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
        """Topics that cannot be created with the live brokers; logged once."""

    def partition_count(self, name: str) -> int:
        """Partition count of the topic, or of the topic that would be created."""
        topic = self._cluster.image.topics.get(name)
        return len(topic.partitions) if topic is not None else self._setting(_TEMPLATES[name].partition_count)

    def creatable_topic(self, name: str) -> CreatableTopic | None:
        """The topic to create; None if no broker is alive, or the name is no internal topic.

        A replication factor that is not configured is reduced to the number of live brokers.
        """
        template = _TEMPLATES.get(name)
        live = len(self._cluster.image.brokers)
        if template is None or live == 0:
            return None
        factor = self._setting(template.replication_factor)
        return self._with_replicas(
            name, factor if self._is_configured(template.replication_factor) else min(factor, live)
        )

    def _with_replicas(self, name: str, factor: int) -> CreatableTopic:
        template = _TEMPLATES[name]
        configs = template.configs(self._cluster.settings, factor)
        return CreatableTopic(
            name=name,
            num_partitions=self._setting(template.partition_count),
            replication_factor=factor,
            configs=[CreatableTopicConfig(config, str(value)) for config, value in configs.items()],
        )

    def _is_configured(self, name: str) -> bool:
        """Whether the setting was given, or the cluster uses ZooKeeper: then data must survive machines."""
        settings, declared = self._cluster.settings, settings_of(BrokerSettings)[name]
        is_given = name in settings.originals or getattr(settings, declared.attribute) != declared.default
        return is_given or settings.zookeeper_connect is not None

    def _setting(self, name: str) -> int:
        value: int = getattr(self._cluster.settings, settings_of(BrokerSettings)[name].attribute)
        return value

    async def ensure(self, name: str, timeout_s: float) -> None:
        """Create the topic if it is missing, and wait for its leaders. Callers check the image afterwards."""
        if name not in self._cluster.image.topics:
            self._begin(name)
        creation = self._creations.get(name)
        if creation is None:
            return
        await asyncio.wait([creation.is_created], timeout=timeout_s)
        if _is_done(creation.is_created):
            await self._cluster.wait_until(lambda _: self._is_ready(name), timeout_s)

    def _is_ready(self, name: str) -> bool:
        topic = self._cluster.image.topics.get(name)
        return topic is not None and all(partition.leader > NO_BROKER for partition in topic.partitions)

    def _begin(self, name: str) -> None:
        creatable = self.creatable_topic(name)
        if name in self._creations or creatable is None:
            return
        loop = asyncio.get_running_loop()
        is_created: asyncio.Future[bool] = loop.create_future()
        self._creations[name] = _Creation(loop.create_task(self._run(creatable, is_created)), is_created)

    def _log_too_few_brokers(self, name: str) -> None:
        if name not in self._lacking_brokers:
            self._lacking_brokers.add(name)
            logger.warning(
                "too few brokers for internal topic, no coordinators yet topic=%s live=%d replication_factor=%d",
                name,
                len(self._cluster.image.brokers),
                self._setting(_TEMPLATES[name].replication_factor),
            )

    async def _run(self, creatable: CreatableTopic, is_created: asyncio.Future[bool]) -> None:
        try:
            is_created.set_result(await self._create_with_members(creatable) or await self._try(creatable))
            if not is_created.result():
                await asyncio.sleep(RETRY_BACKOFF_S)
        finally:
            is_created.cancel()
            del self._creations[creatable.name]

    async def _create_with_members(self, creatable: CreatableTopic) -> bool:
        """Create with all replicas if enough brokers are members, even if some are down: they come back."""
        factor = self._setting(_TEMPLATES[creatable.name].replication_factor)
        if creatable.replication_factor == factor:
            return False
        return await self._try(self._with_replicas(creatable.name, factor), may_lack_brokers=True)

    async def _try(self, creatable: CreatableTopic, *, may_lack_brokers: bool = False) -> bool:
        try:
            response = await self._create(CreateTopicsRequest(topics=[creatable], timeout_ms=CREATION_TIMEOUT_MS))
        except Exception:
            logger.exception("cannot create internal topic topic=%s", creatable.name)
            return False
        (result,) = response.topics
        if result.error_code == NO_ERROR:
            self._log_created(creatable)
        elif result.error_code == InvalidReplicationFactor.code:
            if not may_lack_brokers:
                self._log_too_few_brokers(creatable.name)
            return False
        elif result.error_code != TopicAlreadyExists.code:
            logger.warning(
                "cannot create internal topic topic=%s error_code=%d reason=%s",
                creatable.name,
                result.error_code,
                result.error_message,
            )
            return False
        return True

    def _log_created(self, creatable: CreatableTopic) -> None:
        self._lacking_brokers.discard(creatable.name)
        setting = _TEMPLATES[creatable.name].replication_factor
        logger.info(
            "created internal topic topic=%s partitions=%d replicas=%d",
            creatable.name,
            creatable.num_partitions,
            creatable.replication_factor,
        )
        if creatable.replication_factor < self._setting(setting):
            logger.warning(
                "internal topic has fewer replicas than its default: too few live brokers topic=%s setting=%s",
                creatable.name,
                setting,
            )

    async def close(self) -> None:
        tasks = [creation.task for creation in self._creations.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
