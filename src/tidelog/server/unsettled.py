"""Changes that the store may or may not have made, because its answer was lost: what became of them is looked up."""

import asyncio
import logging
from collections.abc import Callable

from tidelog.cluster.image import ClusterImage, Topic
from tidelog.controller.loading import load_broker_configs, load_topics
from tidelog.errors import KafkaError, NotController, RequestTimedOut
from tidelog.server.cluster_state import ClusterState
from tidelog.store.interface import Store, StoreError

log = logging.getLogger(__name__)

PAUSE_S = 1.0


def is_unsettled(error: KafkaError | None) -> bool:
    return isinstance(error, RequestTimedOut | NotController)


class Unsettled:
    """Collects them; `run` asks the store until it answers, and takes over what it has."""

    def __init__(self, cluster: ClusterState, store: Callable[[], Store]) -> None:
        self._cluster = cluster
        self._store = store
        self.topics: set[str] = set()
        self.broker_configs: set[str] = set()
        self._is_running = False

    @property
    def is_empty(self) -> bool:
        return not (self.topics or self.broker_configs)

    async def run(self) -> None:
        if self._is_running:
            return
        self._is_running = True
        try:
            while not self.is_empty:
                try:
                    await self._settle()
                except StoreError as error:
                    log.warning("the outcome of a change is not known yet reason=%s", error)
                    await asyncio.sleep(PAUSE_S)
        finally:
            self._is_running = False

    async def _settle(self) -> None:
        topics, broker_configs, image = set(self.topics), set(self.broker_configs), self._cluster.image
        stored_topics = await load_topics(self._store(), sorted(topics))
        stored_configs = await load_broker_configs(self._store())
        if self._cluster.image is not image:
            return  # what was read may be older than what is known: look again
        for name in broker_configs:
            image = image.with_broker_configs(name, stored_configs.get(name, {}))
        self._cluster.apply(_with_stored_topics(image, topics, stored_topics))
        self.topics -= topics
        self.broker_configs -= broker_configs


def _with_stored_topics(image: ClusterImage, names: set[str], stored: list[Topic]) -> ClusterImage:
    gone = names - {topic.name for topic in stored}
    changed = [topic for topic in stored if topic != image.topics.get(topic.name)]
    return image.without_topics(*gone).with_topics(*changed)
