"""What this broker knows of its cluster: the one way in for new images and settings."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from tidelog.cluster.image import CLUSTER_WIDE, ClusterImage, Topic
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
from tidelog.types import BrokerId, Uuid, uuid_text


class ClusterState:
    """Holds the image of now."""

    def __init__(self, broker_id: BrokerId, static_settings: BrokerSettings, image: ClusterImage) -> None:
        self._broker_id = broker_id
        self.static_settings = static_settings
        self.image = image
        self.settings = effective_broker_settings(static_settings, self.dynamic_configs)
        self._topic_defaults = topic_defaults(self.settings)
        self.on_settings: list[Callable[[BrokerSettings], None]] = []
        """Told of the broker's settings when they change."""
        self._early_configs: dict[str, Mapping[str, str]] = {}
        """Of topics that no image has yet: a replica may be told to host them before anybody else hears of them."""
        self.early_topics: dict[str, Uuid] = {}
        """The ids of the same: followers ask by id as soon as there is a leader."""
        self.on_image: list[Callable[[ClusterImage], None]] = []
        """Told of every new image."""
        self._waiters: list[Callable[[ClusterImage], None]] = []

    @property
    def dynamic_configs(self) -> DynamicBrokerConfigs:
        stored = self.image.broker_configs
        return DynamicBrokerConfigs(
            per_broker=stored.get(str(self._broker_id), {}), cluster_wide=stored.get(CLUSTER_WIDE, {})
        )

    def topic_name(self, topic_id: Uuid) -> str:
        name = self.image.topic_names.get(topic_id) or self._early_name(topic_id)
        if name is None:
            raise UnknownTopicId(f"no topic has the id {uuid_text(topic_id)}")
        return name

    def _early_name(self, topic_id: Uuid) -> str | None:
        return next((name for name, found in self.early_topics.items() if found == topic_id), None)

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """The topic's own settings."""
        known = self.image.topics.get(topic)
        return self._early_configs.get(topic, {}) if known is None else known.configs

    def topic_settings(self, topic: str) -> TopicSettings:
        return topic_settings(self._topic_defaults, self.topic_configs(topic))

    def settings_of_found_log(self, topic: str) -> TopicSettings:
        """For a log that is found at the start. Of a topic that the store does not know everything is kept (R44)."""
        settings = self.topic_settings(topic)
        if topic in self.image.topics:
            return settings
        return replace(settings, cleanup_policy=("delete",), retention_ms=-1, retention_bytes=-1)

    @property
    def topics_with_configs(self) -> list[str]:
        return [*self.image.topics, *self._early_configs]

    def start(self, replicas: ReplicaManager) -> None:
        """From now on the partitions hosted here follow the settings."""
        self._replicas = replicas
        self._tell_brokers()

    def apply(self, image: ClusterImage, changed_topics: Iterable[str] | None = None) -> None:
        """One step: nobody sees half of a change. Who knows which topics may differ saves looking at all."""
        earlier, self.image = self.image, image
        if image.broker_configs is not earlier.broker_configs:
            self.settings = effective_broker_settings(self.static_settings, self.dynamic_configs)
            self._topic_defaults = topic_defaults(self.settings)
            for take_settings in self.on_settings:
                take_settings(self.settings)
            self._configure(image.topics.values())
        elif image.topics is not earlier.topics:
            names = image.topics if changed_topics is None else changed_topics
            self._configure(_with_other_configs(image, earlier, names))
        if image.brokers is not earlier.brokers:
            self._tell_brokers()
        for name in [name for name in self._early_configs if name in image.topics]:
            del self._early_configs[name]
        for take_image in self.on_image:
            take_image(image)
        for waiter in list(self._waiters):
            waiter(image)

    def apply_topic_configs(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """All settings that these topics have of their own; they act at once."""
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
        """All dynamic settings of these brokers, by id or CLUSTER_WIDE; they act at once."""
        broker_configs = {**self.image.broker_configs, **configs}
        if broker_configs != self.image.broker_configs:
            self.apply(replace(self.image, broker_configs=broker_configs))

    def apply_group_configs(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """All settings that these groups have of their own: they act from the next heartbeat of each member."""
        stored = {**self.image.group_configs, **configs}
        group_configs = {name: found for name, found in stored.items() if found}
        if group_configs != self.image.group_configs:
            self.apply(replace(self.image, group_configs=group_configs))

    def _tell_brokers(self) -> None:
        self._replicas.on_brokers_changed({broker.id: broker.epoch for broker in self.image.brokers.values()})

    def _configure(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            self._replicas.configure(topic.name, len(topic.partitions), self.topic_settings(topic.name))

    async def wait_until(self, is_true: Callable[[ClusterImage], bool], timeout_s: float) -> bool:
        """Whether an image came, within this time, of which it is true."""
        if is_true(self.image):
            return True
        found: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def look(image: ClusterImage) -> None:
            if not found.done() and is_true(image):
                found.set_result(True)

        self._waiters.append(look)
        try:
            async with asyncio.timeout(timeout_s):
                return await found
        except TimeoutError:
            return False
        finally:
            self._waiters.remove(look)


def _with_other_configs(image: ClusterImage, earlier: ClusterImage, names: Iterable[str]) -> Iterator[Topic]:
    for name in names:
        topic, known = image.topics.get(name), earlier.topics.get(name)
        if topic is not None and topic is not known and (known is None or topic.configs != known.configs):
            yield topic
