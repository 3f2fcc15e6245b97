"""Whether a transaction goes on, asked of its coordinator before a partition takes the first records of it (KIP-890).

Without it a late batch could begin a transaction that nobody ends, and hold up readers of committed records for ever.
Questions to one broker go together: one request is under way, what comes meanwhile goes with the next.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from tidelog.client.connection import ConnectionLost
from tidelog.cluster.image import ClusterImage
from tidelog.config.broker import BrokerSettings
from tidelog.errors import (
    ERRORS_BY_CODE,
    NO_ERROR,
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    NotCoordinator,
    NotEnoughReplicas,
    OperationNotAttempted,
    ProducerFenced,
    TransactionAbortable,
    UnknownServerError,
)
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.protocol.transaction_groups import coordinator_key
from tidelog.replicated.partition_keys import partition_for
from tidelog.runtime.clock import Clock
from tidelog.storage.verifications import Verification
from tidelog.types import NO_BROKER, BrokerId, TopicPartition, indexes_by_topic

logger = logging.getLogger(__name__)

TRANSACTION_TOPIC = "__transaction_state"
TIMEOUT_S = 10.0
FIRST_RETRY_S = 0.002
MAX_TRANSACTIONS_PER_REQUEST = 1000
CLUSTER_AUTHORIZATION_FAILED = 31

RETRIABLE = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator, OperationNotAttempted)

Listener = Callable[[KafkaError | None], None]
"""Told None if the partition is part of the transaction."""


class Asked(NamedTuple):
    """A transaction, and whether the partition shall become part of it or is expected to be already."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool


class Links(Protocol):
    """What is needed of `BrokerLinks`."""

    async def ask(
        self,
        broker_id: BrokerId,
        request: AddPartitionsToTxnRequest,
        answer_type: type[AddPartitionsToTxnResponse],
        timeout_s: float,
    ) -> AddPartitionsToTxnResponse: ...


_Questions = dict[Asked, dict[TopicPartition, list[Listener]]]


class _Lane:
    """What one coordinator is to be asked."""

    __slots__ = ("task", "waiting")

    def __init__(self) -> None:
        self.waiting: _Questions = defaultdict(lambda: defaultdict(list))
        self.task: asyncio.Task[None] | None = None

    def take(self) -> _Questions:
        """For one request, in which each transactional id stands once."""
        taken: dict[str, Asked] = {}
        for asked in self.waiting:
            if len(taken) < MAX_TRANSACTIONS_PER_REQUEST:
                taken.setdefault(asked.transactional_id, asked)
        return {asked: self.waiting.pop(asked) for asked in taken.values()}


class TransactionVerifier:
    def __init__(
        self,
        links: Links,
        clock: Clock,
        image: Callable[[], ClusterImage],
        settings: Callable[[], BrokerSettings],
    ) -> None:
        self._links = links
        self._clock = clock
        self._image = image
        self._settings = settings
        self._lanes: dict[BrokerId, _Lane] = defaultdict(_Lane)
        self._confirming: dict[tuple[Verification, Asked], list[Listener]] = {}
        self._is_closed = False
        self.failures = 0
        """Partitions that could not be confirmed."""

    @property
    def is_enabled(self) -> bool:
        return self._settings().transaction_partition_verification_enable

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> dict[TopicPartition, KafkaError | None]:
        """The coordinator's word on each of them."""
        asked = Asked(transactional_id, producer_id, producer_epoch, adds)
        outcomes: dict[TopicPartition, KafkaError | None] = {}
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def note(partition: TopicPartition, error: KafkaError | None) -> None:
            outcomes[partition] = error
            if len(outcomes) == len(set(partitions)) and not done.done():
                done.set_result(None)

        for partition in set(partitions):
            self._ask(asked, partition, lambda error, partition=partition: note(partition, error))  # type: ignore[misc]
        if partitions:
            await done
        return outcomes

    def confirm(self, asked: Asked, partition: TopicPartition, verification: Verification, listener: Listener) -> None:
        """Ask for a batch that is guarded by `verification`. The listener is called once, never before this returns.

        Listeners of one guard are called one right after the other, in the order in which they came: the batches
        of a producer keep their order.
        """
        key = (verification, asked)
        waiting = self._confirming.get(key)
        if waiting is not None:
            waiting.append(listener)
            return
        self._confirming[key] = [listener]
        self._ask(asked, partition, lambda error: self._on_confirmed(key, error))

    def _on_confirmed(self, key: tuple[Verification, Asked], error: KafkaError | None) -> None:
        for listener in self._confirming.pop(key):
            listener(error)

    async def close(self) -> None:
        self._is_closed = True
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- asking

    def _ask(self, asked: Asked, partition: TopicPartition, listener: Listener) -> None:
        if asked.adds:
            listener = _Patience(self._ask_once, self._clock, self._settings, asked, partition, listener).on_answer
        self._ask_once(asked, partition, listener)

    def _ask_once(self, asked: Asked, partition: TopicPartition, listener: Listener) -> None:
        coordinator = self._coordinator_of(asked.transactional_id)
        if coordinator == NO_BROKER or self._is_closed:
            self.failures += 1
            error = CoordinatorNotAvailable(f"no broker coordinates {asked.transactional_id!r} now")
            asyncio.get_running_loop().call_soon(listener, error)
            return
        lane = self._lanes[coordinator]
        lane.waiting[asked][partition].append(listener)
        if lane.task is None:
            lane.task = asyncio.get_running_loop().create_task(self._run(coordinator, lane))

    def _coordinator_of(self, transactional_id: str) -> BrokerId:
        topic = self._image().topics.get(TRANSACTION_TOPIC)
        if topic is None:
            return NO_BROKER
        return topic.partitions[partition_for(coordinator_key(transactional_id), len(topic.partitions))].leader

    async def _run(self, coordinator: BrokerId, lane: _Lane) -> None:
        try:
            while lane.waiting:
                await self._ask_coordinator(coordinator, lane.take())
        finally:
            lane.task = None

    async def _ask_coordinator(self, coordinator: BrokerId, questions: _Questions) -> None:
        request = AddPartitionsToTxnRequest([_message(asked, partitions) for asked, partitions in questions.items()])
        try:
            answer = await self._links.ask(coordinator, request, AddPartitionsToTxnResponse, TIMEOUT_S)
        except ConnectionLost as error:
            logger.info("transactions could not be verified coordinator=%d error=%s", coordinator, error)
            self._tell_all(questions, CoordinatorNotAvailable(f"broker {coordinator} did not answer: {error}"))
        except asyncio.CancelledError:
            self._tell_all(questions, CoordinatorNotAvailable("this broker stops"))
            raise
        else:
            self._on_answer(questions, answer)

    def _on_answer(self, questions: _Questions, answer: AddPartitionsToTxnResponse) -> None:
        if answer.error_code != NO_ERROR:
            # That a broker is not trusted is nothing its clients could do anything about.
            code = InvalidTxnState.code if answer.error_code == CLUSTER_AUTHORIZATION_FAILED else answer.error_code
            self._tell_all(questions, _error(code))
            return
        results = {result.transactional_id: result for result in answer.results_by_transaction}
        for asked, partitions in questions.items():
            codes = _codes(results.get(asked.transactional_id))
            for partition, listeners in partitions.items():
                self._tell(listeners, _error(codes.get(partition, UnknownServerError.code)))

    def _tell_all(self, questions: _Questions, error: KafkaError | None) -> None:
        for partitions in questions.values():
            for listeners in partitions.values():
                self._tell(listeners, error)

    def _tell(self, listeners: Iterable[Listener], error: KafkaError | None) -> None:
        self.failures += error is not None
        for listener in listeners:
            try:
                listener(error)
            except Exception:
                logger.exception("what waited for a verification failed")


class _Patience:
    """A producer begins its next transaction while the markers of the one before are still on their way.

    These take a few milliseconds, and every transaction of a busy producer waits for them: it is asked soon, and then
    less and less often.
    """

    __slots__ = ("_ask", "_asked", "_clock", "_deadline_s", "_listener", "_next_delay_s", "_partition", "_settings")

    def __init__(
        self,
        ask: Callable[[Asked, TopicPartition, Listener], None],
        clock: Clock,
        settings: Callable[[], BrokerSettings],
        asked: Asked,
        partition: TopicPartition,
        listener: Listener,
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._settings = settings
        self._asked = asked
        self._partition = partition
        self._listener = listener
        self._deadline_s = clock.monotonic() + settings().add_partitions_to_txn_retry_backoff_max_ms / 1000
        self._next_delay_s = FIRST_RETRY_S

    def on_answer(self, error: KafkaError | None) -> None:
        if isinstance(error, ConcurrentTransactions) and self._clock.monotonic() < self._deadline_s:
            delay_s = min(self._next_delay_s, self._settings().add_partitions_to_txn_retry_backoff_ms / 1000)
            self._next_delay_s = 2 * delay_s
            asyncio.get_running_loop().call_later(delay_s, self._ask, self._asked, self._partition, self.on_answer)
        else:
            self._listener(error)


def told_to_producer(error: KafkaError, asked: Asked, *, knows_abortable: bool) -> KafkaError:
    """What Kafka answers to a produce whose transaction was not confirmed.

    Producers from before KIP-890 part two repeat a batch after NOT_ENOUGH_REPLICAS, and know no better error.
    """
    if isinstance(error, RETRIABLE) or (isinstance(error, ConcurrentTransactions) and not asked.adds):
        return NotEnoughReplicas(f"it is not known whether the partition is part of the transaction: {_named(error)}")
    if isinstance(error, TransactionAbortable) and not knows_abortable:
        error = InvalidTxnState(error.message)
    if isinstance(error, InvalidTxnState):
        return InvalidTxnState("the partition was not added to the transaction")
    return error


def _named(error: KafkaError) -> str:
    return f"{type(error).__name__} ({error.message})" if error.message else type(error).__name__


def _message(asked: Asked, partitions: Iterable[TopicPartition]) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=asked.transactional_id,
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        verify_only=not asked.adds,
        topics=[AddPartitionsToTxnTopic(name, indexes) for name, indexes in indexes_by_topic(partitions).items()],
    )


def _codes(result: AddPartitionsToTxnResult | None) -> dict[TopicPartition, int]:
    if result is None:
        return {}
    return {
        TopicPartition(topic.name, partition.partition_index): partition.partition_error_code
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }


def _error(code: int) -> KafkaError | None:
    if code == NO_ERROR:
        return None
    error = ERRORS_BY_CODE.get(code, UnknownServerError)
    # Producers expect to hear of a successor in this form here.
    return InvalidProducerEpoch("another producer has taken over") if error is ProducerFenced else error()
