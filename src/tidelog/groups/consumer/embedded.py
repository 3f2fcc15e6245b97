"""Embedded consumer protocol: subscriptions and assignments in the opaque bytes of classic members."""

from collections.abc import Iterable

from tidelog.cluster.image import ClusterImage
from tidelog.groups.consumer.members import Assignment
from tidelog.protocol.codec import decode
from tidelog.protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tidelog.protocol.internal.versioned import VERSION_BYTES, encode_versioned, version_of

LAST_VERSION = 3
"""Last known version. Newer versions begin with the same fields, so they are decoded as this one."""


def subscription_of(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises MalformedMessage."""
    version = min(max(version_of(metadata), 0), LAST_VERSION)
    return decode(ConsumerProtocolSubscription, version, memoryview(metadata)[VERSION_BYTES:])


def assignment_of(data: bytes) -> ConsumerProtocolAssignment:
    """Raises MalformedMessage. Empty bytes mean no assignment."""
    if not data:
        return ConsumerProtocolAssignment()
    version = min(max(version_of(data), 0), LAST_VERSION)
    return decode(ConsumerProtocolAssignment, version, memoryview(data)[VERSION_BYTES:])


def by_topic_id(listed: Iterable[TopicPartition], image: ClusterImage) -> Assignment:
    """Partitions by topic id. Deleted topics are left out."""
    existing = ((image.topics.get(entry.topic), entry.partitions) for entry in listed)
    return {topic.topic_id: frozenset(partitions) for topic, partitions in existing if topic is not None and partitions}


def encoded_assignment(assignment: Assignment, metadata: bytes, image: ClusterImage) -> bytes:
    """Assignment in the version of the member's subscription."""
    listed = [
        TopicPartition(topic=image.topic_names[topic_id], partitions=sorted(partitions))
        for topic_id, partitions in assignment.items()
        if topic_id in image.topic_names
    ]
    version = min(max(version_of(metadata), 0), LAST_VERSION)
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=listed), version)
