"""Partitioner: murmur2 of the key as in Kafka's clients; sticky partitions for records without a key."""

from tidelog.client.routing.metadata import TopicMetadata
from tidelog.runtime.randomness import Randomness
from tidelog.types import NO_BROKER

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash of Kafka's Java clients, unsigned."""
    length = len(data)
    hashed = (_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ word
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitions:
    """Records without a key go to one partition until its batch is full, which makes few large batches (KIP-480)."""

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._current: dict[str, int] = {}

    def choose(self, topic: TopicMetadata) -> int:
        """A partition with a leader, if there is one."""
        current = self._current.get(topic.name)
        if current is None or current not in topic.partitions or topic.partitions[current].leader == NO_BROKER:
            self.move_on(topic)
        return self._current[topic.name]

    def move_on(self, topic: TopicMetadata) -> None:
        """The batch is full: choose another partition."""
        current = self._current.get(topic.name)
        led = [number for number, partition in topic.partitions.items() if partition.leader != NO_BROKER]
        others = [number for number in led or topic.partitions if number != current]
        if others:
            self._current[topic.name] = others[self._randomness.below(len(others))]
