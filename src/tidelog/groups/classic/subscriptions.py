"""What consumers tell in the metadata of the classic protocol: the topics that they are subscribed to."""

from collections.abc import Iterable

from tidelog.protocol.codec import decode
from tidelog.protocol.errors import MalformedMessage
from tidelog.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from tidelog.protocol.internal.versioned import VERSION_BYTES

CONSUMER_PROTOCOL_TYPE = "consumer"
PREFIX_OF_ALL_VERSIONS = 0


def topics_of(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members; None if one of them cannot be read."""
    topics: set[str] = set()
    try:
        for subscription in metadata:
            rest = memoryview(subscription)[VERSION_BYTES:]
            topics.update(decode(ConsumerProtocolSubscription, PREFIX_OF_ALL_VERSIONS, rest).topics)
    except MalformedMessage:
        return None
    return frozenset(topics)
