"""Requests about many partitions: sent to their leaders, retried for partitions with retriable errors."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias, TypeVar

from tidelog.client.network.connection import ClientConnection
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.metadata import BrokerMetadata
from tidelog.errors import KafkaError
from tidelog.types import TopicPartition

R = TypeVar("R")

Outcomes: TypeAlias = dict[TopicPartition, R | KafkaError | ConnectionLost]

AskLeader: TypeAlias = Callable[[ClientConnection, Mapping[TopicPartition, int]], Awaitable[Outcomes[R]]]
"""Sends one request to a broker about partitions, with the leader epochs that the client expects."""


async def ask_leaders(
    cluster: Cluster, what: str, partitions: Iterable[TopicPartition], ask: AskLeader[R], timeout_s: float
) -> dict[TopicPartition, R]:
    """All answers; raises the first error that is not retriable."""
    attempts = cluster.attempts(what, timeout_s)
    open_partitions = set(partitions)
    responses: dict[TopicPartition, R] = {}
    await cluster.topics_in_use({topic for topic, _ in open_partitions})
    while True:
        seen_version = cluster.metadata.version
        failure: Exception | None = None
        for topic_partition, outcome in (await _ask_once(cluster, open_partitions, ask)).items():
            if isinstance(outcome, KafkaError | ConnectionLost):
                failure = outcome
            else:
                responses[topic_partition] = outcome
                open_partitions.discard(topic_partition)
        if failure is None:
            return responses
        await attempts.after(failure)
        try:
            await cluster.refresh(seen_version)
        except ConnectionLost as lost:
            await attempts.after(lost)


async def _ask_once(cluster: Cluster, partitions: Iterable[TopicPartition], ask: AskLeader[R]) -> Outcomes[R]:
    outcomes: Outcomes[R] = {}
    by_leader: dict[BrokerMetadata, dict[TopicPartition, int]] = {}
    for topic_partition in sorted(partitions):
        try:
            leader = cluster.metadata.leader_of(topic_partition)
        except KafkaError as error:
            outcomes[topic_partition] = error
        else:
            by_leader.setdefault(leader.broker, {})[topic_partition] = leader.leader_epoch
    for answered in await asyncio.gather(*(_ask_broker(cluster, *group, ask) for group in by_leader.items())):
        outcomes |= answered
    return outcomes


async def _ask_broker(
    cluster: Cluster, broker: BrokerMetadata, epochs: Mapping[TopicPartition, int], ask: AskLeader[R]
) -> Outcomes[R]:
    try:
        return await ask(await cluster.connections.to(broker.address), epochs)
    except (KafkaError, ConnectionLost) as error:
        return dict.fromkeys(epochs, error)
