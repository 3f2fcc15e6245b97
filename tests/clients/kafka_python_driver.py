"""kafka-python behind the common interface."""

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from queue import SimpleQueue
from typing import Any, Literal

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import BrokerResponseError, KafkaError
from kafka.structs import OffsetAndMetadata

from tests.clients.driver import (
    BROKERS_CHOICE,
    FETCH_WAIT_MS,
    MAX_REQUEST_BYTES,
    MEMBER_HEARTBEAT_MS,
    MEMBER_POLL_S,
    MEMBER_SESSION_MS,
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

LONG_POLL_MS = 500
OFFSET_SPECS = {
    "earliest": OffsetSpec.EARLIEST,
    "latest": OffsetSpec.LATEST,
    "max-timestamp": OffsetSpec.MAX_TIMESTAMP,
}


class KafkaPythonDriver(ClientDriver):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        self._producers: dict[tuple[str, str, bool], KafkaProducer] = {}
        self._consumers: dict[tuple[Isolation, str], KafkaConsumer] = {}

    def close(self) -> None:
        for client in [*self._producers.values(), *self._consumers.values(), self._admin]:
            client.close()

    def _producer(self, options: ProducerOptions) -> KafkaProducer:
        if options.key not in self._producers:
            self._producers[options.key] = KafkaProducer(**producer_settings(self.bootstrap, options))
        return self._producers[options.key]

    def _consumer(self, isolation: Isolation, rack: str = "") -> KafkaConsumer:
        key = (isolation, rack)
        if key not in self._consumers:
            self._consumers[key] = KafkaConsumer(
                bootstrap_servers=self.bootstrap,
                group_id=None,
                auto_offset_reset="earliest",
                isolation_level=isolation,
                client_rack=rack,
                fetch_max_wait_ms=FETCH_WAIT_MS,
            )
        return self._consumers[key]

    def produce(
        self, topic: str, records: Sequence[Record], options: ProducerOptions, partition: int = 0
    ) -> list[int | None]:
        producer = self._producer(options)
        futures = [
            producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        producer.flush(TIMEOUT_S)
        try:
            offsets = [future.get(timeout=TIMEOUT_S).offset for future in futures]
        except BrokerResponseError as error:
            raise rejected(error) from None
        return [offset if offset >= 0 else None for offset in offsets]

    def consume(
        self, topic: str, partition: int, offset: int, count: int, isolation: Isolation = "read_committed"
    ) -> list[Consumed]:
        return self._consume(self._consumer(isolation), topic, partition, offset, count)

    def consume_in_rack(self, topic: str, partition: int, count: int, rack: str) -> list[Consumed]:
        return self._consume(self._consumer("read_committed", rack), topic, partition, 0, count)

    def _consume(self, consumer: KafkaConsumer, topic: str, partition: int, offset: int, count: int) -> list[Consumed]:
        place = TopicPartition(topic, partition)
        consumer.assign([place])
        consumer.seek(place, offset)
        taken: list[Consumed] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(taken) < count:
            polled = consumer.poll(timeout_ms=200, max_records=count - len(taken))
            taken += [consumed(record) for record in polled.get(place, [])]
            if time.monotonic() > deadline:
                raise TimeoutError(f"consumed {len(taken)} of {count} records")
        return taken

    def list_offset(self, topic: str, partition: int, at: NamedOffset | int) -> int | None:
        place = TopicPartition(topic, partition)
        if isinstance(at, int):
            found = self._consumer("read_uncommitted").offsets_for_times({place: at})[place]
            return None if found is None else int(found.offset)
        offset: int = call(self._admin.list_partition_offsets, {place: OFFSET_SPECS[at]})[place].offset
        return offset if offset >= 0 else None

    def list_topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def describe_topic(self, topic: str) -> dict[int, PartitionDescription]:
        description = self._admin.describe_topics([topic])[0]
        raise_for_code(description["error_code"])
        return {
            partition["partition_index"]: PartitionDescription(
                partition["leader_id"], tuple(partition["replica_nodes"]), tuple(partition["isr_nodes"])
            )
            for partition in description["partitions"]
        }

    def open_transactions(self, transactional_id: str) -> Transactions:
        return KafkaPythonTransactions(self.bootstrap, transactional_id)

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, group_id=group, enable_auto_commit=False)
        try:
            found: int | None = consumer.committed(TopicPartition(topic, partition))
        finally:
            consumer.close()
        return found

    def create_topic(
        self, topic: str, partitions: int, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": BROKERS_CHOICE, "configs": dict(configs)}
        call(self._admin.create_topics, {topic: wanted}, validate_only=validate_only)

    def delete_topic(self, topic: str) -> None:
        call(self._admin.delete_topics, [topic])

    def create_partitions(self, topic: str, total: int) -> None:
        call(self._admin.create_partitions, {topic: total})

    def describe_configs(self, kind: Literal["topic", "broker"], name: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType[kind.upper()], name)
        described = call(self._admin.describe_configs, [resource], config_filter="all")
        return {key: entry["value"] for key, entry in described[kind][name].items()}

    def alter_configs(self, topic: str, changes: Mapping[str, str | None]) -> None:
        operations = {key: ("DELETE" if value is None else "SET", value) for key, value in changes.items()}
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=operations)
        response = call(self._admin.alter_configs, [resource], raise_on_unknown=False, incremental=True)
        outcome = response["topic"][topic]
        if outcome != "OK":
            raise Rejected(code_in(outcome), outcome)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        place = TopicPartition(topic, partition)
        low_watermark: int = call(self._admin.delete_records, {place: before_offset})[place]["low_watermark"]
        return low_watermark

    def describe_cluster(self) -> ClusterDescription:
        response = self._admin.describe_cluster()
        brokers = {broker["broker_id"]: f"{broker['host']}:{broker['port']}" for broker in response["brokers"]}
        return ClusterDescription(response["cluster_id"], response["controller_id"], brokers)

    def log_dir_sizes(self) -> dict[tuple[str, int], int]:
        return {
            (topic["name"], partition["partition_index"]): partition["partition_size"]
            for broker in self._admin.describe_log_dirs()
            for log_dir in broker["log_dirs"]
            for topic in log_dir["topics"]
            for partition in topic["partitions"]
        }

    def producer_ids(self, topic: str, partition: int) -> dict[int, int]:
        place = TopicPartition(topic, partition)
        state = self._admin.describe_producers([place])[place]
        return {producer.producer_id: producer.last_sequence for producer in state.active_producers}

    def page_of_topic_partitions(self, topic: str, limit: int) -> tuple[list[int], int | None]:
        page = self._admin.describe_topic_partitions([topic], response_partition_limit=limit)
        partitions = [partition["partition_index"] for partition in page["topics"][0]["partitions"]]
        cursor = page["next_cursor"]
        return partitions, None if cursor is None else cursor["partition_index"]

    def join_group(self, group: str, topic: str, options: MemberOptions) -> GroupMember:
        return KafkaPythonMember(self.bootstrap, group, topic, options)

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        with closing(KafkaConsumer(**member_settings(self.bootstrap, group))) as consumer:
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            consumer.commit({place: OffsetAndMetadata(offset, "", -1)})

    def list_groups(self) -> set[str]:
        return {group["group_id"] for group in self._admin.list_groups()}

    def describe_group(self, group: str) -> GroupDescription:
        found = self._admin.describe_groups([group])[group]
        return GroupDescription(found["group_state"], len(found["members"]))

    def delete_group(self, group: str) -> None:
        outcome = call(self._admin.delete_groups, [group])[group]
        if outcome != "OK":
            raise Rejected(getattr(errors, outcome).errno, outcome)

    def open_writer(self, topic: str, *, idempotent: bool) -> Writer:
        return KafkaPythonWriter(self.bootstrap, topic, idempotent)


class KafkaPythonMember(GroupMember):
    """Polls in a thread of its own: a poll that ends in the middle of a rebalance may lose the assignment."""

    def __init__(self, bootstrap: str, group: str, topic: str, options: MemberOptions) -> None:
        self._consumer = KafkaConsumer(topic, **member_settings(bootstrap, group, options))
        self._taken: SimpleQueue[tuple[int, Consumed]] = SimpleQueue()
        self._orders: SimpleQueue[tuple[Callable[[], object], Future[None]]] = SimpleQueue()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="kafka-python member", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_closing:
            while not self._orders.empty():
                self._obey(*self._orders.get())
            for place, records in self._consumer.poll(timeout_ms=LONG_POLL_MS).items():
                for record in records:
                    self._taken.put((place.partition, consumed(record)))

    def _obey(self, order: Callable[[], object], done: "Future[None]") -> None:
        try:
            order()
            done.set_result(None)
        except KafkaError as error:
            done.set_exception(error)

    def poll(self) -> list[tuple[int, Consumed]]:
        time.sleep(MEMBER_POLL_S)
        return [self._taken.get() for _ in range(self._taken.qsize())]

    def assignment(self) -> frozenset[int]:
        return frozenset(place.partition for place in self._consumer.assignment())

    def commit(self) -> None:
        done: Future[None] = Future()
        self._orders.put((self._consumer.commit, done))
        call(done.result, TIMEOUT_S)

    def close(self) -> None:
        self._is_closing = True
        self._thread.join(TIMEOUT_S)
        self._consumer.close()


class KafkaPythonWriter(Writer):
    def __init__(self, bootstrap: str, topic: str, idempotent: bool) -> None:
        settings = producer_settings(bootstrap, ProducerOptions(idempotent=idempotent))
        self._producer = KafkaProducer(**settings, reconnect_backoff_max_ms=200)
        self._topic = topic
        self._futures: list[tuple[bytes, Any]] = []

    def send(self, value: bytes) -> None:
        self._futures.append((value, self._producer.send(self._topic, value=value, partition=0)))

    def close(self) -> WriterReport:
        report = WriterReport(sent=[value for value, _ in self._futures])
        deadline = time.monotonic() + TIMEOUT_S
        for value, future in self._futures:
            try:
                future.get(timeout=max(0.0, deadline - time.monotonic()))
                report.acknowledged.append(value)
            except KafkaError as error:
                report.failed.append(repr(error))
        self._producer.close()
        return report


class KafkaPythonTransactions(Transactions):
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        futures = [
            self._producer.send(topic, value=record.value, key=record.key, partition=partition) for record in records
        ]
        self._producer.flush(TIMEOUT_S)
        for future in futures:
            future.get(timeout=TIMEOUT_S)

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        offsets = {TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(offsets, group)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=TIMEOUT_S)

    def _call(self, method: Callable[[], object]) -> None:
        try:
            method()
        except KafkaError as error:
            raise Rejected(getattr(error, "errno", -1), str(error)) from None


def member_settings(bootstrap: str, group: str, options: MemberOptions | None = None) -> dict[str, Any]:
    chosen = options or MemberOptions()
    return {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "group_instance_id": chosen.instance_id,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": FETCH_WAIT_MS,
        "heartbeat_interval_ms": MEMBER_HEARTBEAT_MS,
        "session_timeout_ms": MEMBER_SESSION_MS,
        "partition_assignment_strategy": [CooperativeStickyAssignor if chosen.cooperative else RangePartitionAssignor],
    }


def producer_settings(bootstrap: str, options: ProducerOptions) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "compression_type": None if options.compression == "none" else options.compression,
        "acks": options.acks if options.acks == "all" else int(options.acks),
        "enable_idempotence": options.idempotent,
        "linger_ms": 2,
        "max_request_size": MAX_REQUEST_BYTES,
        "delivery_timeout_ms": int(TIMEOUT_S * 1000),
        "request_timeout_ms": int(TIMEOUT_S * 1000) - 5000,
        "retry_backoff_ms": 50,
    }


def call(method: Any, *arguments: Any, **options: Any) -> Any:
    try:
        return method(*arguments, **options)
    except BrokerResponseError as error:
        raise rejected(error) from None


def rejected(error: BrokerResponseError) -> Rejected:
    return Rejected(error.errno, str(error))


def raise_for_code(code: int) -> None:
    if code != 0:
        raise Rejected(code)


def code_in(text: str) -> int:
    """alter_configs returns errors as text: "[Error 40] InvalidConfigurationError: ..."."""
    found = re.match(r"\[Error (\d+)\]", text)
    assert found, f"no error code in {text!r}"
    return int(found[1])


def consumed(record: Any) -> Consumed:
    return Consumed(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
