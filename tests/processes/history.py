"""History of what was written, acknowledged and read while brokers failed, and its comparison with the final logs."""

import time
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from threading import Event, Lock, Thread
from typing import Any, NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

PACE_S = 0.005
TIMEOUT_S = 120.0

Logs = dict[int, dict[int, bytes]]
"""By partition and offset."""


class Acknowledgement(NamedTuple):
    value: bytes
    offset: int | None
    """None where librdkafka infers from the acknowledgement of a later batch that this one was written as well."""
    at: float


class IdempotentWriter:
    """Numbered records to each partition in turn, with acks=all, at an even pace, until it is closed."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        settings: dict[str, Any] | None = None,
        *,
        pace_s: float = PACE_S,
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._pace_s = pace_s
        self._lock = Lock()
        self._end = Event()
        self.sent: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
        self.acknowledged: dict[int, list[Acknowledgement]] = {partition: [] for partition in range(partitions)}
        self.failed: list[tuple[bytes, str]] = []
        self.errors: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.max.ms": 200,
                "delivery.timeout.ms": int(TIMEOUT_S * 1000),
                "error_cb": lambda error: self.errors.append(str(error)),
                "log_level": 0,
            }
            | (settings or {})
        )
        self._thread = Thread(target=self._write, name="writer")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _write(self) -> None:
        number = 0
        while not self._end.is_set():
            for partition in range(self._partitions):
                value = b"%d:%d" % (partition, number)
                self.sent[partition].append(value)
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._on_delivery)
            number += 1
            self._producer.poll(0)
            time.sleep(self._pace_s)
        self._producer.flush(TIMEOUT_S)

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        with self._lock:
            if error is not None:
                self.failed.append((message.value(), str(error)))
                return
            acknowledged = Acknowledgement(message.value(), message.offset(), time.monotonic())
            self.acknowledged[message.partition()].append(acknowledged)

    def count(self, partition: int) -> int:
        with self._lock:
            return len(self.acknowledged[partition])

    def longest_silence_s(self) -> float:
        """Between two acknowledgements of one partition."""
        times = [[one.at for one in acknowledged] for acknowledged in self.acknowledged.values()]
        return max(after - before for each in times for before, after in pairwise(each))

    def wait_for_more(self, count: int = 30, partitions: Iterable[int] | None = None) -> None:
        """Until each of the partitions has had so many more acknowledgements."""
        asked = range(self._partitions) if partitions is None else partitions
        wanted = {partition: self.count(partition) + count for partition in asked}
        deadline = time.monotonic() + TIMEOUT_S
        while any(self.count(partition) < least for partition, least in wanted.items()):
            assert time.monotonic() < deadline, f"no progress to {wanted}: {self.errors[-5:]} {self.failed[-5:]}"
            time.sleep(0.01)


class FollowingReader:
    """A consumer that reads along from the beginning; what it saw may never be anything else later (I5)."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(_consumer_settings(bootstrap))
        self._consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
        self._end = Event()
        self.seen: Logs = defaultdict(dict)
        self.contradictions: list[str] = []
        self.errors: list[str] = []
        """That the application hears of."""
        self._thread = Thread(target=self._read, name="reader")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._end.is_set():
            for partition, offset, value in _consume(self._consumer, 500, self.errors):
                self._note(partition, offset, value)

    def _note(self, partition: int, offset: int, value: bytes) -> None:
        before = self.seen[partition].setdefault(offset, value)
        if before != value:
            self.contradictions.append(f"{partition}@{offset}: {before!r}, then {value!r}")

    def count(self, partition: int) -> int:
        return len(self.seen[partition])


def _consumer_settings(bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 50,
        "retry.backoff.ms": 50,
        "reconnect.backoff.max.ms": 200,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "log_level": 0,
    }


def _consume(consumer: Consumer, most: int, errors: list[str] | None = None) -> list[tuple[int, int, bytes]]:
    """Partition, offset and value of what there is; other errors than the end of a partition are added to `errors`."""
    messages: list[Any] = consumer.consume(most, 0.1)
    if errors is not None:
        found = [one.error() for one in messages if one.error() is not None]
        errors += [str(error) for error in found if error.code() != KafkaError._PARTITION_EOF]
    return [(one.partition(), one.offset(), one.value() or b"") for one in messages if one.error() is None]


def read_all(bootstrap: str, topic: str, partitions: int) -> Logs:
    """Every partition from its beginning to its end of now."""
    return {
        partition: read_from_beginning(bootstrap, topic, partition, _end_offset(bootstrap, topic, partition))
        for partition in range(partitions)
    }


def _end_offset(bootstrap: str, topic: str, partition: int) -> int:
    """librdkafka answers such questions out of what it knew of leaders at first: ask with a new client then."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        consumer = Consumer(_consumer_settings(bootstrap))
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=2, cached=False)
            return int(end)
        except KafkaException:
            assert time.monotonic() < deadline, f"{topic}-{partition} reports no end"
            time.sleep(0.1)
        finally:
            consumer.close()


def read_from_beginning(bootstrap: str, topic: str, partition: int, count: int) -> dict[int, bytes]:
    consumer = Consumer(_consumer_settings(bootstrap))
    try:
        return _read_partition(consumer, topic, partition, count)
    finally:
        consumer.close()


def _read_partition(consumer: Consumer, topic: str, partition: int, end: int) -> dict[int, bytes]:
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: dict[int, bytes] = {}
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < end:
        assert time.monotonic() < deadline, f"{topic}-{partition}: {len(found)} of {end} records can be read"
        found |= {offset: value for _, offset, value in _consume(consumer, min(1000, end - len(found)))}
    return found


def check(writer: IdempotentWriter, logs: Logs, *readers: FollowingReader) -> None:
    """Everything sent is there once and in order, where it was acknowledged to be; readers saw nothing else."""
    assert writer.failed == []
    for partition, log in logs.items():
        stored = [log[offset] for offset in sorted(log)]
        assert stored == writer.sent[partition], f"partition {partition}: {_difference(stored, writer.sent[partition])}"
        acknowledged = writer.acknowledged[partition]
        assert [one.value for one in acknowledged] == stored, f"partition {partition} was acknowledged out of order"
        for one in acknowledged:
            assert one.offset is None or log[one.offset] == one.value, f"partition {partition}: {one}"
    for reader in readers:
        assert reader.contradictions == []
        for partition, seen in reader.seen.items():
            assert seen.items() <= logs[partition].items(), f"partition {partition}: a reader saw what is not there"


def _difference(stored: list[bytes], sent: list[bytes]) -> str:
    lost = set(sent) - set(stored)
    first = next((at for at, (one, other) in enumerate(zip(stored, sent, strict=False)) if one != other), None)
    around = stored[max((first or 0) - 5, 0) : (first or 0) + 10]
    return (
        f"{len(stored)} stored, {len(sent)} sent, {len(set(stored))} different, lost {sorted(lost)[:5]},"
        f" first {first}, around it {around}"
    )
