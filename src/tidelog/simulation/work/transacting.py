"""Work of transactional producers: commit, abort, abandon, time out, and restart with the same transactional id."""

from collections.abc import Callable, Sequence

from tidelog.client.producer.producer import Delivery, ProducerSettings
from tidelog.client.producer.transactional_producer import TransactionalProducer
from tidelog.simulation.clients import REQUEST_TIMEOUT_S, ClientErrors
from tidelog.simulation.history import Decision, Transaction, Write
from tidelog.simulation.work.base import Work, WorkContext, together
from tidelog.simulation.work.writing import acknowledged
from tidelog.types import TopicPartition

PAYMENTS = "payments"
PRODUCERS = 2
"""Producers with their own transactional ids, plus a rival of the first with the same id."""
TRANSACTION_TIMEOUT_MS = 4000
MAX_PAUSE_MS = 400
MAX_DAWDLE_MS = 6000
DAWDLE_ONE_IN = 12
MAX_RECORDS = 4
TIMEOUT_S = 15.0
COORDINATOR_SETTINGS = {
    "transaction_state_log_num_partitions": 2,
    "transaction_state_log_replication_factor": 3,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 1000,
}


class _Abandoned(Exception):
    """The producer ends during a transaction without informing the coordinator."""


class Transactions(Work):
    """A read_committed consumer sees all or nothing of a transaction, and nothing before the commit is requested."""

    name = "transactions"
    id_prefix = "pay"
    value_prefix = "t"
    broker_settings = COORDINATOR_SETTINGS

    def __init__(self, context: WorkContext) -> None:
        super().__init__(context)
        self._sent = 0
        self._names = [*(f"{self.id_prefix}-{number}" for number in range(PRODUCERS)), f"{self.id_prefix}-0"]
        self._clients = [context.client(f"{self.name}-{number}") for number in range(len(self._names))]

    async def prepare(self) -> None:
        await self._topic()

    async def _topic(self) -> list[TopicPartition]:
        return await self.context.topic(PAYMENTS, 2)

    async def run(self, is_over: Callable[[], bool]) -> None:
        await together(self._produce_repeatedly(number, is_over) for number in range(len(self._names)))

    async def _produce_repeatedly(self, number: int, is_over: Callable[[], bool]) -> None:
        is_rival = number >= PRODUCERS
        while not is_over():
            if is_rival:
                await self.rest(20_000)
            try:
                await self._session(number, is_over, most=3 if is_rival else 100)
            except (*ClientErrors, _Abandoned):
                await self.pace(2 * MAX_PAUSE_MS)

    async def _session(self, number: int, is_over: Callable[[], bool], most: int) -> None:
        """From one InitProducerId to the next; InitProducerId aborts an open transaction of the same id."""
        settings = ProducerSettings(
            request_timeout_s=REQUEST_TIMEOUT_S, delivery_timeout_s=TIMEOUT_S / 2, may_create_topics=False
        )
        producer = TransactionalProducer(
            self._clients[number],
            self.context.cluster.clock,
            self._names[number],
            settings,
            timeout_s=TIMEOUT_S,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        partitions = await self._topic()
        async with producer:
            for _ in range(most):
                if is_over():
                    return
                await self._transaction(number, producer, partitions)
                await self.pace(MAX_PAUSE_MS)

    async def _transaction(
        self, number: int, producer: TransactionalProducer, partitions: Sequence[TopicPartition]
    ) -> None:
        transaction = self.history.begin_transaction(f"{self._names[number]} of client {number}")
        deliveries: list[tuple[Delivery, Write]] = []
        producer.begin()
        try:
            await self._write(producer, partitions, transaction, deliveries)
            await self._end(producer, transaction, deliveries)
        except BaseException:
            if transaction.decision is Decision.OPEN:  # no commit was requested, and none will be
                transaction.decision = Decision.ABORTED
            raise

    async def _write(
        self,
        producer: TransactionalProducer,
        partitions: Sequence[TopicPartition],
        transaction: Transaction,
        deliveries: list[tuple[Delivery, Write]],
    ) -> None:
        for _ in range(1 + self.randomness.below(MAX_RECORDS)):
            target = self.one_of(partitions)
            write = self.begin_write(target, transaction)
            delivery = await producer.enqueue(target.topic, write.value, partition=target.partition)
            deliveries.append((delivery, write))
        if self.is_one_in(DAWDLE_ONE_IN):
            await self.rest(MAX_DAWDLE_MS)

    def begin_write(self, target: TopicPartition, transaction: Transaction) -> Write:
        self._sent += 1
        value = f"{self.value_prefix}{self._sent}".encode()
        return self.history.begin(Write(target, value, transaction.writer, transaction=transaction))

    async def _end(
        self, producer: TransactionalProducer, transaction: Transaction, deliveries: list[tuple[Delivery, Write]]
    ) -> None:
        match self.randomness.below(10):
            case 0:
                await self._flush_and_note(producer, deliveries)
                raise _Abandoned
            case 1 | 2:
                await self._flush_and_note(producer, deliveries)
                transaction.decision = Decision.ABORTED
                await producer.abort()
            case _:
                await self._commit(producer, transaction, deliveries)

    async def _commit(
        self, producer: TransactionalProducer, transaction: Transaction, deliveries: list[tuple[Delivery, Write]]
    ) -> None:
        await self._flush_and_note(producer, deliveries)
        transaction.decision = Decision.COMMITTING
        try:
            await producer.commit()
        except BaseException:
            transaction.decision = Decision.UNKNOWN
            raise
        transaction.decision = Decision.COMMITTED

    async def _flush_and_note(self, producer: TransactionalProducer, deliveries: list[tuple[Delivery, Write]]) -> None:
        try:
            await producer.flush()
        finally:
            for delivery, write in deliveries:
                await acknowledged(self.history, delivery, write)
