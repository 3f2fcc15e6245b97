"""Unknown partitions in offset requests: split off and answered without the group coordinator."""

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
    """Existing partitions of a topic, and the indexes of unknown ones."""
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
    rejected_topic: Callable[[str, list[int]], A],
) -> tuple[list[R], list[A]]:
    """Split topics by name: requests for the group coordinator, and answers for unknown partitions."""
    known, rejected = [], []
    for topic in topics:
        partitions, unknown = divide(topic, image)
        if partitions:
            known.append(known_topic(topic.name, partitions))
        if unknown:
            rejected.append(rejected_topic(topic.name, unknown))
    return known, rejected


def merged(topics: list[A], rejected: list[A]) -> list[A]:
    """Merge both answers, each topic once. Without refused topics the coordinator's answer stays as it is."""
    if not rejected:
        return topics
    by_topic: dict[tuple[str, object], A] = {}
    for topic in (*topics, *rejected):
        same = by_topic.setdefault(_identity(topic), topic)
        if same is not topic:
            same.partitions.extend(topic.partitions)
    return list(by_topic.values())


def _identity(topic: _Answered) -> tuple[str, object]:
    return topic.name, getattr(topic, "topic_id", None)
