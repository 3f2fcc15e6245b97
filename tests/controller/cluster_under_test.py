"""A cluster of registered brokers over a store, with the administration of its controller."""

import dataclasses

from tidelog.cluster import znodes
from tidelog.cluster.image import DEFAULT_ENTITY_NAME, BrokerRegistration, ClusterImage, Topic
from tidelog.config.broker import BrokerSettings
from tidelog.config.listeners import Endpoint
from tidelog.controller.configs import ConfigAdministration, ConfigOutcome, ResourceType
from tidelog.controller.context_loading import load_image
from tidelog.controller.registration import claim_controller, find_cluster_id, prepare_store, register_broker
from tidelog.controller.topics import TopicAdministration, TopicOutcome
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.randomness import SeededRandomness
from tidelog.store.interface import Delete, Store
from tidelog.store.memory import MemoryStore, MemoryStoreState


def broker(broker_id: int, rack: str | None = None) -> BrokerRegistration:
    return BrokerRegistration(broker_id, (Endpoint("PLAINTEXT", f"host{broker_id}", 9092, "PLAINTEXT"),), rack)


class Cluster:
    """Broker 1 is the controller. `apply` keeps the image as a broker would."""

    def __init__(self, store: Store, state: MemoryStoreState | None, settings: BrokerSettings) -> None:
        self.store = store
        self.state = state
        self.settings = settings
        self.image = ClusterImage("")
        self.topics: TopicAdministration
        self.configs: ConfigAdministration

    @classmethod
    async def start(
        cls, *, brokers: int = 1, settings: BrokerSettings | None = None, store: Store | None = None
    ) -> "Cluster":
        state = MemoryStoreState() if store is None else None
        cluster = cls(store or MemoryStore(state), state, settings or BrokerSettings(broker_id=1))
        randomness, clock = SeededRandomness(1), ManualClock()
        await prepare_store(cluster.store)
        await find_cluster_id(cluster.store, randomness)
        for broker_id in range(1, brokers + 1):
            await register_broker(cluster.store, broker(broker_id), clock)
        fence = await claim_controller(cluster.store, 1, clock)
        assert fence is not None
        cluster.image = await load_image(cluster.store)
        cluster.topics = TopicAdministration(
            cluster.store, randomness, lambda: cluster.settings, lambda: cluster.image, fence
        )
        cluster.configs = ConfigAdministration(cluster.store, 1, lambda: cluster.settings, lambda: cluster.image)
        return cluster

    def apply(self, outcomes: list[TopicOutcome]) -> None:
        changed = [outcome.topic for outcome in outcomes if outcome.topic is not None]
        self.image = self.image.with_topics(*changed)

    async def remove_topic(self, name: str) -> None:
        """What is left of a topic when it was deleted everywhere: nothing."""
        await self.store.multi([Delete(znodes.topic_path(name)), Delete(znodes.topic_config_path(name))])
        self.image = self.image.without_topics(name)

    def apply_configs(self, outcomes: list[ConfigOutcome]) -> None:
        for outcome in outcomes:
            if outcome.error is None and outcome.resource_type == ResourceType.TOPIC:
                topic = dataclasses.replace(self.image.topics[outcome.resource_name], configs=outcome.configs)
                self.image = self.image.with_topics(topic)
            elif outcome.error is None:
                configs = {**self.image.broker_configs, outcome.resource_name or DEFAULT_ENTITY_NAME: outcome.configs}
                self.image = dataclasses.replace(self.image, broker_configs=configs)

    def topic(self, name: str) -> Topic:
        return self.image.topics[name]

    def nodes(self) -> dict[str, bytes]:
        assert self.state is not None
        return {path: node.data for path, node in self.state.nodes.items()}
