"""Throttle settings of a reassignment, as Kafka's `kafka-reassign-partitions` sets and removes them.

Brokers get a rate for leaders and one for followers; topics name the replicas that the rates apply to: the sources on
their leaders, the replicas that are added on their followers.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.client.admin.admin import BROKER_RESOURCE, DEFAULT_TIMEOUT_S, TOPIC_RESOURCE, TOPIC_SOURCE
from tidelog.client.admin.config_admin import ConfigAdmin, Resource, ResourceKind
from tidelog.client.network.retries import Backoff, GaveUp, retried
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import raise_error
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.types import BrokerId, TopicPartition

BROKER_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
BROKER_SOURCE = 2
"""Set for this broker at run time."""
LONGEST_PAUSE_S = 0.2


class ThrottledMove(NamedTuple):
    sources: tuple[BrokerId, ...]
    """The replicas before the move."""
    added: tuple[BrokerId, ...]


class Throttle(NamedTuple):
    """Where throttle settings are set."""

    brokers: tuple[BrokerId, ...]
    topics: tuple[str, ...]

    @property
    def is_set(self) -> bool:
        return bool(self.brokers or self.topics)


def throttled_replicas(moves: Mapping[TopicPartition, ThrottledMove]) -> dict[str, dict[str, str]]:
    """The settings of each topic that say which replicas are throttled."""
    found: dict[str, dict[str, list[str]]] = {}
    for (topic, partition), move in sorted(moves.items()):
        settings = found.setdefault(topic, {LEADER_REPLICAS: [], FOLLOWER_REPLICAS: []})
        settings[LEADER_REPLICAS] += [f"{partition}:{broker}" for broker in move.sources]
        settings[FOLLOWER_REPLICAS] += [f"{partition}:{broker}" for broker in move.added]
    return {topic: {key: ",".join(replicas) for key, replicas in settings.items()} for topic, settings in found.items()}


class ThrottleAdmin:
    """Settings of brokers go to the broker itself, as ZooKeeper-mode Kafka demands."""

    def __init__(self, cluster: Cluster, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s

    async def set(self, rate_bytes: int, moves: Mapping[TopicPartition, ThrottledMove]) -> None:
        """Returns when all live brokers that have to do with the moves apply the throttle.

        A broker learns of changed topics a little later than the one that was asked to change them. A move that begins
        in between is not throttled.
        """
        involved = {broker for move in moves.values() for broker in (*move.sources, *move.added)}
        brokers = sorted(involved & self._cluster.metadata.brokers.keys())
        topics = throttled_replicas(moves)
        for broker_id in brokers:
            await self._alter(BROKER_RESOURCE, str(broker_id), dict.fromkeys(BROKER_RATES, str(rate_bytes)))
        for topic, settings in topics.items():
            await self._alter(TOPIC_RESOURCE, topic, settings)
        for broker_id in brokers:
            await self._wait_until_applied(broker_id, topics)

    async def remove(self, throttle: Throttle) -> None:
        for broker_id in throttle.brokers:
            await self._alter(BROKER_RESOURCE, str(broker_id), dict.fromkeys(BROKER_RATES))
        for topic in throttle.topics:
            await self._alter(TOPIC_RESOURCE, topic, dict.fromkeys((LEADER_REPLICAS, FOLLOWER_REPLICAS)))

    async def find(self, topics: Iterable[str]) -> Throttle:
        """Live brokers, and those of the topics, that have throttle settings of their own."""
        brokers = [
            broker_id
            for broker_id in sorted(self._cluster.metadata.brokers)
            if await self._set_names(BROKER_RESOURCE, [str(broker_id)], BROKER_RATES, BROKER_SOURCE)
        ]
        names = sorted(topics)
        keys = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
        throttled = await self._set_names(TOPIC_RESOURCE, names, keys, TOPIC_SOURCE) if names else []
        return Throttle(tuple(brokers), tuple(throttled))

    async def _set_names(self, kind: int, names: Iterable[str], keys: tuple[str, ...], source: int) -> list[str]:
        """Names of the resources on which one of the settings is set."""
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys) for name in names
        ]
        request = DescribeConfigsRequest(resources=resources)

        async def attempt() -> DescribeConfigsResponse:
            if kind == BROKER_RESOURCE:
                broker_id = int(resources[0].resource_name)
                return await self._cluster.ask_broker(broker_id, request, DescribeConfigsResponse)
            return await self._cluster.ask_any(request, DescribeConfigsResponse)

        response = await retried(self._cluster.attempts("describing throttle settings", self._timeout_s), attempt)
        return [
            result.resource_name
            for result in response.results
            if any(entry.config_source == source and entry.value for entry in result.configs)
        ]

    async def _wait_until_applied(self, broker_id: BrokerId, topics: Mapping[str, Mapping[str, str]]) -> None:
        """Until the broker itself returns these settings of the topics."""
        keys = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=keys)
                for topic in topics
            ]
        )
        attempts = self._cluster.attempts(f"waiting for the throttle of broker {broker_id}", self._timeout_s)

        async def attempt() -> bool:
            response = await self._cluster.ask_broker(broker_id, request, DescribeConfigsResponse)
            for result in response.results:
                raise_error(result.error_code, message=result.error_message)
            found = {
                each.resource_name: {entry.name: entry.value for entry in each.configs} for each in response.results
            }
            return found == topics

        pause = Backoff(None, longest_s=LONGEST_PAUSE_S)
        while not await retried(attempts, attempt):
            if not attempts.remaining_s:
                raise GaveUp(f"broker {broker_id} does not apply the throttle after {self._timeout_s:g} s")
            await asyncio.sleep(pause.next_s())

    async def _alter(self, kind: int, name: str, settings: Mapping[str, str | None]) -> None:
        admin = ConfigAdmin(self._cluster, timeout_s=self._timeout_s)
        await admin.alter_or_unset(Resource(ResourceKind(kind), name), settings)
