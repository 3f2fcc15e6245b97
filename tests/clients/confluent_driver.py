"""confluent-kafka (librdkafka) behind the common interface."""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.clients.driver import (
    BROKERS_CHOICE,
    FETCH_WAIT_MS,
    MAX_REQUEST_BYTES,
    MEMBER_HEARTBEAT_MS,
    MEMBER_POLL_S,
    MEMBER_SESSION_MS,
    POLL_S,
    TIMEOUT_S,
    ClientDriver,
    ClusterDescription,
    Consumed,
    GroupDescription,
    GroupMember,
    Isolation,
    MemberOptions,
    NamedOffset,
    PartitionDescription,
    ProducerOptions,
    Record,
    Rejected,
    Transactions,
    Writer,
    WriterReport,
)

# UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_ID,
# and librdkafka's own word for a partition that had no leader when it last looked.
STALE_METADATA_CODES = frozenset({3, 6, 74, 75, 100, KafkaError._NOENT})
UNTYPED_SPECS: Any = OffsetSpec
OFFSET_SPECS = {
    "earliest": UNTYPED_SPECS.earliest(),
    "latest": UNTYPED_SPECS.latest(),
    "max-timestamp": UNTYPED_SPECS.max_timestamp(),
}


class ConfluentDriver(ClientDriver):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        # Connection errors are expected in restarts: librdkafka would write them all to the standard error.
        self._common: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._admin = AdminClient(self._common)
        self._producers: dict[tuple[str, str, bool], Producer] = {}
        self._consumers: dict[tuple[Isolation, str], Consumer] = {}

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()

    def _producer(self, options: ProducerOptions) -> Producer:
        if options.key not in self._producers:
            self._producers[options.key] = Producer(self._common | producer_settings(options))
        return self._producers[options.key]

    def _consumer(self, isolation: Isolation, rack: str = "") -> Consumer:
        key = (isolation, rack)
        if key not in self._consumers:
            settings = {
                "group.id": f"unused-{uuid.uuid4()}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": isolation,
                "client.rack": rack,
                "fetch.wait.max.ms": FETCH_WAIT_MS,
            }
            self._consumers[key] = Consumer(self._common | settings)
        return self._consumers[key]

    def produce(
        self, topic: str, records: Sequence[Record], options: ProducerOptions, partition: int = 0
    ) -> list[int | None]:
        producer = self._producer(options)
        delivered: list[Message] = []
        failed: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                delivered.append(message)
            else:
                failed.append(error)

        for record in records:
            extra: dict[str, Any] = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=partition,
                on_delivery=on_delivery,
                **extra,
            )
        left = producer.flush(TIMEOUT_S)
        if failed:
            raise rejected(failed[0])
        assert left == 0, f"{left} records were never acknowledged"
        offsets = [message.offset() for message in delivered]
        return [None if offset is None or offset < 0 else offset for offset in offsets]

    def consume(
        self, topic: str, partition: int, offset: int, count: int, isolation: Isolation = "read_committed"
    ) -> list[Consumed]:
        return self._consume(self._consumer(isolation), topic, partition, offset, count)

    def consume_in_rack(self, topic: str, partition: int, count: int, rack: str) -> list[Consumed]:
        return self._consume(self._consumer("read_committed", rack), topic, partition, 0, count)

    def _consume(self, consumer: Consumer, topic: str, partition: int, offset: int, count: int) -> list[Consumed]:
        # Asked by name, librdkafka learns the leader at once; by itself it looks once a second.
        consumer.list_topics(topic, timeout=TIMEOUT_S)
        consumer.assign([TopicPartition(topic, partition, offset)])
        taken: list[Consumed] = []
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while len(taken) < count:
                messages = consumer.consume(count - len(taken), timeout=0.2)
                taken += [consumed(message) for message in messages if is_record(message)]
                if time.monotonic() > deadline:
                    raise TimeoutError(f"consumed {len(taken)} of {count} records")
        finally:
            consumer.unassign()
        return taken

    def list_offset(self, topic: str, partition: int, at: NamedOffset | int) -> int | None:
        place = TopicPartition(topic, partition)
        if isinstance(at, int):
            found = self._consumer("read_uncommitted").offsets_for_times(
                [TopicPartition(topic, partition, at)], timeout=TIMEOUT_S
            )[0]
            if found.error is not None:
                raise rejected(found.error)
            return found.offset if found.offset >= 0 else None
        offset = self._retry(
            topic, lambda: int(wait_for(self._admin.list_offsets({place: OFFSET_SPECS[at]})[place]).offset)
        )
        return offset if offset >= 0 else None

    def _retry(self, topic: str, ask: Callable[[], int]) -> int:
        """Unlike other clients, librdkafka's admin client leaves it to us to look for leaders that moved."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return ask()
            except Rejected as rejection:
                if rejection.code not in STALE_METADATA_CODES or time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)
                self._admin.list_topics(topic, timeout=TIMEOUT_S)

    def list_topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=TIMEOUT_S).topics)

    def describe_topic(self, topic: str) -> dict[int, PartitionDescription]:
        description = wait_for(self._admin.describe_topics(TopicCollection([topic]))[topic])
        return {
            partition.id: PartitionDescription(
                partition.leader.id if partition.leader else -1,
                tuple(node.id for node in partition.replicas),
                tuple(node.id for node in partition.isr),
            )
            for partition in description.partitions
        }

    def open_transactions(self, transactional_id: str) -> Transactions:
        return ConfluentTransactions(self._common, transactional_id)

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        consumer = Consumer(self._common | {"group.id": group})
        try:
            [found] = consumer.committed([TopicPartition(topic, partition)], timeout=TIMEOUT_S)
        finally:
            consumer.close()
        return found.offset if found.offset >= 0 else None

    def create_topic(
        self, topic: str, partitions: int, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=BROKERS_CHOICE, config=dict(configs))
        wait_for(self._admin.create_topics([new], validate_only=validate_only)[topic])

    def delete_topic(self, topic: str) -> None:
        wait_for(self._admin.delete_topics([topic])[topic])

    def create_partitions(self, topic: str, total: int) -> None:
        wait_for(self._admin.create_partitions([NewPartitions(topic, total)])[topic])

    def describe_configs(self, kind: Literal["topic", "broker"], name: str) -> dict[str, str | None]:
        resource = ConfigResource(ResourceType[kind.upper()], name)
        entries = wait_for(self._admin.describe_configs([resource])[resource])
        return {key: entry.value for key, entry in entries.items()}

    def alter_configs(self, topic: str, changes: Mapping[str, str | None]) -> None:
        entries = [
            ConfigEntry(
                key,
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        wait_for(self._admin.incremental_alter_configs([resource])[resource])

    def replace_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config=dict(configs))
        wait_for(self._admin.alter_configs([resource])[resource])

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        place = TopicPartition(topic, partition, before_offset)
        result = wait_for(self._admin.delete_records([place])[place])
        low_watermark: int = result.low_watermark
        return low_watermark

    def describe_cluster(self) -> ClusterDescription:
        result = wait_for(self._admin.describe_cluster())
        brokers = {node.id: f"{node.host}:{node.port}" for node in result.nodes}
        return ClusterDescription(result.cluster_id, result.controller.id, brokers)

    def join_group(self, group: str, topic: str, options: MemberOptions) -> GroupMember:
        return ConfluentMember(self._common, group, topic, options)

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        consumer = Consumer(self._common | member_settings(group))
        try:
            consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
        finally:
            consumer.close()

    def list_groups(self) -> set[str]:
        return {group.group_id for group in wait_for(self._admin.list_consumer_groups()).valid}

    def describe_group(self, group: str) -> GroupDescription:
        found = wait_for(self._admin.describe_consumer_groups([group])[group])
        return GroupDescription(found.state.name.title().replace("_", ""), len(found.members))

    def delete_group(self, group: str) -> None:
        wait_for(self._admin.delete_consumer_groups([group])[group])

    def open_writer(self, topic: str, *, idempotent: bool) -> Writer:
        return ConfluentWriter(self._common, topic, idempotent)


class ConfluentMember(GroupMember):
    def __init__(self, common: dict[str, Any], group: str, topic: str, options: MemberOptions) -> None:
        self._consumer = Consumer(common | member_settings(group, options))
        self._consumer.subscribe([topic])

    def poll(self) -> list[tuple[int, Consumed]]:
        messages = self._consumer.consume(100, timeout=MEMBER_POLL_S)
        return [(message.partition() or 0, consumed(message)) for message in messages if is_record(message)]

    def assignment(self) -> frozenset[int]:
        return frozenset(place.partition for place in self._consumer.assignment())

    def commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as exception:
            if exception.args[0].code() != KafkaError._NO_OFFSET:
                raise rejected(exception.args[0]) from None

    def close(self) -> None:
        self._consumer.close()


class ConfluentWriter(Writer):
    def __init__(self, common: dict[str, Any], topic: str, idempotent: bool) -> None:
        self._producer = Producer(
            common | producer_settings(ProducerOptions(idempotent=idempotent)) | {"reconnect.backoff.max.ms": 200}
        )
        self._topic = topic
        self._report = WriterReport()

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._report.acknowledged.append(value_of(message) or b"")
        else:
            self._report.failed.append(str(error))

    def send(self, value: bytes) -> None:
        self._report.sent.append(value)
        self._producer.produce(self._topic, value=value, partition=0, on_delivery=self._on_delivery)
        self._producer.poll(0)

    def close(self) -> WriterReport:
        self._producer.flush(TIMEOUT_S)
        return self._report


class ConfluentTransactions(Transactions):
    def __init__(self, common: Mapping[str, Any], transactional_id: str) -> None:
        self._common = dict(common)
        self._producer = Producer(self._common | {"transactional.id": transactional_id, "linger.ms": 0})
        self._call(self._producer.init_transactions, TIMEOUT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        for record in records:
            self._producer.produce(topic, value=record.value, key=record.key, partition=partition)
        assert self._producer.flush(TIMEOUT_S) == 0

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        consumer = Consumer(self._common | {"group.id": group})
        place = TopicPartition(topic, partition, offset)
        metadata = consumer.consumer_group_metadata()
        self._call(self._producer.send_offsets_to_transaction, [place], metadata, TIMEOUT_S)
        consumer.close()

    def commit(self) -> None:
        self._call(self._producer.commit_transaction, TIMEOUT_S)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction, TIMEOUT_S)

    def close(self) -> None:
        del self._producer

    def _call(self, method: Callable[..., object], *arguments: object) -> None:
        while True:
            try:
                method(*arguments)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise rejected(error.args[0]) from None


def member_settings(group: str, options: MemberOptions | None = None) -> dict[str, Any]:
    chosen = options or MemberOptions()
    settings = {
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": FETCH_WAIT_MS,
    }
    if chosen.is_assigned_by_broker:
        settings |= {"group.protocol": "consumer"}
    else:
        settings |= {
            "heartbeat.interval.ms": MEMBER_HEARTBEAT_MS,
            "session.timeout.ms": MEMBER_SESSION_MS,
            "partition.assignment.strategy": "cooperative-sticky" if chosen.cooperative else "range",
        }
    return settings if chosen.instance_id is None else settings | {"group.instance.id": chosen.instance_id}


def producer_settings(options: ProducerOptions) -> dict[str, Any]:
    return {
        "compression.type": options.compression,
        "acks": options.acks,
        "enable.idempotence": options.idempotent,
        "linger.ms": 2,
        "message.max.bytes": MAX_REQUEST_BYTES,
        "message.timeout.ms": int(TIMEOUT_S * 1000),
        "retry.backoff.ms": 50,
    }


def wait_for(future: "Future[Any]") -> Any:
    try:
        return future.result(TIMEOUT_S)
    except KafkaException as exception:
        raise rejected(exception.args[0]) from None


def rejected(error: KafkaError) -> Rejected:
    return Rejected(error.code(), error.str())


def is_record(message: Message) -> bool:
    error = message.error()
    # Negative codes are librdkafka's own, of connections and coordinators: it goes on by itself.
    if error is not None and error.code() > 0:
        raise rejected(error)
    return error is None


def value_of(message: Message) -> bytes | None:
    value = message.value()
    assert not isinstance(value, str)
    return value


def consumed(message: Message) -> Consumed:
    offset = message.offset()
    key = message.key()
    assert offset is not None
    assert not isinstance(key, str)
    headers: Any = message.headers() or []
    return Consumed(offset, message.timestamp()[1], key, value_of(message), tuple(headers))
