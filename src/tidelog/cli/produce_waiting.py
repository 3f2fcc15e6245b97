"""Note of `tidelog produce` on what it waits for, if nothing was acknowledged for a few seconds."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tidelog.cli.client_command import note
from tidelog.client.admin.admin import Admin
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp, reason_of
from tidelog.client.producer.producer import Producer
from tidelog.client.producer.producer_settings import ACKS_ALL
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.metadata import TopicMetadata
from tidelog.errors import KafkaError
from tidelog.types import TopicPartition, ids_text

EXPLAIN_AFTER_S = 3.0
MIN_IN_SYNC_REPLICAS = "min.insync.replicas"


class Waiting:
    """Counts lines that were read; those that the producer has not acknowledged are waited for."""

    def __init__(self, cluster: Cluster, producer: Producer, topic: str) -> None:
        self._cluster = cluster
        self._producer = producer
        self._topic = topic
        self.lines_read = 0

    @asynccontextmanager
    async def explained(self) -> AsyncIterator[None]:
        explaining = asyncio.create_task(self._explain())
        try:
            yield
        finally:
            explaining.cancel()
            await asyncio.wait([explaining])

    async def _explain(self) -> None:
        said = ""
        while True:
            before, was_waiting = self._producer.acknowledged_records, self._is_waiting
            await asyncio.sleep(EXPLAIN_AFTER_S)
            if was_waiting and self._is_waiting and self._producer.acknowledged_records == before:
                text = f"{await self._reason()}; gives up after {self._producer.settings.delivery_timeout_s:.0f} s"
                if text != said:
                    note(text)
                said = text

    @property
    def _is_waiting(self) -> bool:
        return self.lines_read > self._producer.acknowledged_records

    async def _reason(self) -> str:
        topic = self._cluster.metadata.topics.get(self._topic)
        if topic is None:
            return f"waiting for topic {self._topic}"
        try:
            return reason_to_wait(topic, await self._min_in_sync_replicas())
        except (KafkaError, ConnectionLost, GaveUp) as error:
            return f"waiting for the brokers: {reason_of(error)}"

    async def _min_in_sync_replicas(self) -> int:
        if self._producer.settings.acks != ACKS_ALL:
            return 1
        described = await Admin(self._cluster, timeout_s=EXPLAIN_AFTER_S).topic_settings(self._topic)
        configs = described[self._topic].configs
        return next((int(each.value or 1) for each in configs if each.name == MIN_IN_SYNC_REPLICAS), 1)


def reason_to_wait(topic: TopicMetadata, min_in_sync_replicas: int) -> str:
    for partition in topic.partitions.values():
        name = TopicPartition(topic.name, partition.partition)
        hint = f"`tidelog partition why {topic.name} {partition.partition}` says more"
        needed = min(min_in_sync_replicas, len(partition.replicas))
        if partition.leader < 0:
            return f"waiting for a leader of {name} ({hint})"
        if len(partition.in_sync_replicas) < needed:
            have = _brokers(partition.in_sync_replicas)
            return f"waiting for in-sync replicas of {name}: {needed} are needed, in sync is only {have} ({hint})"
    return "waiting for acknowledgements"


def _brokers(ids: Sequence[int]) -> str:
    return f"broker{'' if len(ids) == 1 else 's'} {ids_text(ids)}"
