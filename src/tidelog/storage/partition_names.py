"""Directory names in a log dir: partitions, future logs, pending deletions and stray logs."""

from tidelog.types import TopicPartition

DELETION_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"
MAX_NAME_LENGTH = 255

CLUSTER_METADATA_NAME = "__cluster_metadata-0"
"""The log of a KRaft controller that once shared the directory."""


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
    start, dot, unique = name.removesuffix(FUTURE_SUFFIX).rpartition(".")
    return parse_partition_name(start) if name.endswith(FUTURE_SUFFIX) and dot and unique else None


def parse_partition_name(name: str) -> TopicPartition | None:
    """None if it is not the directory name of a partition."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isascii() or not partition.isdigit():
        return None
    return TopicPartition(topic, int(partition))
