"""Features of a Kafka client with a broker: the ids are stable, reports are made from them."""

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import get_args

from tests.clients.broker import BrokerProcess, TidelogCluster
from tests.clients.driver import (
    Acks,
    Capability,
    ClientDriver,
    Compression,
    Consumed,
    Isolation,
    ProducerOptions,
    Record,
    Rejected,
    wait_until,
)
from tests.clients.each_broker import configs_by_broker, leaders_by_broker

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC = 17
INVALID_TIMESTAMP = 32
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40

SECONDS_WITHOUT_LEADER = 1.0
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
BATCH_HEADER_BYTES = 61
CODECS: tuple[Compression, ...] = get_args(Compression)
COMPRESSIBLE = b"all work and no play makes jack a dull boy " * 5

_topic_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Workbench:
    """A client under test, and a known good one that prepares what the test needs."""

    client: ClientDriver
    helper: ClientDriver
    broker: BrokerProcess

    def new_name(self) -> str:
        return f"t{time.time_ns():x}-{next(_topic_numbers)}"

    def new_topic(self, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        topic = self.new_name()
        self.helper.create_topic(topic, partitions, configs or {})
        self.wait_for_topic(topic, partitions)
        return topic

    def wait_for_topic(self, topic: str, partitions: int) -> None:
        def is_led() -> bool:
            known = leaders_by_broker(self.broker.bootstrap, topic)
            return all(len(leaders) == partitions and min(leaders.values()) >= 0 for leaders in known)

        wait_until(is_led, f"topic {topic} has {partitions} partitions with leaders")

    def wait_for_end_of_topic(self, topic: str) -> None:
        wait_until(lambda: not any(leaders_by_broker(self.broker.bootstrap, topic)), f"topic {topic} is gone")

    def codecs_on_disk(self, topic: str) -> set[Compression]:
        """The codecs of the first batch of partition 0 in all replicas, where the brokers' files can be seen."""
        segments = [log_dir / f"{topic}-0" / f"{0:020}.log" for log_dir in self.broker.log_dirs]
        return {CODECS[int.from_bytes(segment.read_bytes()[21:23]) & 7] for segment in segments}

    def wait_for_replicas(self, topic: str) -> None:
        def are_in_sync() -> bool:
            described = self.helper.describe_topic(topic)
            return all(len(one.in_sync_replicas) == self.broker.broker_count for one in described.values())

        wait_until(are_in_sync, f"all replicas of {topic} are in sync")

    def kill_leader_and_start_it_again(self, topic: str, partition: int = 0) -> None:
        """Kills the process that leads the partition, and gives the others time to go on without it."""
        assert isinstance(self.broker, TidelogCluster)
        leader = self.helper.describe_topic(topic)[partition].leader
        self.broker.brokers[leader].kill()
        time.sleep(SECONDS_WITHOUT_LEADER)
        self.broker.start_brokers([leader])


Check = Callable[[Workbench], None]


@dataclass(frozen=True, slots=True)
class Feature:
    id: str
    needs: frozenset[Capability]
    check: Check
    needs_cluster: bool = False
    """Whether several brokers are needed, which may be killed."""


FEATURES: dict[str, Feature] = {}


def add(name: str, needs: Sequence[Capability], check: Check, *, needs_cluster: bool = False) -> None:
    assert name not in FEATURES, f"two features are called {name}"
    FEATURES[name] = Feature(name, frozenset(needs), check, needs_cluster)


def feature(name: str, *needs: Capability, needs_cluster: bool = False) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        add(name, needs, check, needs_cluster=needs_cluster)
        return check

    return register


def numbered(count: int, size: int = 0) -> list[Record]:
    return [Record(b"%d:" % number + b"x" * size, key=b"key-%d" % (number % 7)) for number in range(count)]


def assert_same(consumed: Sequence[Consumed], records: Sequence[Record], first_offset: int = 0) -> None:
    assert [one.offset for one in consumed] == list(range(first_offset, first_offset + len(records)))
    for one, record in zip(consumed, records, strict=True):
        assert (one.key, one.value, one.headers) == (record.key, record.value, record.headers)


def assert_refused(code: int, action: Callable[[], object]) -> None:
    rejections: list[Rejected] = []
    try:
        action()
    except Rejected as rejection:
        rejections.append(rejection)
    assert [rejection.code for rejection in rejections] == [code], rejections


def value_filling_a_batch_of(batch_bytes: int) -> bytes:
    """A value that makes a batch with one record, without key and headers, exactly this long."""
    for length_bytes in (1, 2, 3, 4):
        # The record's own length stands before it, the value's length inside: both are variable-length integers.
        size = batch_bytes - BATCH_HEADER_BYTES - 5 - 2 * length_bytes
        if varint_bytes(size) == varint_bytes(size + 5 + varint_bytes(size)) == length_bytes:
            return b"v" * size
    raise AssertionError(f"no value fills a batch of {batch_bytes} bytes")


def varint_bytes(number: int) -> int:
    return max(1, -(-(number << 1).bit_length() // 7))


# Produce and consume


def produces_with_codec(codec: Compression, idempotent: bool, bench: Workbench) -> None:
    topic = bench.new_topic()
    records = [Record(COMPRESSIBLE + b"%d" % number, key=b"k%d" % number) for number in range(100)]
    offsets = bench.client.produce(topic, records, ProducerOptions(compression=codec, idempotent=idempotent))
    assert offsets in (list(range(100)), [None] * 100)
    assert_same(bench.client.consume(topic, 0, 0, 100), records)
    assert bench.codecs_on_disk(topic) <= {codec}


for codec_name in CODECS:
    add(f"produce-{codec_name}", (), partial(produces_with_codec, codec_name, False))
    add(f"produce-{codec_name}-idempotent", (), partial(produces_with_codec, codec_name, True))


def consumes_codec_of_another_client(codec: Compression, bench: Workbench) -> None:
    topic = bench.new_topic()
    records = [Record(COMPRESSIBLE + b"%d" % number) for number in range(100)]
    bench.helper.produce(topic, records, ProducerOptions(compression=codec))
    assert_same(bench.client.consume(topic, 0, 0, 100), records)


for codec_name in CODECS:
    add(f"consume-{codec_name}", (), partial(consumes_codec_of_another_client, codec_name))


def produces_with_acks(acks: Acks, bench: Workbench) -> None:
    topic = bench.new_topic()
    records = numbered(20)
    offsets = bench.client.produce(topic, records, ProducerOptions(acks=acks))
    # Without acknowledgements nobody knows the offsets, and some clients make them up.
    assert acks == "0" or offsets in (list(range(20)), [None] * 20)
    assert_same(bench.client.consume(topic, 0, 0, 20), records)


for acks_name in get_args(Acks):
    add(f"produce-acks-{acks_name}", (), partial(produces_with_acks, acks_name))


@feature("produce-reports-offsets", Capability.REPORT_OFFSETS)
def reports_offsets(bench: Workbench) -> None:
    topic = bench.new_topic()
    assert bench.client.produce(topic, numbered(10), ProducerOptions()) == list(range(10))
    assert bench.client.produce(topic, numbered(5), ProducerOptions()) == list(range(10, 15))


@feature("produce-many")
def produces_many_records_to_several_partitions(bench: Workbench) -> None:
    topic = bench.new_topic(partitions=3)
    for partition in range(3):
        records = numbered(1_500 + partition, size=200)
        bench.client.produce(topic, records, ProducerOptions(idempotent=True), partition)
    for partition in range(3):
        records = numbered(1_500 + partition, size=200)
        assert_same(bench.client.consume(topic, partition, 0, len(records)), records)


@feature("produce-creates-topic")
def producing_creates_the_topic(bench: Workbench) -> None:
    topic = bench.new_name()
    bench.client.produce(topic, numbered(3), ProducerOptions())
    bench.wait_for_topic(topic, 1)
    assert_same(bench.client.consume(topic, 0, 0, 3), numbered(3))


@feature("topic-compression-type")
def the_topic_decides_the_codec(bench: Workbench) -> None:
    topic = bench.new_topic(configs={"compression.type": "zstd"})
    records = [Record(COMPRESSIBLE + b"%d" % number) for number in range(50)]
    bench.client.produce(topic, records, ProducerOptions(compression="gzip"))
    assert_same(bench.client.consume(topic, 0, 0, 50), records)
    assert bench.codecs_on_disk(topic) <= {"zstd"}


@feature("consume-from-offset")
def consumes_from_inside_a_batch(bench: Workbench) -> None:
    topic = bench.new_topic()
    records = numbered(50)
    bench.client.produce(topic, records, ProducerOptions(compression="gzip"))
    for offset in (0, 1, 17, 49):
        assert_same(bench.client.consume(topic, 0, offset, 50 - offset), records[offset:], offset)


@feature("consume-waits")
def consumer_gets_records_as_they_come(bench: Workbench) -> None:
    topic = bench.new_topic()
    taken: list[Consumed] = []
    records = numbered(10)
    reader = threading.Thread(target=lambda: taken.extend(bench.client.consume(topic, 0, 0, 10)))
    reader.start()
    for record in records:
        bench.helper.produce(topic, [record], ProducerOptions(acks="1"))
        reader.join(0.03)
    reader.join()
    assert_same(taken, records)


def consumes_with_isolation(isolation: Isolation, bench: Workbench) -> None:
    topic = bench.new_topic()
    records = numbered(30)
    bench.client.produce(topic, records, ProducerOptions())
    assert_same(bench.client.consume(topic, 0, 0, 30, isolation), records)


for isolation_name in get_args(Isolation):
    add(
        f"consume-{isolation_name.replace('_', '-')}",
        (),
        partial(consumes_with_isolation, isolation_name),
    )


@feature("consume-large-fetch")
def consumes_more_than_one_fetch_holds(bench: Workbench) -> None:
    topic = bench.new_topic()
    records = [Record(bytes([65 + number]) * 400_000) for number in range(12)]
    for record in records:
        bench.helper.produce(topic, [record], ProducerOptions())
    assert_same(bench.client.consume(topic, 0, 0, 12), records)


# Records of every shape


@feature("record-sizes")
def takes_records_of_all_sizes(bench: Workbench) -> None:
    topic = bench.new_topic()
    sizes = (0, 1, 63, 64, 127, 128, 8_191, 8_192, 16_384, 65_536, 300_000)
    records = [Record(b"s" * size, key=b"k") for size in sizes]
    bench.client.produce(topic, records, ProducerOptions())
    assert_same(bench.client.consume(topic, 0, 0, len(records)), records)


def takes_the_largest_record(max_message_bytes: int, bench: Workbench) -> None:
    topic = bench.new_topic(configs={"max.message.bytes": str(max_message_bytes)})
    largest = Record(value_filling_a_batch_of(max_message_bytes))
    bench.client.produce(topic, [largest], ProducerOptions())
    assert_same(bench.client.consume(topic, 0, 0, 1), [largest])
    too_large = Record(value_filling_a_batch_of(max_message_bytes + 1))
    assert_refused(MESSAGE_TOO_LARGE, lambda: bench.client.produce(topic, [too_large], ProducerOptions()))
    assert bench.helper.list_offset(topic, 0, "latest") == 1


add("record-largest", (), partial(takes_the_largest_record, DEFAULT_MAX_MESSAGE_BYTES))
add("record-largest-5-mb", (), partial(takes_the_largest_record, 5_000_000))
add("record-largest-1-kb", (), partial(takes_the_largest_record, 1_000))


@feature("record-headers")
def keeps_headers(bench: Workbench) -> None:
    topic = bench.new_topic()
    records = [
        Record(b"one", headers=(("name", b"value"),)),
        Record(b"order and repetition", headers=(("b", b"1"), ("a", b"2"), ("b", b"3"))),
        Record(b"empty", key=b"k", headers=(("empty", b""),)),
        Record(b"none"),
    ]
    bench.client.produce(topic, records, ProducerOptions())
    assert_same(bench.client.consume(topic, 0, 0, len(records)), records)


@feature("record-null-header", Capability.NULL_HEADER_VALUES)
def keeps_null_header_values(bench: Workbench) -> None:
    topic = bench.new_topic()
    records = [Record(b"v", headers=(("null", None), ("not", b"")))]
    bench.client.produce(topic, records, ProducerOptions())
    assert_same(bench.client.consume(topic, 0, 0, 1), records)


@feature("record-null-key")
def keeps_null_and_empty_keys_apart(bench: Workbench) -> None:
    topic = bench.new_topic()
    records = [Record(b"a"), Record(b"b", key=b""), Record(b"c", key=b"k"), Record(b"d")]
    bench.client.produce(topic, records, ProducerOptions())
    assert_same(bench.client.consume(topic, 0, 0, len(records)), records)


@feature("record-null-value")
def keeps_null_and_empty_values_apart(bench: Workbench) -> None:
    topic = bench.new_topic()
    records = [Record(None, key=b"gone"), Record(None, key=b"gone too")]
    bench.client.produce(topic, records, ProducerOptions())
    bench.client.produce(topic, [Record(b"", key=b"empty")], ProducerOptions())
    assert_same(bench.client.consume(topic, 0, 0, 3), [*records, Record(b"", key=b"empty")])


@feature("record-null-key-and-value", Capability.NULL_KEY_AND_VALUE)
def keeps_records_of_nothing(bench: Workbench) -> None:
    topic = bench.new_topic()
    bench.client.produce(topic, [Record(None)], ProducerOptions())
    assert_same(bench.client.consume(topic, 0, 0, 1), [Record(None)])


# Timestamps


@feature("timestamp-now")
def stamps_records_with_the_time_of_sending(bench: Workbench) -> None:
    topic = bench.new_topic()
    before_ms = now_ms()
    bench.client.produce(topic, numbered(2), ProducerOptions())
    after_ms = now_ms()
    for one in bench.client.consume(topic, 0, 0, 2):
        assert before_ms <= one.timestamp_ms <= after_ms


@feature("timestamp-given", Capability.SET_TIMESTAMPS)
def keeps_given_timestamps(bench: Workbench) -> None:
    topic = bench.new_topic()
    timestamps = [1_000_000_000_000, 999_999_999_000, 1_500_000_000_123]
    bench.client.produce(topic, [Record(b"v", timestamp_ms=one) for one in timestamps], ProducerOptions())
    assert [one.timestamp_ms for one in bench.client.consume(topic, 0, 0, 3)] == timestamps


@feature("timestamp-future-refused", Capability.SET_TIMESTAMPS)
def refuses_timestamps_too_far_in_the_future(bench: Workbench) -> None:
    topic = bench.new_topic()
    tomorrow = Record(b"v", timestamp_ms=now_ms() + 86_400_000)
    assert_refused(INVALID_TIMESTAMP, lambda: bench.client.produce(topic, [tomorrow], ProducerOptions()))
    assert bench.helper.list_offset(topic, 0, "latest") == 0


def broker_stamps_records(codec: Compression, bench: Workbench) -> None:
    topic = bench.new_topic(configs={"message.timestamp.type": "LogAppendTime"})
    before_ms = now_ms()
    bench.helper.produce(topic, [Record(b"v", timestamp_ms=1_000)], ProducerOptions(compression=codec))
    bench.client.produce(topic, [Record(b"v"), Record(b"w")], ProducerOptions(compression=codec))
    after_ms = now_ms()
    for one in bench.client.consume(topic, 0, 0, 3):
        assert before_ms <= one.timestamp_ms <= after_ms


add("timestamp-log-append", (), partial(broker_stamps_records, "none"))
add("timestamp-log-append-gzip", (), partial(broker_stamps_records, "gzip"))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# Offsets


@feature("list-offsets-earliest")
def lists_the_earliest_offset(bench: Workbench) -> None:
    topic = bench.new_topic()
    assert bench.client.list_offset(topic, 0, "earliest") == 0
    bench.helper.produce(topic, numbered(10), ProducerOptions())
    assert bench.client.list_offset(topic, 0, "earliest") == 0
    bench.helper.delete_records(topic, 0, 4)
    assert bench.client.list_offset(topic, 0, "earliest") == 4


@feature("list-offsets-latest")
def lists_the_latest_offset(bench: Workbench) -> None:
    topic = bench.new_topic()
    assert bench.client.list_offset(topic, 0, "latest") == 0
    bench.helper.produce(topic, numbered(10), ProducerOptions())
    assert bench.client.list_offset(topic, 0, "latest") == 10


@feature("list-offsets-timestamp")
def lists_offsets_by_timestamp(bench: Workbench) -> None:
    topic = bench.new_topic()
    start_ms = 1_600_000_000_000
    for number in range(5):
        record = Record(b"v", timestamp_ms=start_ms + 10 * number)
        bench.helper.produce(topic, [record, record], ProducerOptions())
    asked = (0, start_ms, start_ms + 1, start_ms + 10, start_ms + 35, start_ms + 41)
    assert [bench.client.list_offset(topic, 0, timestamp) for timestamp in asked] == [0, 0, 2, 2, 8, None]


@feature("list-offsets-max-timestamp", Capability.MAX_TIMESTAMP)
def lists_the_offset_of_the_largest_timestamp(bench: Workbench) -> None:
    topic = bench.new_topic()
    timestamps = (1_600_000_000_000, 1_600_000_000_900, 1_600_000_000_500)
    bench.helper.produce(topic, [Record(b"v", timestamp_ms=one) for one in timestamps], ProducerOptions())
    assert bench.client.list_offset(topic, 0, "max-timestamp") == 1


# Administration


@feature("topics-list")
def lists_topics(bench: Workbench) -> None:
    topics = {bench.new_topic(), bench.new_topic()}
    assert topics <= bench.client.list_topics()


@feature("topics-describe")
def describes_a_topic(bench: Workbench) -> None:
    topic = bench.new_topic(partitions=3)
    described = bench.client.describe_topic(topic)
    assert set(described) == {0, 1, 2}
    for partition in described.values():
        assert partition.leader == partition.replicas[0]
        assert len(partition.replicas) == bench.broker.broker_count
        assert sorted(partition.in_sync_replicas) == sorted(partition.replicas)


@feature("topics-describe-pages", Capability.DESCRIBE_TOPIC_PARTITIONS)
def describes_a_topic_page_by_page(bench: Workbench) -> None:
    topic = bench.new_topic(partitions=5)
    assert bench.client.page_of_topic_partitions(topic, 3) == ([0, 1, 2], 3)
    assert bench.client.page_of_topic_partitions(topic, 10) == ([0, 1, 2, 3, 4], None)


@feature("topics-create", Capability.ADMINISTER_TOPICS)
def creates_a_topic(bench: Workbench) -> None:
    topic = bench.new_name()
    bench.client.create_topic(topic, 4, {"retention.ms": "123456"})
    bench.wait_for_topic(topic, 4)
    assert bench.helper.describe_configs("topic", topic)["retention.ms"] == "123456"
    bench.client.produce(topic, numbered(2), ProducerOptions(), partition=3)
    assert_same(bench.client.consume(topic, 3, 0, 2), numbered(2))


@feature("topics-create-validates-only", Capability.ADMINISTER_TOPICS)
def can_ask_whether_a_topic_could_be_created(bench: Workbench) -> None:
    topic = bench.new_name()
    bench.client.create_topic(topic, 1, {}, validate_only=True)
    assert topic not in bench.helper.list_topics()


@feature("topics-create-refused", Capability.ADMINISTER_TOPICS)
def bad_topics_are_refused(bench: Workbench) -> None:
    there = bench.new_topic()
    assert_refused(TOPIC_ALREADY_EXISTS, lambda: bench.client.create_topic(there, 1, {}))
    assert_refused(INVALID_TOPIC, lambda: bench.client.create_topic("not/allowed", 1, {}))
    bad_value = {"retention.ms": "soon"}
    assert_refused(INVALID_CONFIG, lambda: bench.client.create_topic(bench.new_name(), 1, bad_value))
    bad_name = {"retention.parsecs": "12"}
    assert_refused(INVALID_CONFIG, lambda: bench.client.create_topic(bench.new_name(), 1, bad_name))


@feature("topics-delete", Capability.ADMINISTER_TOPICS)
def deletes_a_topic(bench: Workbench) -> None:
    topic = bench.new_topic()
    bench.client.produce(topic, numbered(5), ProducerOptions())
    bench.client.delete_topic(topic)
    bench.wait_for_end_of_topic(topic)
    assert_refused(UNKNOWN_TOPIC_OR_PARTITION, lambda: bench.client.delete_topic(topic))


@feature("topics-recreate", Capability.ADMINISTER_TOPICS)
def a_topic_created_again_is_empty(bench: Workbench) -> None:
    topic = bench.new_topic()
    bench.helper.produce(topic, numbered(5), ProducerOptions())
    bench.client.delete_topic(topic)
    bench.wait_for_end_of_topic(topic)
    bench.client.create_topic(topic, 2, {})
    bench.wait_for_topic(topic, 2)
    assert bench.client.list_offset(topic, 0, "latest") == 0


@feature("partitions-create", Capability.CREATE_PARTITIONS)
def adds_partitions(bench: Workbench) -> None:
    topic = bench.new_topic(partitions=2)
    bench.client.create_partitions(topic, 5)
    bench.wait_for_topic(topic, 5)
    bench.helper.produce(topic, numbered(3), ProducerOptions(), partition=4)
    assert_same(bench.client.consume(topic, 4, 0, 3), numbered(3))
    assert_refused(INVALID_PARTITIONS, lambda: bench.client.create_partitions(topic, 3))


@feature("configs-describe-topic", Capability.DESCRIBE_CONFIGS)
def describes_the_settings_of_a_topic(bench: Workbench) -> None:
    topic = bench.new_topic(configs={"cleanup.policy": "compact", "segment.bytes": "2000000"})
    configs = bench.client.describe_configs("topic", topic)
    assert configs["cleanup.policy"] == "compact"
    assert configs["segment.bytes"] == "2000000"
    assert configs["max.message.bytes"] == str(DEFAULT_MAX_MESSAGE_BYTES)
    assert configs["min.insync.replicas"] == "1"


@feature("configs-describe-broker", Capability.DESCRIBE_CONFIGS, Capability.DESCRIBE_CLUSTER)
def describes_the_settings_of_a_broker(bench: Workbench) -> None:
    for broker, address in bench.client.describe_cluster().brokers.items():
        configs = bench.client.describe_configs("broker", str(broker))
        assert address in (configs["listeners"] or "")
        assert configs["num.partitions"] == "1"
        assert configs["log.retention.hours"] == "168"


@feature("configs-alter", Capability.INCREMENTAL_CONFIGS)
def alters_one_setting_and_leaves_the_others(bench: Workbench) -> None:
    topic = bench.new_topic(configs={"retention.ms": "1000000"})
    bench.client.alter_configs(topic, {"segment.bytes": "3000000", "cleanup.policy": "compact"})
    wait_for_configs(bench, topic, {"retention.ms": "1000000", "segment.bytes": "3000000", "cleanup.policy": "compact"})
    bench.client.alter_configs(topic, {"cleanup.policy": None})
    wait_for_configs(bench, topic, {"retention.ms": "1000000", "segment.bytes": "3000000", "cleanup.policy": "delete"})
    assert_refused(INVALID_CONFIG, lambda: bench.client.alter_configs(topic, {"segment.bytes": "many"}))


@feature("configs-replace", Capability.REPLACE_CONFIGS)
def replaces_all_settings(bench: Workbench) -> None:
    topic = bench.new_topic(configs={"retention.ms": "1000000"})
    bench.client.replace_configs(topic, {"segment.bytes": "3000000"})
    wait_for_configs(bench, topic, {"retention.ms": "604800000", "segment.bytes": "3000000"})
    assert_refused(INVALID_CONFIG, lambda: bench.client.replace_configs(topic, {"segment.bytes": "many"}))


def wait_for_configs(bench: Workbench, topic: str, expected: Mapping[str, str]) -> None:
    def are_there() -> bool:
        known = configs_by_broker(bench.broker.bootstrap, topic)
        return all(expected.items() <= configs.items() for configs in known)

    wait_until(are_there, f"the settings of {topic} become {expected}", 10)


@feature("configs-act-at-once", Capability.INCREMENTAL_CONFIGS)
def altered_settings_act_at_once(bench: Workbench) -> None:
    topic = bench.new_topic()
    record = Record(b"v" * 5_000)
    bench.client.produce(topic, [record], ProducerOptions())
    bench.client.alter_configs(topic, {"max.message.bytes": "1000"})
    wait_for_configs(bench, topic, {"max.message.bytes": "1000"})
    assert_refused(MESSAGE_TOO_LARGE, lambda: bench.client.produce(topic, [record], ProducerOptions()))
    bench.client.alter_configs(topic, {"max.message.bytes": None})
    wait_for_configs(bench, topic, {"max.message.bytes": str(DEFAULT_MAX_MESSAGE_BYTES)})
    bench.client.produce(topic, [record], ProducerOptions())
    assert_same(bench.client.consume(topic, 0, 0, 2), [record, record])


@feature("records-delete", Capability.DELETE_RECORDS)
def deletes_records(bench: Workbench) -> None:
    topic = bench.new_topic()
    records = numbered(20)
    bench.client.produce(topic, records, ProducerOptions())
    assert bench.client.delete_records(topic, 0, 12) == 12
    assert bench.helper.list_offset(topic, 0, "earliest") == 12
    assert_same(bench.client.consume(topic, 0, 0, 8), records[12:], 12)
    assert_refused(OFFSET_OUT_OF_RANGE, lambda: bench.client.delete_records(topic, 0, 21))


@feature("cluster-describe", Capability.DESCRIBE_CLUSTER)
def describes_the_cluster(bench: Workbench) -> None:
    cluster = bench.client.describe_cluster()
    assert cluster.cluster_id
    assert cluster.controller in cluster.brokers
    assert len(cluster.brokers) == bench.broker.broker_count
    assert set(bench.client.bootstrap.split(",")) == set(cluster.brokers.values())


@feature("log-dirs-describe", Capability.DESCRIBE_LOG_DIRS)
def describes_log_dirs(bench: Workbench) -> None:
    topic = bench.new_topic(partitions=2)
    bench.helper.produce(topic, [Record(b"v" * 10_000)], ProducerOptions(), partition=1)
    sizes = bench.client.log_dir_sizes()
    assert sizes[topic, 0] == 0
    assert 10_000 < sizes[topic, 1] < 10_200


@feature("producers-describe", Capability.DESCRIBE_PRODUCERS)
def describes_producers(bench: Workbench) -> None:
    topic = bench.new_topic()
    assert bench.client.producer_ids(topic, 0) == {}
    bench.helper.produce(topic, numbered(8), ProducerOptions(idempotent=True))
    assert list(bench.client.producer_ids(topic, 0).values()) == [7]


# Brokers that die


@feature("produce-through-leader-kill", needs_cluster=True)
def writes_on_while_the_leader_is_killed(bench: Workbench) -> None:
    topic = bench.new_topic(configs={"min.insync.replicas": "2"})
    sent: list[Record] = []

    def write() -> None:
        records = [Record(b"%d" % number) for number in range(len(sent), len(sent) + 10)]
        bench.client.produce(topic, records, ProducerOptions(idempotent=True))
        sent.extend(records)

    for _ in range(5):
        write()
    with ThreadPoolExecutor(1) as others:
        killing = others.submit(bench.kill_leader_and_start_it_again, topic)
        while not killing.done():
            write()
        killing.result()
    write()
    assert_same(bench.helper.consume(topic, 0, 0, len(sent)), sent)
    assert bench.helper.list_offset(topic, 0, "latest") == len(sent)
    bench.wait_for_replicas(topic)


@feature("consume-through-leader-kill", needs_cluster=True)
def reads_on_while_the_leader_is_killed(bench: Workbench) -> None:
    topic = bench.new_topic(configs={"min.insync.replicas": "2"})
    records = [Record(b"%d" % number) for number in range(100)]
    with ThreadPoolExecutor(2) as others:
        reading = others.submit(bench.client.consume, topic, 0, 0, len(records))
        bench.helper.produce(topic, records[:40], ProducerOptions(idempotent=True))
        killing = others.submit(bench.kill_leader_and_start_it_again, topic)
        for record in records[40:]:
            bench.helper.produce(topic, [record], ProducerOptions(idempotent=True))
        killing.result()
        assert_same(reading.result(), records)
    bench.wait_for_replicas(topic)


# The rest, by subject: the modules add to FEATURES when they are imported.
from tests.clients import (  # noqa: E402
    consumer_protocol_features,  # noqa: F401
    group_features,  # noqa: F401
    rack_features,  # noqa: F401
    transaction_features,  # noqa: F401
)
