"""Topic positions as JSON in the format of Spark's Kafka source, with topic ids added."""

# Core: no clock, no I/O, no await.

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from tidelog.types import ZERO_UUID, TopicPartition, Uuid, uuid_from_text, uuid_text

Offsets: TypeAlias = dict[TopicPartition, int]
TopicIds: TypeAlias = dict[str, Uuid]

LATEST = -1
EARLIEST = -2

TOPIC_IDS = "@topicIds"
"""Not a valid topic name, so there is no conflict."""


class BadOffsets(ValueError):
    """Invalid positions; the message shows the expected form."""


class Positions(NamedTuple):
    """Offsets of a stream, with the id of each topic."""

    offsets: Offsets
    topic_ids: TopicIds


def to_dict(offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, Uuid] | None = None) -> dict[str, Any]:
    """`{"orders": {"0": 23, "1": 42}, "@topicIds": {"orders": "..."}}`, with the ids of these topics only."""
    written: dict[str, Any] = {}
    for topic, partition in sorted(offsets):
        written.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    known = {topic: uuid_text(topic_ids[topic]) for topic in written if topic_ids and topic in topic_ids}
    return written | {TOPIC_IDS: known} if known else written


def from_dict(written: Mapping[str, Any]) -> Positions:
    """Raises BadOffsets. Also reads positions written by Spark's own Kafka source."""
    try:
        ids = {topic: uuid_from_text(text) for topic, text in written.get(TOPIC_IDS, {}).items()}
    except (AttributeError, TypeError, ValueError):
        raise BadOffsets(f"expected topic ids under {TOPIC_IDS!r}, found {written[TOPIC_IDS]!r}") from None
    return Positions(_per_partition({topic: found for topic, found in written.items() if topic != TOPIC_IDS}), ids)


def partition_numbers(text: str) -> Offsets:
    """A number per partition, as users write offsets and timestamps: `{"orders": {"0": 23, "1": -1}}`."""
    return _per_partition(_json_object(text))


def partition_lists(text: str) -> tuple[TopicPartition, ...]:
    """`{"orders": [0, 1]}`, sorted, without repetitions."""
    found = _json_object(text)
    if not all(isinstance(numbers, list) and all(map(_is_partition, numbers)) for numbers in found.values()):
        raise BadOffsets("expected lists of partitions")
    return tuple(sorted({TopicPartition(topic, number) for topic, numbers in found.items() for number in numbers}))


def valid_ids(topic_ids: Mapping[str, Uuid]) -> TopicIds:
    """Without topics of brokers that have no topic ids."""
    return {topic: topic_id for topic, topic_id in topic_ids.items() if topic_id != ZERO_UUID}


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))


def _json_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise BadOffsets(f"not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadOffsets("expected a JSON object")
    return found


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise BadOffsets(f"a name occurs twice among {', '.join(name for name, _ in pairs)}")
    return found


def _per_partition(found: Mapping[str, Any]) -> Offsets:
    offsets: Offsets = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, dict):
            raise BadOffsets(f"expected an object with a number for each partition of {topic!r}")
        for partition, number in partitions.items():
            if not _is_partition_text(partition) or type(number) is not int:
                raise BadOffsets(
                    f"expected partitions and whole numbers for {topic!r}, found {partition!r}: {number!r}"
                )
            offsets[TopicPartition(topic, int(partition))] = number
    return offsets


def _is_partition_text(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) < 2**31


def _is_partition(number: object) -> bool:
    return type(number) is int and 0 <= number < 2**31
