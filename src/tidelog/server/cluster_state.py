"""The one way in for cluster state: a new image comes here, and the broker's partitions follow it."""

import logging
from collections.abc import Callable, Iterable
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
from tidelog.controller.configs import ConfigOutcome, ResourceType
from tidelog.errors import UnknownTopicId
from tidelog.replication.leader import PartitionLeader
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.types import BrokerId, TopicPartition, Uuid, uuid_text

log = logging.getLogger(__name__)


class ClusterState:
    """Holds the image of now. `apply` is one step: nobody sees half of a change."""

    def __init__(self, broker_id: BrokerId, static_settings: BrokerSettings, image: ClusterImage) -> None:
        self._broker_id = broker_id
        self.static_settings = static_settings
        self.image = image
        self.settings = effective_broker_settings(static_settings, self.dynamic_configs)
        self._topic_defaults = topic_defaults(self.settings)
        self.on_settings: list[Callable[[BrokerSettings], None]] = []
        """Told of the broker's settings when they change."""

    @property
    def dynamic_configs(self) -> DynamicBrokerConfigs:
        stored = self.image.broker_configs
        return DynamicBrokerConfigs(
            per_broker=stored.get(str(self._broker_id), {}), cluster_wide=stored.get(CLUSTER_WIDE, {})
        )

    def topic_name(self, topic_id: Uuid) -> str:
        name = self.image.topic_names.get(topic_id)
        if name is None:
            raise UnknownTopicId(f"no topic has the id {uuid_text(topic_id)}")
        return name

    def topic_settings(self, topic: str) -> TopicSettings:
        known = self.image.topics.get(topic)
        return topic_settings(self._topic_defaults, known.configs if known else {})

    def start(self, replicas: ReplicaManager) -> None:
        """Take office for everything that the first image says this broker leads."""
        self._replicas = replicas
        for topic in self.image.topics.values():
            self._host(topic)

    def apply(self, image: ClusterImage) -> None:
        earlier, self.image = self.image, image
        if image.broker_configs is not earlier.broker_configs:
            self.settings = effective_broker_settings(self.static_settings, self.dynamic_configs)
            self._topic_defaults = topic_defaults(self.settings)
            for take_settings in self.on_settings:
                take_settings(self.settings)
            self._configure(image.topics.values())
        if image.topics is not earlier.topics:
            self._follow_topics(earlier, image)

    def apply_configs(self, outcome: ConfigOutcome) -> None:
        """New settings of a topic or of brokers; both act at once."""
        if outcome.resource_type == ResourceType.TOPIC:
            topic = self.image.topics.get(outcome.resource_name)
            if topic is not None:
                self.apply(self.image.with_topics(replace(topic, configs=outcome.configs)))
        else:
            self.apply(self.image.with_broker_configs(outcome.broker_config_name, outcome.configs))

    def _follow_topics(self, earlier: ClusterImage, image: ClusterImage) -> None:
        for name, topic in earlier.topics.items():
            now = image.topics.get(name)
            if now is None or now.topic_id != topic.topic_id:
                self._drop(topic)
        changed = [topic for name, topic in image.topics.items() if topic is not earlier.topics.get(name)]
        self._configure(changed)
        for topic in changed:
            self._host(topic)

    def _configure(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            self._replicas.configure(topic.name, len(topic.partitions), self.topic_settings(topic.name))

    def _host(self, topic: Topic) -> None:
        settings = self.topic_settings(topic.name)
        for partition in topic.partitions:
            if partition.leader == self._broker_id:
                leader = PartitionLeader(self._broker_id, partition.leader_epoch, frozenset(partition.in_sync_replicas))
                self._replicas.make_leader(
                    TopicPartition(topic.name, partition.index), topic.topic_id, leader, settings
                )

    def _drop(self, topic: Topic) -> None:
        for partition in topic.partitions:
            if self._broker_id in partition.replicas:
                self._replicas.delete(TopicPartition(topic.name, partition.index))
        log.info("topic deleted topic=%s topic_id=%s", topic.name, uuid_text(topic.topic_id))
