"""Keys must find the partition that Java clients put them in."""

import pytest

from tidelog.client.producer.partitioner import StickyPartitions, murmur2, partition_of_key
from tidelog.client.routing.metadata import PartitionMetadata, TopicMetadata
from tidelog.runtime.randomness import SeededRandomness
from tidelog.types import ZERO_UUID

# From UtilsTest.testMurmur2 of Apache Kafka, signed there.
JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hashed"), JAVA_HASHES.items())
def test_hash_is_that_of_java(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


def test_partition_is_that_of_the_positive_hash() -> None:
    assert partition_of_key(b"foobar", 12) == (-790332482 & 0x7FFFFFFF) % 12
    assert {partition_of_key(b"%d" % number, 7) for number in range(200)} == set(range(7))


def topic(leaders: dict[int, int]) -> TopicMetadata:
    partitions = {number: PartitionMetadata(number, leader, 0, (), (), ()) for number, leader in leaders.items()}
    return TopicMetadata("t", ZERO_UUID, False, partitions)


def test_records_without_key_stay_until_they_are_switched() -> None:
    sticky = StickyPartitions(SeededRandomness(1))
    all_led = topic({0: 1, 1: 1, 2: 1})
    first = sticky.choose(all_led)
    assert all(sticky.choose(all_led) == first for _ in range(20))
    sticky.move_on(all_led)
    assert sticky.choose(all_led) != first


def test_partition_without_leader_is_left() -> None:
    sticky = StickyPartitions(SeededRandomness(1))
    first = sticky.choose(topic({0: 1, 1: 1}))
    one_led = topic({first: -1, 1 - first: 1})
    assert sticky.choose(one_led) == 1 - first
    sticky.move_on(one_led)
    assert sticky.choose(one_led) == 1 - first


def test_without_any_leader_any_partition_will_do() -> None:
    assert StickyPartitions(SeededRandomness(1)).choose(topic({0: -1, 1: -1})) in (0, 1)
