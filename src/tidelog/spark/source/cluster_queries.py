"""Cluster queries of a source: current partitions, topic ids and offsets."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from tidelog.client.consumer.consumer_settings import READ_UNCOMMITTED
from tidelog.client.consumer.offsets import BEGINNING, END, list_offsets
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import Attempts, GaveUp, reason_of
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.metadata import ClusterMetadata, TopicMetadata
from tidelog.config.nearest import did_you_mean
from tidelog.errors import KafkaError, UnknownTopicOrPartition
from tidelog.spark.errors import BrokersUnavailable, UnknownPartition, UnknownTopic
from tidelog.spark.offset_json import Offsets, TopicIds, valid_ids
from tidelog.spark.options.query import ReadOptions
from tidelog.spark.options.values import Assign, Subscribe, SubscribePattern
from tidelog.types import TopicPartition

T = TypeVar("T")

MISSING_TOPIC_S = 2.0
"""A new topic may be unknown to some brokers for a moment; after this time it does not exist."""

NEW_TOPICS_S = 1.0
"""Interval at which a stream with a pattern lists all topics; triggers may be a hundred times as frequent."""


class Topics(NamedTuple):
    """Partitions that a query reads."""

    partitions: tuple[TopicPartition, ...]
    """Sorted."""
    topic_ids: TopicIds


async def resolve(cluster: Cluster, options: ReadOptions) -> Topics:
    """Current partitions. A pattern may match none; a topic or partition given by name must exist."""
    match options.subscription:
        case Subscribe(names):
            return _all_partitions(await _named(cluster, options, names))
        case SubscribePattern(pattern):
            metadata = await _all_topics(cluster, options)
            return _all_partitions(topic for name, topic in metadata.topics.items() if _matches(pattern, topic))
        case Assign(partitions):
            found = await _named(cluster, options, sorted({topic for topic, _ in partitions}))
            _check_partitions(partitions, found)
            return Topics(partitions, valid_ids({topic.name: topic.topic_id for topic in found}))


class TopicWatch:
    """`resolve`, repeatedly for the same options."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._names: list[str] = []
        self._next_listing_s = float("-inf")

    async def resolve(self, cluster: Cluster) -> Topics:
        """Current, except that a topic newly matching a pattern may be found NEW_TOPICS_S later."""
        if not isinstance(self._options.subscription, SubscribePattern):
            return await resolve(cluster, self._options)
        now_s = asyncio.get_running_loop().time()
        if now_s < self._next_listing_s:
            metadata = await _ask(cluster, self._options, self._names)
            if all(name in metadata.topics for name in self._names):
                return _all_partitions(metadata.topics[name] for name in self._names)
        found = await resolve(cluster, self._options)
        self._names = sorted({topic for topic, _ in found.partitions})
        self._next_listing_s = now_s + NEW_TOPICS_S
        return found


async def earliest(cluster: Cluster, topics: Topics, options: ReadOptions) -> Offsets:
    """Log start offset of each partition."""
    return await offsets_at(cluster, options, dict.fromkeys(topics.partitions, BEGINNING))


async def latest(cluster: Cluster, topics: Topics, options: ReadOptions) -> Offsets:
    """End of each partition; with read_committed, the last stable offset."""
    return await offsets_at(cluster, options, dict.fromkeys(topics.partitions, END))


async def log_ends(cluster: Cluster, options: ReadOptions, partitions: Iterable[TopicPartition]) -> Offsets:
    """Log end offset of each partition, including open transactions."""
    return await offsets_at(cluster, options, dict.fromkeys(partitions, END), isolation_level=READ_UNCOMMITTED)


async def offsets_at(
    cluster: Cluster,
    options: ReadOptions,
    timestamps_ms: Mapping[TopicPartition, int],
    *,
    isolation_level: int | None = None,
) -> Offsets:
    """BEGINNING, END, or the first record at or after a timestamp; -1 if there is none."""
    if not timestamps_ms:
        return {}
    level = options.client.isolation_level if isolation_level is None else isolation_level
    responses = await with_retries(
        cluster,
        options,
        "list offsets",
        lambda remaining_s: list_offsets(cluster, timestamps_ms, isolation_level=level, timeout_s=remaining_s),
    )
    return {key: response.offset for key, response in responses.items()}


async def with_retries(
    cluster: Cluster, options: ReadOptions, what: str, attempt: Callable[[float], Awaitable[T]]
) -> T:
    """Retries while the brokers are unavailable; `attempt` gets the remaining seconds."""
    attempts = cluster.attempts(what, options.client.timeout_s)
    try:
        while True:
            try:
                return await attempt(attempts.remaining_s)
            except (ConnectionLost, KafkaError) as error:
                await attempts.after(error)
    except GaveUp as gave_up:
        raise BrokersUnavailable(f"The brokers at {options.bootstrap} did not answer: {gave_up}") from gave_up


async def _ask(cluster: Cluster, options: ReadOptions, names: Sequence[str]) -> ClusterMetadata:
    return await with_retries(cluster, options, "asking about topics", lambda _: cluster.ask_topics(names))


async def _named(cluster: Cluster, options: ReadOptions, names: Iterable[str]) -> list[TopicMetadata]:
    wanted = list(names)
    missing: Attempts | None = None
    while True:
        metadata = await _ask(cluster, options, wanted)
        failed = next((name for name in wanted if name not in metadata.topics), None)
        if failed is None:
            return [metadata.topics[name] for name in wanted]
        failure = metadata.errors.get(failed, UnknownTopicOrPartition())
        missing = missing or cluster.attempts("waiting for topics", MISSING_TOPIC_S)
        try:
            await missing.after(failure)
        except (GaveUp, KafkaError):
            raise await _why_unknown(cluster, options, failed, failure) from None


async def _why_unknown(cluster: Cluster, options: ReadOptions, name: str, failure: KafkaError) -> UnknownTopic:
    if not isinstance(failure, UnknownTopicOrPartition):
        return UnknownTopic(f"topic {name!r} cannot be read: {reason_of(failure)}")
    others = [topic.name for topic in (await _all_topics(cluster, options)).topics.values() if not topic.is_internal]
    hint = did_you_mean(name, others, quote="'")
    return UnknownTopic(f"topic {name!r} does not exist{hint}")


async def _all_topics(cluster: Cluster, options: ReadOptions) -> ClusterMetadata:
    return await with_retries(cluster, options, "listing topics", lambda _: cluster.ask_topics(None))


def _matches(pattern: str, topic: TopicMetadata) -> bool:
    """A match anywhere in the name, as in Spark's Kafka source."""
    return not topic.is_internal and re.search(pattern, topic.name) is not None


def _all_partitions(topics: Iterable[TopicMetadata]) -> Topics:
    found = list(topics)
    partitions = [TopicPartition(topic.name, number) for topic in found for number in topic.partitions]
    return Topics(tuple(sorted(partitions)), valid_ids({topic.name: topic.topic_id for topic in found}))


def _check_partitions(wanted: Iterable[TopicPartition], topics: Iterable[TopicMetadata]) -> None:
    by_name = {topic.name: topic for topic in topics}
    for key in wanted:
        existing = by_name[key.topic].partitions
        if key.partition not in existing:
            raise UnknownPartition(
                f"partition {key} does not exist: topic {key.topic!r} has partitions 0 to {len(existing) - 1}"
            )
