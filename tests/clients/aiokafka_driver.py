"""aiokafka behind the common interface: its event loop runs in a thread of its own."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import BrokerResponseError, KafkaError

from tests.clients.driver import (
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

T = TypeVar("T")


class LoopThread:
    """An event loop that others can hand coroutines to."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self.submit(work).result(TIMEOUT_S + 5)
        except BrokerResponseError as error:
            raise Rejected(error.errno, str(error)) from None

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(function, *arguments)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()


class AiokafkaDriver(ClientDriver):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._thread = LoopThread()
        self._admin_client: AIOKafkaAdminClient | None = None
        self._producers: dict[tuple[str, str, bool], AIOKafkaProducer] = {}
        self._consumers: dict[tuple[Isolation, str], AIOKafkaConsumer] = {}

    def close(self) -> None:
        for client in [*self._producers.values(), *self._consumers.values()]:
            self._thread.run(client.stop())
        if self._admin_client is not None:
            self._thread.run(self._admin_client.close())
        self._thread.close()

    async def _producer(self, options: ProducerOptions) -> AIOKafkaProducer:
        if options.key not in self._producers:
            producer = AIOKafkaProducer(**producer_settings(self.bootstrap, options))
            await producer.start()
            self._producers[options.key] = producer
        return self._producers[options.key]

    async def _consumer(self, isolation: Isolation, rack: str = "") -> AIOKafkaConsumer:
        key = (isolation, rack)
        if key not in self._consumers:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap,
                group_id=None,
                auto_offset_reset="earliest",
                isolation_level=isolation,
                client_rack=rack or None,
                fetch_max_wait_ms=FETCH_WAIT_MS,
                max_partition_fetch_bytes=MAX_REQUEST_BYTES,
            )
            await consumer.start()
            self._consumers[key] = consumer
        return self._consumers[key]

    async def _admin(self) -> AIOKafkaAdminClient:
        if self._admin_client is None:
            self._admin_client = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await self._admin_client.start()
        return self._admin_client

    def produce(
        self, topic: str, records: Sequence[Record], options: ProducerOptions, partition: int = 0
    ) -> list[int | None]:
        return self._thread.run(self._produce(topic, records, options, partition))

    async def _produce(
        self, topic: str, records: Sequence[Record], options: ProducerOptions, partition: int
    ) -> list[int | None]:
        producer = await self._producer(options)
        futures = [
            await producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        sent = await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S)
        # Without acknowledgements there is nothing to report: aiokafka resolves such futures with None.
        return [None if record is None or record.offset < 0 else record.offset for record in sent]

    def consume(
        self, topic: str, partition: int, offset: int, count: int, isolation: Isolation = "read_committed"
    ) -> list[Consumed]:
        return self._thread.run(self._consume(TopicPartition(topic, partition), offset, count, isolation))

    def consume_in_rack(self, topic: str, partition: int, count: int, rack: str) -> list[Consumed]:
        return self._thread.run(self._consume(TopicPartition(topic, partition), 0, count, "read_committed", rack))

    async def _consume(
        self, place: TopicPartition, offset: int, count: int, isolation: Isolation, rack: str = ""
    ) -> list[Consumed]:
        consumer = await self._consumer(isolation, rack)
        consumer.assign([place])
        consumer.seek(place, offset)
        taken: list[Consumed] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(taken) < count:
            polled = await consumer.getmany(place, timeout_ms=200, max_records=count - len(taken))
            taken += [consumed(record) for record in polled.get(place, [])]
            if time.monotonic() > deadline:
                raise TimeoutError(f"consumed {len(taken)} of {count} records")
        return taken

    def list_offset(self, topic: str, partition: int, at: NamedOffset | int) -> int | None:
        return self._thread.run(self._list_offset(TopicPartition(topic, partition), at))

    async def _list_offset(self, place: TopicPartition, at: NamedOffset | int) -> int | None:
        consumer = await self._consumer("read_uncommitted")
        if isinstance(at, int):
            found = (await consumer.offsets_for_times({place: at}))[place]
            return None if found is None else int(found.offset)
        ask = consumer.beginning_offsets if at == "earliest" else consumer.end_offsets
        return int((await ask([place]))[place])

    def list_topics(self) -> set[str]:
        return set(self._call("list_topics"))

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        async def call() -> Any:
            return await getattr(await self._admin(), method)(*arguments, **options)

        return self._thread.run(call())

    def describe_topic(self, topic: str) -> dict[int, PartitionDescription]:
        description = self._call("describe_topics", [topic])[0]
        raise_for_code(description["error_code"])
        return {
            partition["partition"]: PartitionDescription(
                partition["leader"], tuple(partition["replicas"]), tuple(partition["isr"])
            )
            for partition in description["partitions"]
        }

    def open_transactions(self, transactional_id: str) -> Transactions:
        return AiokafkaTransactions(self._thread, self.bootstrap, transactional_id)

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        return self._thread.run(self._committed_offset(group, TopicPartition(topic, partition)))

    async def _committed_offset(self, group: str, place: TopicPartition) -> int | None:
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, group_id=group, enable_auto_commit=False)
        await consumer.start()
        try:
            consumer.assign([place])
            found: int | None = await consumer.committed(place)
            return found
        finally:
            await consumer.stop()

    def create_topic(
        self, topic: str, partitions: int, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        replicas = len(self.bootstrap.split(","))  # it does not let the brokers choose
        new = NewTopic(topic, partitions, replicas, topic_configs=dict(configs))
        response = self._call("create_topics", [new], validate_only=validate_only)
        for _, code, *_ in response.topic_errors:
            raise_for_code(code)

    def delete_topic(self, topic: str) -> None:
        for _, code in self._call("delete_topics", [topic]).topic_error_codes:
            raise_for_code(code)

    def create_partitions(self, topic: str, total: int) -> None:
        self._call("create_partitions", {topic: NewPartitions(total)})

    def describe_configs(self, kind: Literal["topic", "broker"], name: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType[kind.upper()], name)
        (response,) = self._call("describe_configs", [resource])
        ((code, _, _, _, entries),) = response.resources
        raise_for_code(code)
        return {key: value for key, value, *_ in entries}

    def replace_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        (response,) = self._call("alter_configs", [resource])
        for code, *_ in response.resources:
            raise_for_code(code)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        place = TopicPartition(topic, partition)
        low_watermark: int = self._call("delete_records", {place: RecordsToDelete(before_offset)})[place]
        return low_watermark

    def describe_cluster(self) -> ClusterDescription:
        response = self._call("describe_cluster")
        brokers = {broker["node_id"]: f"{broker['host']}:{broker['port']}" for broker in response["brokers"]}
        return ClusterDescription(response["cluster_id"], response["controller_id"], brokers)

    def join_group(self, group: str, topic: str, options: MemberOptions) -> GroupMember:
        return AiokafkaMember(self._thread, self.bootstrap, group, topic, options)

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        self._thread.run(self._commit_offset(group, TopicPartition(topic, partition), offset))

    async def _commit_offset(self, group: str, place: TopicPartition, offset: int) -> None:
        consumer = AIOKafkaConsumer(**member_settings(self.bootstrap, group))
        await consumer.start()
        try:
            consumer.assign([place])
            await consumer.commit({place: offset})
        finally:
            await consumer.stop()

    def list_groups(self) -> set[str]:
        return {group for group, _ in self._call("list_consumer_groups")}

    def describe_group(self, group: str) -> GroupDescription:
        (response,) = self._call("describe_consumer_groups", [group])
        ((code, _, state, _, _, members, *_),) = response.groups
        raise_for_code(code)
        return GroupDescription(state, len(members))

    def open_writer(self, topic: str, *, idempotent: bool) -> Writer:
        return AiokafkaWriter(self._thread, self.bootstrap, topic, idempotent)


class AiokafkaMember(GroupMember):
    def __init__(self, thread: LoopThread, bootstrap: str, group: str, topic: str, options: MemberOptions) -> None:
        self._thread = thread
        self._consumer = thread.run(self._start(topic, member_settings(bootstrap, group, options)))

    async def _start(self, topic: str, settings: dict[str, Any]) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(**settings)
        consumer.subscribe([topic])
        # Starting waits for the assignment, and that for the other members: a starting member must not block them.
        self._starting = asyncio.get_running_loop().create_task(consumer.start())
        return consumer

    def poll(self) -> list[tuple[int, Consumed]]:
        return self._thread.run(self._poll())

    async def _poll(self) -> list[tuple[int, Consumed]]:
        await asyncio.wait([self._starting], timeout=MEMBER_POLL_S)
        if not self._starting.done():
            return []
        polled = await self._consumer.getmany(timeout_ms=int(MEMBER_POLL_S * 1000))
        return [(place.partition, consumed(record)) for place, records in polled.items() for record in records]

    def assignment(self) -> frozenset[int]:
        return frozenset(place.partition for place in self._consumer.assignment())

    def commit(self) -> None:
        self._thread.run(self._commit())

    async def _commit(self) -> None:
        await self._consumer.commit()

    def close(self) -> None:
        self._thread.run(self._stop())

    async def _stop(self) -> None:
        await self._starting
        await self._consumer.stop()


class AiokafkaWriter(Writer):
    """Hands over one record after the other: coroutines that send side by side may overtake each other."""

    def __init__(self, thread: LoopThread, bootstrap: str, topic: str, idempotent: bool) -> None:
        self._thread = thread
        self._topic = topic
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._report = WriterReport()
        self._producer = thread.run(self._start(bootstrap, idempotent))
        self._feeding = thread.submit(self._feed())

    async def _start(self, bootstrap: str, idempotent: bool) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(**producer_settings(bootstrap, ProducerOptions(idempotent=idempotent)))
        await producer.start()
        return producer

    def send(self, value: bytes) -> None:
        self._report.sent.append(value)
        self._thread.call(self._waiting.put_nowait, value)

    async def _feed(self) -> None:
        deliveries: list[tuple[bytes, Awaitable[Any]]] = []
        while (value := await self._waiting.get()) is not None:
            deliveries.append((value, await self._producer.send(self._topic, value=value, partition=0)))
        for value, delivery in deliveries:
            try:
                await delivery
                self._report.acknowledged.append(value)
            except KafkaError as error:
                self._report.failed.append(repr(error))

    def close(self) -> WriterReport:
        self._thread.call(self._waiting.put_nowait, None)
        self._feeding.result(TIMEOUT_S)
        self._thread.run(self._producer.stop())
        return self._report


class AiokafkaTransactions(Transactions):
    def __init__(self, thread: LoopThread, bootstrap: str, transactional_id: str) -> None:
        self._thread = thread
        self._producer = thread.run(self._start(bootstrap, transactional_id))

    async def _start(self, bootstrap: str, transactional_id: str) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        await producer.start()
        return producer

    def begin(self) -> None:
        self._thread.run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        self._thread.run(self._send(topic, partition, records))

    async def _send(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        futures = [
            await self._producer.send(topic, value=record.value, key=record.key, partition=partition)
            for record in records
        ]
        await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S)

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        offsets = {TopicPartition(topic, partition): offset}
        self._thread.run(self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        self._call(self._producer.commit_transaction())

    def abort(self) -> None:
        self._call(self._producer.abort_transaction())

    def close(self) -> None:
        self._thread.run(self._producer.stop())

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._thread.run(work)
        except KafkaError as error:
            raise Rejected(getattr(error, "errno", -1), str(error)) from None


def member_settings(bootstrap: str, group: str, options: MemberOptions | None = None) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "group_instance_id": None if options is None else options.instance_id,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": FETCH_WAIT_MS,
        "heartbeat_interval_ms": MEMBER_HEARTBEAT_MS,
        "session_timeout_ms": MEMBER_SESSION_MS,
    }


def producer_settings(bootstrap: str, options: ProducerOptions) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "compression_type": None if options.compression == "none" else options.compression,
        "acks": options.acks if options.acks == "all" else int(options.acks),
        "enable_idempotence": options.idempotent,
        "linger_ms": 2,
        "max_request_size": MAX_REQUEST_BYTES,
        "request_timeout_ms": int(TIMEOUT_S * 1000),
        "retry_backoff_ms": 50,
    }


def raise_for_code(code: int) -> None:
    if code != 0:
        raise Rejected(code)


def consumed(record: Any) -> Consumed:
    return Consumed(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
