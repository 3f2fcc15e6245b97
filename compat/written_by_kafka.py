"""Tidelog serves a log dir that Apache Kafka wrote, after a clean stop and after a kill, record for record."""

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from tests.clients.broker import TidelogProcess
from tests.clients.driver import ClientDriver, Isolation, ProducerOptions, Record
from tests.clients.features import CODECS
from tests.clients.registry import CLIENTS
from tools.apache_kafka import ApacheKafka

TIMEOUT_S = 60.0
PARTITIONS = 2
SMALL_SEGMENTS = {"segment.bytes": "1048576", "index.interval.bytes": "4096"}
FEW_INTERNAL_PARTITIONS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
TRANSACTIONAL = "transactions"
COMPACTED = "compacted"
ISOLATIONS: Sequence[Isolation] = ("read_uncommitted", "read_committed")

Fields = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
Content = dict[tuple[str, int, str], list[Fields]]
"""By topic, partition and isolation level."""


def topics() -> dict[str, dict[str, str]]:
    plain = {f"codec-{codec}": SMALL_SEGMENTS for codec in CODECS}
    return plain | {TRANSACTIONAL: SMALL_SEGMENTS, COMPACTED: SMALL_SEGMENTS | {"cleanup.policy": "compact"}}


def fill(bootstrap: str) -> None:
    """Writes with every codec, in transactions, and into a compacted topic, several segments each."""
    driver = CLIENTS["confluent-kafka"].connect(bootstrap)
    try:
        for topic, configs in topics().items():
            driver.create_topic(topic, PARTITIONS, configs)
        for codec in CODECS:
            for partition in range(PARTITIONS):
                options = ProducerOptions(compression=codec, idempotent=partition == 1)
                fill_partition(driver, f"codec-{codec}", partition, options)
        fill_partition(driver, COMPACTED, 0, ProducerOptions(compression="zstd"))
    finally:
        driver.close()
    fill_transactions(bootstrap)


def fill_partition(driver: ClientDriver, topic: str, partition: int, options: ProducerOptions) -> None:
    for round_number in range(12):
        filler = bytes((7 * number + round_number) % 251 for number in range(2_000))
        records = [
            Record(
                None if number % 50 == 7 else filler[number:] + b"%d" % number,
                key=b"key %d" % (number % 90),
                headers=(("round", b"%d" % round_number), ("null", None)) if number % 10 == 0 else (),
            )
            for number in range(120)
        ]
        driver.produce(topic, records, options, partition)


def fill_transactions(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "compat", "linger.ms": 5})
    producer.init_transactions(TIMEOUT_S)
    for number in range(12):
        producer.begin_transaction()
        for record in range(300):
            producer.produce(TRANSACTIONAL, b"%d:%d " % (number, record) * 100, partition=record % PARTITIONS)
        if number % 3 == 1:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)


def read_everything(bootstrap: str) -> Content:
    places = [(topic, partition) for topic in topics() for partition in range(PARTITIONS)]
    return {
        (topic, partition, isolation): records
        for isolation in ISOLATIONS
        for (topic, partition), records in read_partitions(bootstrap, places, isolation).items()
    }


def read_partitions(
    bootstrap: str, places: Sequence[tuple[str, int]], isolation: Isolation
) -> dict[tuple[str, int], list[Fields]]:
    """All records of these partitions, up to the ends that the broker names."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in places])
    found: dict[tuple[str, int], list[Fields]] = {place: [] for place in places}
    unfinished = set(places)
    deadline = time.monotonic() + TIMEOUT_S
    while unfinished:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the ends of {sorted(unfinished)} were not reached")
        for message in consumer.consume(500, timeout=0.1):
            place = (message.topic() or "", message.partition() or 0)
            if is_end(message):
                unfinished.discard(place)
            elif message.error() is None:
                found[place].append(fields(message))
    consumer.close()
    return found


def is_end(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def fields(message: Message) -> Fields:
    headers: Any = message.headers() or ()
    return message.offset() or 0, message.timestamp()[1], message.key(), message.value(), tuple(headers)


def differences(before: Mapping[Any, list[Fields]], after: Mapping[Any, list[Fields]]) -> list[str]:
    found = []
    for place, records in before.items():
        if records != after[place]:
            counts = f"{len(records)} records written, {len(after[place])} read"
            first = next((pair for pair in zip(records, after[place], strict=False) if pair[0] != pair[1]), None)
            found.append(f"{place}: {counts}" + (f", first difference at offset {first[0][0]}" if first else ""))
    return found


def check(version: str, end: Callable[[ApacheKafka], None]) -> list[str]:
    """Kafka writes, ends, and Tidelog serves the same directory: what differs."""
    with tempfile.TemporaryDirectory(prefix="compat-kafka-") as scratch:
        kafka = ApacheKafka(version, 0, Path(scratch) / "kafka", heap="512m", settings=FEW_INTERNAL_PARTITIONS)
        kafka.start()
        try:
            fill(kafka.bootstrap)
            written = read_everything(kafka.bootstrap)
            end(kafka)
        finally:
            kafka.kill()
        assert sum(map(len, written.values())) > 0
        tidelog = Path(scratch) / "tidelog"
        copy_log_dir(kafka.log_dir, tidelog / "data")
        return differences(written, read_with_tidelog(tidelog))


def copy_log_dir(source: Path, target: Path, names: Sequence[str] = ()) -> None:
    """The topics (all of them, or those named) with the files beside them; not who Kafka was, nor its metadata log."""
    ours = tuple(names or topics())
    target.mkdir(parents=True)
    for entry in source.iterdir():
        if entry.is_dir() and entry.name.rpartition("-")[0] in ours:
            shutil.copytree(entry, target / entry.name)
        elif entry.is_file() and entry.name not in ("meta.properties", ".lock", "bootstrap.checkpoint"):
            shutil.copy(entry, target)


def read_with_tidelog(directory: Path) -> Content:
    broker = TidelogProcess(directory)
    broker.start()
    try:
        found = read_everything(broker.bootstrap)
        broker.stop()
    finally:
        broker.kill()
    return found


def stop(kafka: ApacheKafka) -> None:
    kafka.stop()


def kill(kafka: ApacheKafka) -> None:
    kafka.kill()
