"""Directory names in a log dir: partitions, future logs, pending deletions and stray logs."""

import re

from tidelog.types import TopicPartition

DELETION_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"
MAX_NAME_LENGTH = 255

CLUSTER_METADATA_NAME = "__cluster_metadata-0"
"""The log of a KRaft controller that once shared the directory."""

_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_LAST_PARTITION = 2**31 - 1


def partition_name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


def deletion_name(topic_partition: TopicPartition, unique: str) -> str:
    """Shortens the topic name if the file system would reject the whole name."""
    end = f"-{topic_partition.partition}.{unique}{DELETION_SUFFIX}"
    return topic_partition.topic[: MAX_NAME_LENGTH - len(end)] + end


def stray_name(topic_partition: TopicPartition, unique: str) -> str:
    """Name of a log that was set aside: it is kept until an operator removes it."""
    end = f"-{topic_partition.partition}.{unique}{STRAY_SUFFIX}"
    return topic_partition.topic[: MAX_NAME_LENGTH - len(end)] + end


def future_name(topic_partition: TopicPartition, unique: str) -> str | None:
    """Name of a log that is to replace the current one (Kafka: `topic-partition.uniqueId-future`).

    Never shortens the topic name, which a restart must find in it: the unique part is shortened instead. None if the
    topic name is too long even for that.
    """
    start = f"{topic_partition.topic}-{topic_partition.partition}."
    room = MAX_NAME_LENGTH - len(start) - len(FUTURE_SUFFIX)
    return f"{start}{unique[:room]}{FUTURE_SUFFIX}" if room > 0 else None


def parse_future_name(name: str) -> TopicPartition | None:
    """None if it is not the directory name of a future log."""
    return _parse_with_suffix(name, FUTURE_SUFFIX)


def is_deletion_name(name: str) -> bool:
    """Whether it is the directory name of a deleted partition. Others that end alike are foreign, and stay."""
    return _parse_with_suffix(name, DELETION_SUFFIX) is not None


def _parse_with_suffix(name: str, suffix: str) -> TopicPartition | None:
    start, dot, unique = name.removesuffix(suffix).rpartition(".")
    return parse_partition_name(start) if name.endswith(suffix) and dot and unique else None


def parse_partition_name(name: str) -> TopicPartition | None:
    """None if it is not the directory name of a partition, as with a topic name that no topic can have.

    A name with a space, as of a copied directory, would make the checkpoints of all partitions unreadable.
    """
    found = _PARTITION.fullmatch(name)
    if found is None or found[1] in (".", "..") or int(found[2]) > _LAST_PARTITION:
        return None
    return TopicPartition(found[1], int(found[2]))
