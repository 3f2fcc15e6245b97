"""The topics on which `format("tidelog")` and Spark's own `format("kafka")` must agree: every kind of record."""

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from compat.written_by_kafka import TRANSACTIONAL, fill_transactions
from tests.clients.features import CODECS
from tests.spark_session import Message, produce

NOON_MS = 1_700_000_000_000
STEP_MS = 1_000

CODEC_TOPICS = tuple(f"codec-{codec}" for codec in CODECS)
TIMES = "times"
"""Three partitions, a record each second; the last partition ends early."""
TIMES_COUNTS = (300, 200, 100)
APPEND_TIME = "append-time"
COMPACTED = "compacted"
EMPTY = "empty"
SHORTENED = "shortened"
"""What was written first is deleted."""
SHORTENED_AT = 60
LARGE = "large"

CLEANING = {"log.cleaner.backoff.ms": "100"}
"""Settings of a broker that compacts at once."""
SMALL_SEGMENTS = {"segment.bytes": "1048576"}
KEPT_FOREVER = {"retention.ms": "-1"}
"""The records have times long ago."""
CONFIGS: Mapping[str, Mapping[str, str]] = {
    APPEND_TIME: {"message.timestamp.type": "LogAppendTime"},
    COMPACTED: {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", **SMALL_SEGMENTS},
    LARGE: {"max.message.bytes": "2000000"},
    TRANSACTIONAL: SMALL_SEGMENTS,
}
PARTITIONS = {TIMES: len(TIMES_COUNTS), COMPACTED: 1, LARGE: 1}
DEFAULT_PARTITIONS = 2

TIMEOUT_S = 30.0


def create(bootstrap: str, names: Iterable[str], partitions: int | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [
        NewTopic(
            name,
            partitions or PARTITIONS.get(name, DEFAULT_PARTITIONS),
            1,
            config={**KEPT_FOREVER, **CONFIGS.get(name, {})},
        )
        for name in names
    ]
    for future in admin.create_topics(wanted).values():
        future.result(TIMEOUT_S)


def fill(bootstrap: str) -> None:
    """All of them but the one with transactions."""
    create(bootstrap, (*CODEC_TOPICS, TIMES, APPEND_TIME, COMPACTED, EMPTY, SHORTENED, LARGE))
    for codec, topic in zip(CODECS, CODEC_TOPICS, strict=True):
        produce(bootstrap, topic, of_every_kind(600), codec)
    for partition, count in enumerate(TIMES_COUNTS):
        seconds = range(count)
        produce(bootstrap, TIMES, [Message(b"%d" % n, None, partition, NOON_MS + STEP_MS * n) for n in seconds])
    produce(bootstrap, APPEND_TIME, of_every_kind(200), "zstd")
    produce(bootstrap, SHORTENED, [Message(b"%d" % n, b"%d" % n, n % 2) for n in range(200)])
    produce(bootstrap, LARGE, [Message(random.Random(n).randbytes(900_000)) for n in range(8)])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    shortened = [TopicPartition(SHORTENED, partition, SHORTENED_AT) for partition in range(DEFAULT_PARTITIONS)]
    for future in admin.delete_records(shortened).values():
        future.result(TIMEOUT_S)
    fill_compacted(bootstrap)


def of_every_kind(count: int) -> list[Message]:
    """Keys, values and headers that are there, null, empty, repeated, or not ASCII."""
    return [
        Message(
            _one_of(number, 11, {3: None, 5: b""}, b"value %d " % number * (number % 40)),
            _one_of(number, 7, {2: None, 4: b""}, b"key %d" % (number % 90)),
            number % DEFAULT_PARTITIONS,
            NOON_MS + number,
            _headers(number),
        )
        for number in range(count)
    ]


def _one_of(number: int, among: int, special: Mapping[int, bytes | None], otherwise: bytes) -> bytes | None:
    return special.get(number % among, otherwise)


def _headers(number: int) -> tuple[tuple[str, bytes | None], ...]:
    match number % 5:
        case 1:
            return (("trace", b"%d" % number),)
        case 2:
            return (
                ("twice", b"1"),
                ("twice", b"2"),
                ("null", None),
                ("empty", b""),
                ("größe", b"\x00\xff"),
                ("", b"x"),
            )
        case _:
            return ()


def fill_compacted(bootstrap: str) -> None:
    """Until there are holes."""
    filler = random.Random(7)
    written = [
        Message(None if n % 100 == 9 else filler.randbytes(1_500), b"key %d" % (n % 120), 0, NOON_MS + n)
        for n in range(2_400)
    ]
    produce(bootstrap, COMPACTED, written)
    deadline = time.monotonic() + TIMEOUT_S
    while len(offsets_of(bootstrap, COMPACTED)) == len(written):
        assert time.monotonic() < deadline, "nothing was compacted"
        time.sleep(0.2)


def offsets_of(bootstrap: str, topic: str) -> list[int]:
    """Of the records of partition 0."""
    return [record.offset() or 0 for record in records_of(bootstrap, topic, (0,))]


def records_of(bootstrap: str, topic: str, partitions: Iterable[int], isolation: str = "read_uncommitted") -> list[Any]:
    """Everything in these partitions, read by librdkafka."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
    }
    consumer = Consumer(settings)
    places = [TopicPartition(topic, partition, 0) for partition in partitions]
    consumer.assign(places)
    found, unfinished = [], len(places)
    deadline = time.monotonic() + TIMEOUT_S
    while unfinished:
        assert time.monotonic() < deadline, f"the ends of {topic} were not reached"
        for message in consumer.consume(1_000, timeout=0.1):
            if message.error() is None:
                found.append(message)
            else:
                unfinished -= 1
    consumer.close()
    return found


@contextmanager
def transactions(bootstrap: str) -> Iterator[None]:
    """Fills a topic with transactions: committed, aborted, and one that is open until the block is left."""
    create(bootstrap, [TRANSACTIONAL])
    fill_transactions(bootstrap)
    patient = {"transactional.id": "open", "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **patient})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for number in range(50):
        producer.produce(TRANSACTIONAL, b"open %d" % number, partition=0)
    producer.flush(TIMEOUT_S)
    produce(bootstrap, TRANSACTIONAL, [Message(b"after %d" % n, None, n % 2) for n in range(20)])
    try:
        yield
    finally:
        producer.abort_transaction(TIMEOUT_S)
