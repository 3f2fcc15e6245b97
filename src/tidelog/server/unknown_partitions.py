"""Requests about offsets of partitions of which some do not exist: groups are asked about the others only."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from tidelog.cluster.image import ClusterImage


class _Requested(Protocol):
    name: str
    partitions: list[Any]


class _Answered(Protocol):
    name: str
    partitions: list[Any]


R = TypeVar("R", bound=_Requested)
A = TypeVar("A", bound=_Answered)


def divide(topic: _Requested, image: ClusterImage) -> tuple[list[Any], list[int]]:
    """The partitions of a request's topic that exist, and the indexes of those that do not."""
    found = image.topics.get(topic.name)
    count = 0 if found is None else len(found.partitions)
    known, unknown = [], []
    for partition in topic.partitions:
        if 0 <= partition.partition_index < count:
            known.append(partition)
        else:
            unknown.append(partition.partition_index)
    return known, unknown


def divide_topics(
    topics: Iterable[_Requested],
    image: ClusterImage,
    known_topic: Callable[[str, list[Any]], R],
    refused_topic: Callable[[str, list[int]], A],
) -> tuple[list[R], list[A]]:
    """The same for topics by name: what is to be asked of the group, and what is answered without it."""
    known, refused = [], []
    for topic in topics:
        partitions, unknown = divide(topic, image)
        if partitions:
            known.append(known_topic(topic.name, partitions))
        if unknown:
            refused.append(refused_topic(topic.name, unknown))
    return known, refused


def merged(topics: list[A], refused: list[A]) -> list[A]:
    """Each topic once, unless the group alone has answered."""
    if not refused:
        return topics
    by_topic: dict[tuple[str, object], A] = {}
    for topic in (*topics, *refused):
        same = by_topic.setdefault(_identity(topic), topic)
        if same is not topic:
            same.partitions.extend(topic.partitions)
    return list(by_topic.values())


def _identity(topic: _Answered) -> tuple[str, object]:
    return topic.name, getattr(topic, "topic_id", None)
