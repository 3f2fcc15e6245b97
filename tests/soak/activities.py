"""Activities of a soak: a stream that is read, transactions, and groups and topics that come and go."""

import itertools
import time
from collections import Counter
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.soak.activity import Activity

PARTITIONS = 3
REPLICAS = 3
TIMEOUT_S = 30.0
STREAM = "soak-stream"
TRANSACTIONS = "soak-transactions"
METADATA_AGE_MS = 1000
PADDING = b"." * 80
STREAM_SETTINGS = {"min.insync.replicas": "2", "segment.bytes": "16777216", "retention.bytes": "67108864"}


class StreamWriter(Activity):
    """Numbered records to each partition in turn, with acks=all."""

    def __init__(self, bootstrap: str, records_per_s: int) -> None:
        super().__init__("stream")
        self._pace_s = 0.02
        self._at_once = max(int(records_per_s * self._pace_s / PARTITIONS), 1)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
        self._numbers = itertools.count()
        self.sent = 0
        """To each partition."""

    def step(self) -> None:
        began_s = time.monotonic()
        for number in itertools.islice(self._numbers, self._at_once):
            value = b"%d %d %s" % (number, time.monotonic_ns(), PADDING)
            for partition in range(PARTITIONS):
                self._produce(value, partition)
            self.sent = number + 1
        self._producer.poll(0)
        self.rest(self._pace_s - (time.monotonic() - began_s))

    def _produce(self, value: bytes, partition: int) -> None:
        while True:
            try:
                self._producer.produce(STREAM, value, partition=partition, on_delivery=self._on_delivery)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.done["records acknowledged"] += 1
            self.latencies.add(message.latency())
        else:
            self.note_problem(f"a record was not delivered: {error}")

    def close(self) -> None:
        left = self._producer.flush(TIMEOUT_S)
        if left:
            self.note_problem(f"{left} records were not acknowledged within {TIMEOUT_S:.0f} s")


class StreamReader(Activity):
    """A group of one that reads everything: each partition's records come once, and in their order."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("stream read")
        self._consumer = Consumer(_consumer_settings(bootstrap, "soak-stream-readers"))
        self._consumer.subscribe([STREAM])
        self.next_numbers = dict.fromkeys(range(PARTITIONS), 0)

    def step(self) -> None:
        for message in _consumed(self, self._consumer):
            number, sent_ns, _ = message.value().split(b" ", 2)
            self._check(message.partition(), int(number))
            self.latencies.add((time.monotonic_ns() - int(sent_ns)) / 1e9)
        self.done["commits"] += _commit(self, self._consumer)

    def _check(self, partition: int, number: int) -> None:
        expected = self.next_numbers[partition]
        if number != expected:
            self.note_problem(f"partition {partition}: record {number} came where {expected} was due")
        self.next_numbers[partition] = number + 1
        self.done["records read"] += 1

    def has_read(self, count: int) -> bool:
        return all(number >= count for number in self.next_numbers.values())

    def close(self) -> None:
        self._consumer.close()


class TransactionWriter(Activity):
    """Transactions of a few records, each fourth one aborted; the reader learns what is committed."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        super().__init__("transactions")
        self._bootstrap = bootstrap
        self._transactional_id = transactional_id
        self._producer: Producer | None = None
        self._numbers = itertools.count()
        self.committed: set[bytes] = set()
        self.in_doubt: set[bytes] = set()
        """Nobody said whether these were committed."""

    def step(self) -> None:
        if self._producer is None:
            self._producer = self._new_producer()
        number = next(self._numbers)
        is_aborted = number % 4 == 3
        name = b"%s %d" % (self._transactional_id.encode(), number)
        began_s = time.monotonic()
        try:
            self._transact(self._producer, b"aborted " + name if is_aborted else name, is_aborted=is_aborted)
        except KafkaException:
            # Only a new producer knows what became of it; its beginning aborts what is open.
            self._producer = None
            self.in_doubt.add(name)
            raise
        self.latencies.add(time.monotonic() - began_s)
        self.done["aborts" if is_aborted else "commits"] += 1
        if not is_aborted:
            self.committed.add(name)

    def _new_producer(self) -> Producer:
        settings = {"bootstrap.servers": self._bootstrap, "transactional.id": self._transactional_id, "log_level": 0}
        producer = Producer(settings | {"linger.ms": 0})
        producer.init_transactions(TIMEOUT_S)
        return producer

    def _transact(self, producer: Producer, value: bytes, *, is_aborted: bool) -> None:
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(TRANSACTIONS, value, partition=partition)
        if is_aborted:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)


class TransactionReader(Activity):
    """Sees whole transactions, once, and no aborted ones."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("transactions read")
        settings = _consumer_settings(bootstrap, "soak-transaction-readers") | {"isolation.level": "read_committed"}
        self._consumer = Consumer(settings)
        self._consumer.subscribe([TRANSACTIONS])
        self.seen: Counter[bytes] = Counter()

    def step(self) -> None:
        for message in _consumed(self, self._consumer):
            value = message.value()
            if value.startswith(b"aborted"):
                self.note_problem(f"a record of an aborted transaction was read: {value!r}")
            self.seen[value] += 1
            self.done["records read"] += 1

    def has_read(self, committed: set[bytes]) -> bool:
        return committed <= self.seen.keys() and all(self.seen[name] >= PARTITIONS for name in committed)

    def judge(self, committed: set[bytes], in_doubt: set[bytes]) -> list[str]:
        problems = [f"read {count} times: {name!r}" for name, count in self.seen.items() if count != PARTITIONS]
        problems += [f"committed and never read: {name!r}" for name in sorted(committed - self.seen.keys())]
        problems += [f"read, though nobody committed it: {name!r}" for name in self.seen.keys() - committed - in_doubt]
        return problems

    def close(self) -> None:
        self._consumer.close()


class Groups(Activity):
    """Groups of two members, of either protocol, that read the stream for a moment, leave and are deleted."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("groups")
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._numbers = itertools.count()

    def step(self) -> None:
        number = next(self._numbers)
        group = f"soak-group-{number}"
        own = {"group.protocol": "consumer"} if number % 2 else {"session.timeout.ms": 10_000}
        began_s = time.monotonic()
        members = [Consumer(_consumer_settings(self._bootstrap, group, own)) for _ in range(2)]
        try:
            for member in members:
                member.subscribe([STREAM])
            self._read(members)
            self.latencies.add(time.monotonic() - began_s)
        finally:
            for member in members:
                member.close()
        self._admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
        self.done["groups"] += 1

    def _read(self, members: list[Consumer]) -> None:
        """Until each member has got some. Those that have are polled on: a rebalance waits for all of them."""
        waiting = set(range(len(members)))
        deadline_s = time.monotonic() + TIMEOUT_S
        while waiting and not self.is_ending:  # the stream ends at the same time
            for number, member in enumerate(members):
                if _consumed(self, member) and _commit(self, member):
                    waiting.discard(number)
            if time.monotonic() > deadline_s:
                self.note_problem(f"{len(waiting)} members read nothing for {TIMEOUT_S:.0f} s")
                return


class Topics(Activity):
    """Topics that are created, written, read and deleted; each name is used twice."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("topics")
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._numbers = itertools.count()

    def step(self) -> None:
        number = next(self._numbers)
        name = f"soak-topic-{number // 2}"
        began_s = time.monotonic()
        create_topic(self._admin, name)
        written = [b"%d %d" % (number, each) for each in range(20)]
        self._write(name, written)
        self.latencies.add(time.monotonic() - began_s)
        read = self._read(name, len(written))
        if read != written:
            self.note_problem(f"{name}: wrote {len(written)} records from {written[0]!r}, read {read[:3]}")
        self._admin.delete_topics([name], operation_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
        self.done["topics"] += 1

    def _write(self, name: str, values: list[bytes]) -> None:
        failed: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 0})
        for value in values:
            producer.produce(name, value, partition=0, on_delivery=on_delivery)
        if producer.flush(TIMEOUT_S) or failed:
            self.note_problem(f"{name} could not be written: {failed[:1]}")

    def _read(self, name: str, count: int) -> list[bytes]:
        consumer = Consumer(_consumer_settings(self._bootstrap, "unused"))
        try:
            consumer.assign([TopicPartition(name, 0, 0)])
            found: list[bytes] = []
            deadline_s = time.monotonic() + TIMEOUT_S
            while len(found) < count and time.monotonic() < deadline_s:
                found += [message.value() for message in _consumed(self, consumer)]
            return found
        finally:
            consumer.close()


def create_topic(admin: AdminClient, name: str, partitions: int = 1, settings: dict[str, str] | None = None) -> None:
    configs = {"min.insync.replicas": "2"} | (settings or {})
    admin.create_topics([NewTopic(name, partitions, REPLICAS, config=configs)])[name].result(TIMEOUT_S)


def _consumer_settings(bootstrap: str, group: str, own: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        # A broker that has not heard of a new topic yet says so, and librdkafka would ask again after five minutes.
        "topic.metadata.refresh.interval.ms": METADATA_AGE_MS,
        "log_level": 0,
    } | (own or {})


def _consumed(activity: Activity, consumer: Consumer) -> list[Any]:
    messages: list[Any] = consumer.consume(1000, 0.1)
    for message in messages:
        if message.error() is not None:
            activity.note_error(message.error())
    return [message for message in messages if message.error() is None]


def _commit(activity: Activity, consumer: Consumer) -> int:
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as exception:
        error = exception.args[0]
        if error.code() not in (KafkaError._NO_OFFSET, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION):
            activity.note_error(error)
        return 0
    return 1
