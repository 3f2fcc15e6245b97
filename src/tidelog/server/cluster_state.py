"""Metadata cache of this broker: the current cluster image and the settings that follow from it.

`apply` is the only way in for new images and settings.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from tidelog.cluster.image import DEFAULT_ENTITY_NAME, ClusterImage, Topic
from tidelog.config.broker import BrokerSettings
from tidelog.config.resolution import (
    DynamicBrokerConfigs,
    effective_broker_settings,
    topic_defaults,
    topic_settings,
)
from tidelog.config.topic import TopicSettings
from tidelog.errors import UnknownTopicId
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.types import BrokerId, TopicPartition, Uuid, uuid_text


class ClusterState:
    """The current image, exchanged in one step."""

    def __init__(self, broker_id: BrokerId, static_settings: BrokerSettings, image: ClusterImage) -> None:
        self._broker_id = broker_id
        self.static_settings = static_settings
        self.image = image
        self.settings = effective_broker_settings(static_settings, self.dynamic_configs)
        self._topic_defaults = topic_defaults(self.settings)
        self.on_settings: list[Callable[[BrokerSettings], None]] = []
        """Called with the broker's settings when they change."""
        self._early_configs: dict[str, Mapping[str, str]] = {}
        """Configs of topics that are not in the image yet: LeaderAndIsr may arrive before UpdateMetadata."""
        self.early_topics: dict[str, Uuid] = {}
        """Ids of these topics: followers fetch by id as soon as there is a leader."""
        self.on_image: list[Callable[[ClusterImage], None]] = []
        """Called with every new image."""
        self._waiters: list[Callable[[ClusterImage], None]] = []

    @property
    def dynamic_configs(self) -> DynamicBrokerConfigs:
        stored = self.image.broker_configs
        return DynamicBrokerConfigs(
            per_broker=stored.get(str(self._broker_id), {}), cluster_wide=stored.get(DEFAULT_ENTITY_NAME, {})
        )

    def topic_name(self, topic_id: Uuid) -> str:
        name = self.image.topic_names.get(topic_id) or self._early_name(topic_id)
        if name is None:
            raise UnknownTopicId(f"no topic has the id {uuid_text(topic_id)}")
        return name

    def _early_name(self, topic_id: Uuid) -> str | None:
        return next((name for name, found in self.early_topics.items() if found == topic_id), None)

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """Settings of the topic itself, without defaults."""
        known = self.image.topics.get(topic)
        return self._early_configs.get(topic, {}) if known is None else known.configs

    def topic_settings(self, topic: str) -> TopicSettings:
        return topic_settings(self._topic_defaults, self.topic_configs(topic))

    def settings_of_found_log(self, topic: str) -> TopicSettings:
        """Settings of a log found at startup. Logs of topics that the store does not know are kept whole (R44)."""
        settings = self.topic_settings(topic)
        if topic in self.image.topics:
            return settings
        return replace(settings, cleanup_policy=("delete",), retention_ms=-1, retention_bytes=-1)

    @property
    def topics_with_configs(self) -> list[str]:
        return [*self.image.topics, *self._early_configs]

    def start(self, replicas: ReplicaManager) -> None:
        """Connect the replica manager: hosted partitions follow the settings from now on."""
        self._replicas = replicas
        self._report_live_brokers()

    def apply(self, image: ClusterImage, changed_topics: Iterable[str] | None = None) -> None:
        """Replace the image in one step: no reader sees half of a change.

        `changed_topics` names all topics that may differ, so that the others are not compared.
        """
        earlier, self.image = self.image, image
        if image.broker_configs is not earlier.broker_configs:
            self.settings = effective_broker_settings(self.static_settings, self.dynamic_configs)
            self._topic_defaults = topic_defaults(self.settings)
            for reconfigure in self.on_settings:
                reconfigure(self.settings)
            self._configure(image.topics.values())
        elif image.topics is not earlier.topics:
            names = image.topics if changed_topics is None else changed_topics
            self._configure(_with_other_configs(image, earlier, names))
        if image.brokers is not earlier.brokers:
            self._report_live_brokers()
        for name in [name for name in self._early_configs if name in image.topics]:
            del self._early_configs[name]
        for take_image in self.on_image:
            take_image(image)
        for waiter in list(self._waiters):
            waiter(image)

    def apply_topic_configs(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the configs of these topics, effective at once."""
        topics = self.image.topics
        self._early_configs.update((name, found) for name, found in configs.items() if name not in topics)
        changed = [
            replace(topics[name], configs=found)
            for name, found in configs.items()
            if name in topics and topics[name].configs != found
        ]
        if changed:
            self.apply(self.image.with_topics(*changed), [topic.name for topic in changed])

    def apply_broker_configs(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the dynamic configs of these brokers (by id or DEFAULT_ENTITY_NAME), effective at once."""
        broker_configs = {**self.image.broker_configs, **configs}
        if broker_configs != self.image.broker_configs:
            self.apply(replace(self.image, broker_configs=broker_configs))

    def apply_group_configs(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the configs of these groups, effective from the next heartbeat of each member."""
        stored = {**self.image.group_configs, **configs}
        group_configs = {name: found for name, found in stored.items() if found}
        if group_configs != self.image.group_configs:
            self.apply(replace(self.image, group_configs=group_configs))

    def are_replicas_in_sync(self, topic_partition: TopicPartition) -> bool:
        """True if all replicas of the partition are in sync. A leader knows it first."""
        stored = self.image.partition(topic_partition)
        if stored is None:
            return False
        leader = self._replicas.leader_of(topic_partition)
        in_sync = stored.in_sync_replicas if leader is None else leader.in_sync_replicas
        return set(stored.replicas) <= set(in_sync)

    def _report_live_brokers(self) -> None:
        self._replicas.on_brokers_changed({broker.id: broker.epoch for broker in self.image.brokers.values()})

    def _configure(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            self._replicas.configure(topic.name, len(topic.partitions), self.topic_settings(topic.name))

    async def wait_until(self, is_true: Callable[[ClusterImage], bool], timeout_s: float) -> bool:
        """Wait for an image for which `is_true` holds; False after the timeout."""
        if is_true(self.image):
            return True
        found: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def check(image: ClusterImage) -> None:
            if not found.done() and is_true(image):
                found.set_result(True)

        self._waiters.append(check)
        try:
            async with asyncio.timeout(timeout_s):
                return await found
        except TimeoutError:
            return False
        finally:
            self._waiters.remove(check)


def _with_other_configs(image: ClusterImage, earlier: ClusterImage, names: Iterable[str]) -> Iterator[Topic]:
    for name in names:
        topic, known = image.topics.get(name), earlier.topics.get(name)
        if topic is not None and topic is not known and (known is None or topic.configs != known.configs):
            yield topic
