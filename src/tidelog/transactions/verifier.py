"""Verification of transactions before a partition appends the first records of one (KIP-890).

The coordinator of the transaction is asked. Without it a late batch could begin a transaction that nobody ends, and
hold up readers of committed records for ever.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tidelog.client.network.connection import ConnectionLost
from tidelog.client.network.lanes import BrokerLane, Links, close_lanes
from tidelog.cluster.image import ClusterImage
from tidelog.cluster.topic_names import TRANSACTION_TOPIC
from tidelog.config.coordinators import CoordinatorSettings
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
from tidelog.runtime.deferred import Deferred
from tidelog.runtime.side_tasks import SideTasks
from tidelog.storage.verification_guards import VerificationGuard
from tidelog.types import NO_BROKER, BrokerId, TopicPartition, indexes_by_topic

logger = logging.getLogger(__name__)

TIMEOUT_S = 10.0
FIRST_RETRY_S = 0.002
MAX_TRANSACTIONS_PER_REQUEST = 1000
CLUSTER_AUTHORIZATION_FAILED = 31

RETRIABLE = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator, OperationNotAttempted)

Verdict = KafkaError | None
"""Of the coordinator. None: the partition is part of the transaction."""


class Asked(NamedTuple):
    """A transaction, and whether the partition shall become part of it or is expected to be already."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool


_Questions = dict[Asked, dict[TopicPartition, list[Deferred[Verdict]]]]


class TransactionVerifier:
    """Questions to one broker go together: one request is under way, what comes meanwhile goes with the next."""

    def __init__(
        self,
        links: Links,
        clock: Clock,
        image: Callable[[], ClusterImage],
        settings: Callable[[], CoordinatorSettings],
    ) -> None:
        self._links = links
        self._clock = clock
        self._image = image
        self._settings = settings
        self._lanes: dict[BrokerId, BrokerLane[Asked, dict[TopicPartition, list[Deferred[Verdict]]]]] = {}
        self._guarded: dict[tuple[VerificationGuard, Asked], list[Deferred[Verdict]]] = {}
        self._tasks = SideTasks(_on_failure)
        self._is_closed = False
        self.failures = 0
        """Partitions that could not be confirmed."""

    @property
    def is_enabled(self) -> bool:
        return self._settings().transaction_partition_verification_enable

    async def verify(self, asked: Asked, partition: TopicPartition) -> Verdict:
        """Asked again for a while if the transaction shall begin, and the markers of the one before are on their way.

        These take a few milliseconds, and every transaction of a busy producer waits for them: it is asked again soon,
        and then less and less often.
        """
        deadline_s = self._clock.monotonic() + self._settings().add_partitions_to_txn_retry_backoff_max_ms / 1000
        delay_s = FIRST_RETRY_S
        while True:
            verdict = await self._ask(asked, partition).wait()
            is_concurrent = asked.adds and isinstance(verdict, ConcurrentTransactions)
            if not is_concurrent or self._clock.monotonic() >= deadline_s:
                return verdict
            delay_s = min(delay_s, self._settings().add_partitions_to_txn_retry_backoff_ms / 1000)
            await asyncio.sleep(delay_s)
            delay_s *= 2

    def verify_guarded(self, asked: Asked, partition: TopicPartition, guard: VerificationGuard) -> Deferred[Verdict]:
        """For a batch that is held back by `guard`; completed after this returns.

        Those of one guard are completed one right after the other, in the order in which they came: the batches of a
        producer keep their order.
        """
        verdict: Deferred[Verdict] = Deferred()
        key = (guard, asked)
        waiting = self._guarded.get(key)
        if waiting is None:
            self._guarded[key] = [verdict]
            self._tasks.start(self._verify_guarded(key, partition))
        else:
            waiting.append(verdict)
        return verdict

    async def _verify_guarded(self, key: tuple[VerificationGuard, Asked], partition: TopicPartition) -> None:
        verdict: Verdict = CoordinatorNotAvailable("this broker stops")
        try:
            verdict = await self.verify(key[1], partition)
        finally:
            for each in self._guarded.pop(key):
                each.resolve(verdict)

    async def close(self) -> None:
        self._is_closed = True
        await close_lanes(self._lanes.values())
        await self._tasks.cancel()

    # ---- asking coordinators

    def _ask(self, asked: Asked, partition: TopicPartition) -> Deferred[Verdict]:
        verdict: Deferred[Verdict] = Deferred()
        coordinator = self._coordinator_of(asked.transactional_id)
        if coordinator == NO_BROKER or self._is_closed:
            self.failures += 1
            verdict.resolve(CoordinatorNotAvailable(f"no broker coordinates {asked.transactional_id!r} now"))
            return verdict
        lane = self._lane_to(coordinator)
        lane.queue[asked][partition].append(verdict)
        lane.run()
        return verdict

    def _coordinator_of(self, transactional_id: str) -> BrokerId:
        topic = self._image().topics.get(TRANSACTION_TOPIC)
        if topic is None:
            return NO_BROKER
        return topic.partitions[partition_for(coordinator_key(transactional_id), len(topic.partitions))].leader

    def _lane_to(self, coordinator: BrokerId) -> BrokerLane[Asked, dict[TopicPartition, list[Deferred[Verdict]]]]:
        lane = self._lanes.get(coordinator)
        if lane is None:
            lane = self._lanes[coordinator] = BrokerLane(
                lambda: self._ask_coordinator(coordinator),
                key=lambda asked: asked.transactional_id,
                parts=lambda: defaultdict(list),
                max_items=MAX_TRANSACTIONS_PER_REQUEST,
            )
        return lane

    async def _ask_coordinator(self, coordinator: BrokerId) -> None:
        questions = self._lanes[coordinator].take()
        request = AddPartitionsToTxnRequest([_message(asked, partitions) for asked, partitions in questions.items()])
        try:
            answer = await self._links.ask(coordinator, request, AddPartitionsToTxnResponse, TIMEOUT_S)
        except ConnectionLost as error:
            logger.info("transactions could not be verified coordinator=%d error=%s", coordinator, error)
            self._complete_all(questions, CoordinatorNotAvailable(f"broker {coordinator} did not answer: {error}"))
        except asyncio.CancelledError:
            self._complete_all(questions, CoordinatorNotAvailable("this broker stops"))
            raise
        else:
            self._on_answer(questions, answer)

    def _on_answer(self, questions: _Questions, answer: AddPartitionsToTxnResponse) -> None:
        if answer.error_code != NO_ERROR:
            # That a broker is not trusted is nothing its clients could do anything about.
            code = InvalidTxnState.code if answer.error_code == CLUSTER_AUTHORIZATION_FAILED else answer.error_code
            self._complete_all(questions, _error(code))
            return
        results = {result.transactional_id: result for result in answer.results_by_transaction}
        for asked, partitions in questions.items():
            codes = _codes(results.get(asked.transactional_id))
            for partition, waiting in partitions.items():
                self._complete(waiting, _error(codes.get(partition, UnknownServerError.code)))

    def _complete_all(self, questions: _Questions, verdict: Verdict) -> None:
        for partitions in questions.values():
            for waiting in partitions.values():
                self._complete(waiting, verdict)

    def _complete(self, waiting: Iterable[Deferred[Verdict]], verdict: Verdict) -> None:
        self.failures += verdict is not None
        for each in waiting:
            each.resolve(verdict)


def _on_failure(error: BaseException) -> None:
    logger.error("a transaction could not be verified", exc_info=error)


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


def _error(code: int) -> Verdict:
    if code == NO_ERROR:
        return None
    error = ERRORS_BY_CODE.get(code, UnknownServerError)
    # Producers expect to hear of a successor in this form here.
    return InvalidProducerEpoch("another producer has taken over") if error is ProducerFenced else error()
