"""Public producer: idempotent by default, transactional with a transactional id."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal

from tidelog.client.api.client_config import ACKS, BOOLEAN, CODECS, Parse, choice, number, open_cluster, parse_config
from tidelog.client.api.consumer import Consumer
from tidelog.client.api.values import Acknowledgement, Delivery
from tidelog.client.producer.producer import Producer as InternalProducer
from tidelog.client.producer.producer_settings import ACKS_ALL, ProducerSettings
from tidelog.client.producer.transactional_producer import TransactionalProducer
from tidelog.runtime.clock import SystemClock
from tidelog.types import TopicPartition

SETTINGS: Mapping[str, Parse] = {
    "acks": choice(ACKS),
    "linger.ms": number(),
    "batch.size": number(1),
    "buffer.memory": number(1),
    "compression.type": choice(CODECS),
    "delivery.timeout.ms": number(1),
    "max.block.ms": number(1),
    "enable.idempotence": BOOLEAN,
    "transactional.id": str,
    "transaction.timeout.ms": number(1),
    "allow.auto.create.topics": BOOLEAN,
}


class Producer:
    """`async with Producer("localhost:29092") as producer:`; for the tasks of one event loop.

    Records of a partition keep the order of the calls. Retriable errors are retried without duplicates until
    `delivery.timeout.ms`. Leaving the block waits for all acknowledgements.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        acks: Literal["all", "1", "0"] | None = None,
        linger_ms: int | None = None,
        compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None = None,
        transactional_id: str | None = None,
        client_id: str | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """`config`: settings with the names of Kafka's clients; arguments take precedence."""
        self._bootstrap_servers = bootstrap_servers
        self._client_id = client_id
        self._config = found = parse_config(config, SETTINGS)
        acks_number = found.get("acks", None if acks is None else choice(ACKS)(acks), ACKS_ALL)
        if acks_number != ACKS_ALL and found.values.get("enable.idempotence"):
            raise ValueError("enable.idempotence needs acks=all")
        self._transactional_id = found.get("transactional.id", transactional_id, "")
        if self._transactional_id and acks_number != ACKS_ALL:
            raise ValueError("transactions need acks=all")
        self._settings = ProducerSettings(
            acks=acks_number,
            linger_s=found.get("linger.ms", linger_ms, 5) / 1000,
            batch_bytes=found.get("batch.size", None, ProducerSettings().batch_bytes),
            compression=found.get(
                "compression.type", None if compression is None else choice(CODECS)(compression), CODECS["none"]
            ),
            max_buffered_bytes=found.get("buffer.memory", None, ProducerSettings().max_buffered_bytes),
            delivery_timeout_s=found.get("delivery.timeout.ms", None, 120_000) / 1000,
            request_timeout_s=found.get("request.timeout.ms", None, 30_000) / 1000,
            metadata_timeout_s=found.get("max.block.ms", None, 60_000) / 1000,
            may_create_topics=found.get("allow.auto.create.topics", None, default=True),
        )
        self._producer: InternalProducer | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Producer":
        """With a transactional id: earlier producers with the same id are fenced, and their transaction aborted."""
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(
                open_cluster(self._bootstrap_servers, self._client_id, self._config)
            )
            if self._transactional_id:
                producer: InternalProducer = TransactionalProducer(
                    cluster,
                    SystemClock(),
                    self._transactional_id,
                    self._settings,
                    transaction_timeout_ms=self._config.get("transaction.timeout.ms", None, 60_000),
                )
            else:
                producer = InternalProducer(cluster, SystemClock(), self._settings)
            self._producer = await stack.enter_async_context(producer)
            # Instead of methods that only call on: `enqueue` runs once for each record.
            self.enqueue = producer.enqueue  # type: ignore[method-assign, assignment]
            self.send = producer.send  # type: ignore[method-assign, assignment]
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._producer = None
        await self._stack.__aexit__(None if error is None else type(error), error, None)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> Acknowledgement:
        """Write a record; returns its partition and offset when it is acknowledged.

        Raises KafkaError if the broker refuses it, GaveUp after the delivery timeout.
        """
        raise RuntimeError(NOT_OPEN)

    async def enqueue(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Buffer a record, and wait only while the buffer is full. `await` the delivery for its acknowledgement, or
        call `flush`."""
        raise RuntimeError(NOT_OPEN)

    async def flush(self) -> None:
        """Wait until everything is acknowledged. Raises the first failure since the last flush."""
        await self._open.flush()

    # ---- transactions

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """`async with producer.transaction():` commits at its end, or aborts if an error leaves it."""
        self.begin()
        try:
            yield
        except BaseException:
            await self.abort()
            raise
        await self.commit()

    def begin(self) -> None:
        """Begin a transaction."""
        self._transactional.begin()

    async def commit(self) -> None:
        """Returns when the commit is durable. After an error only `abort` is possible."""
        await self._transactional.commit()

    async def abort(self) -> None:
        """Readers of committed records see nothing of the transaction."""
        await self._transactional.abort()

    async def send_offsets(self, consumer: Consumer, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit offsets of the consumer's group with the transaction; by default of all records it has returned."""
        member, positions = consumer._group_state()
        await self._transactional.send_offsets(positions if offsets is None else offsets, member)

    @property
    def _open(self) -> InternalProducer:
        if self._producer is None:
            raise RuntimeError(NOT_OPEN)
        return self._producer

    @property
    def _transactional(self) -> TransactionalProducer:
        if not isinstance(self._open, TransactionalProducer):
            raise RuntimeError("the producer has no transactions: Producer(..., transactional_id='name')")
        return self._open


NOT_OPEN = "the producer is not open: use it in `async with Producer(...) as producer:`"
