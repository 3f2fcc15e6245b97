"""Verification of transactions before a partition appends the first records of one (KIP-890).

The broker asks the transaction coordinator. Without verification a late batch could begin a transaction that never
ends, and block read_committed consumers for ever.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from tidelog.client.network.broker_request_queue import BrokerRequestQueue, Links, close_queues
from tidelog.client.network.connection import ConnectionLost
from tidelog.cluster.image import ClusterImage
from tidelog.cluster.topic_names import TRANSACTION_TOPIC
from tidelog.config.coordinators import CoordinatorSettings
from tidelog.errors import (
    ERRORS_BY_CODE,
    NO_ERROR,
    ClusterAuthorizationFailed,
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

RETRIABLE = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator, OperationNotAttempted)

Verdict = KafkaError | None
"""Error of the coordinator. None: the partition is part of the transaction."""


class Verification(NamedTuple):
    """Transaction to verify. `adds`: add the partition to it; otherwise the partition must be part of it already."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool


_Waiting: TypeAlias = dict[TopicPartition, list[Deferred[Verdict]]]
"""Verdicts of one transaction that are awaited, by partition."""
_PendingVerifications: TypeAlias = dict[Verification, _Waiting]
_VerificationQueue: TypeAlias = BrokerRequestQueue[Verification, _Waiting]


class TransactionVerifier:
    """Batches verifications by coordinator: one request in flight; later verifications go with the next one."""

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
        self._queues: dict[BrokerId, _VerificationQueue] = {}
        self._guarded: dict[tuple[VerificationGuard, Verification], list[Deferred[Verdict]]] = {}
        self._tasks = SideTasks(_on_failure)
        self._is_closed = False
        self.failures = 0
        """Number of partitions that could not be verified."""

    @property
    def is_enabled(self) -> bool:
        return self._settings().transaction_partition_verification_enable

    async def verify(self, verification: Verification, partition: TopicPartition) -> Verdict:
        """The coordinator's verdict. ConcurrentTransactions is retried while the previous transaction gets its markers.

        Markers take a few milliseconds, and every transaction of a busy producer waits for them. Therefore the first
        retry is early, and the delay doubles.
        """
        deadline_s = self._clock.monotonic() + self._settings().add_partitions_to_txn_retry_backoff_max_ms / 1000
        delay_s = FIRST_RETRY_S
        while True:
            verdict = await self._enqueue(verification, partition).wait()
            is_concurrent = verification.adds and isinstance(verdict, ConcurrentTransactions)
            if not is_concurrent or self._clock.monotonic() >= deadline_s:
                return verdict
            delay_s = min(delay_s, self._settings().add_partitions_to_txn_retry_backoff_ms / 1000)
            await asyncio.sleep(delay_s)
            delay_s *= 2

    def verify_guarded(
        self, verification: Verification, partition: TopicPartition, guard: VerificationGuard
    ) -> Deferred[Verdict]:
        """Verdict for a batch that is held back by `guard`, never complete on return.

        Verdicts of one guard are completed together, in order of arrival: batches of a producer keep their order.
        """
        verdict: Deferred[Verdict] = Deferred()
        key = (guard, verification)
        waiting = self._guarded.get(key)
        if waiting is None:
            self._guarded[key] = [verdict]
            self._tasks.start(self._verify_guarded(key, partition))
        else:
            waiting.append(verdict)
        return verdict

    async def _verify_guarded(self, key: tuple[VerificationGuard, Verification], partition: TopicPartition) -> None:
        verdict: Verdict = CoordinatorNotAvailable("this broker stops")
        try:
            verdict = await self.verify(key[1], partition)
        finally:
            for each in self._guarded.pop(key):
                each.resolve(verdict)

    async def close(self) -> None:
        self._is_closed = True
        await close_queues(self._queues.values())
        await self._tasks.cancel()

    # ---- requests to coordinators

    def _enqueue(self, verification: Verification, partition: TopicPartition) -> Deferred[Verdict]:
        verdict: Deferred[Verdict] = Deferred()
        coordinator = self._coordinator_of(verification.transactional_id)
        if coordinator == NO_BROKER or self._is_closed:
            self.failures += 1
            verdict.resolve(CoordinatorNotAvailable(f"no broker coordinates {verification.transactional_id!r} now"))
            return verdict
        queue = self._queue_to(coordinator)
        queue.queue[verification][partition].append(verdict)
        queue.run()
        return verdict

    def _coordinator_of(self, transactional_id: str) -> BrokerId:
        topic = self._image().topics.get(TRANSACTION_TOPIC)
        if topic is None:
            return NO_BROKER
        return topic.partitions[partition_for(coordinator_key(transactional_id), len(topic.partitions))].leader

    def _queue_to(self, coordinator: BrokerId) -> _VerificationQueue:
        queue = self._queues.get(coordinator)
        if queue is None:
            queue = self._queues[coordinator] = BrokerRequestQueue(
                lambda: self._send_to_coordinator(coordinator),
                key=lambda asked: asked.transactional_id,
                parts=lambda: defaultdict(list),
                max_items=MAX_TRANSACTIONS_PER_REQUEST,
            )
        return queue

    async def _send_to_coordinator(self, coordinator: BrokerId) -> None:
        pending = self._queues[coordinator].take()
        request = AddPartitionsToTxnRequest(
            [_message(verification, partitions) for verification, partitions in pending.items()]
        )
        try:
            response = await self._links.ask(coordinator, request, AddPartitionsToTxnResponse, TIMEOUT_S)
        except ConnectionLost as error:
            logger.info("failed to verify transactions coordinator=%d error=%s", coordinator, error)
            self._complete_all(pending, CoordinatorNotAvailable(f"broker {coordinator} did not answer: {error}"))
        except asyncio.CancelledError:
            self._complete_all(pending, CoordinatorNotAvailable("this broker stops"))
            raise
        else:
            self._on_response(pending, response)

    def _on_response(self, pending: _PendingVerifications, response: AddPartitionsToTxnResponse) -> None:
        if response.error_code != NO_ERROR:
            # A client cannot repair a missing authorisation of this broker: it gets an error of its transaction.
            is_unauthorized = response.error_code == ClusterAuthorizationFailed.code
            self._complete_all(pending, _error(InvalidTxnState.code if is_unauthorized else response.error_code))
            return
        results = {result.transactional_id: result for result in response.results_by_transaction}
        for verification, partitions in pending.items():
            codes = _codes(results.get(verification.transactional_id))
            for partition, waiting in partitions.items():
                self._complete(waiting, _error(codes.get(partition, UnknownServerError.code)))

    def _complete_all(self, pending: _PendingVerifications, verdict: Verdict) -> None:
        for partitions in pending.values():
            for waiting in partitions.values():
                self._complete(waiting, verdict)

    def _complete(self, waiting: Iterable[Deferred[Verdict]], verdict: Verdict) -> None:
        self.failures += verdict is not None
        for each in waiting:
            each.resolve(verdict)


def _on_failure(error: BaseException) -> None:
    logger.error("failed to verify transaction", exc_info=error)


def error_for_producer(error: KafkaError, verification: Verification, *, knows_abortable: bool) -> KafkaError:
    """Error that Kafka returns to a producer whose transaction was not verified.

    Producers from before KIP-890 part 2 have no better retriable error than NOT_ENOUGH_REPLICAS.
    """
    if isinstance(error, RETRIABLE) or (isinstance(error, ConcurrentTransactions) and not verification.adds):
        return NotEnoughReplicas(f"it is not known whether the partition is part of the transaction: {_named(error)}")
    if isinstance(error, TransactionAbortable) and not knows_abortable:
        error = InvalidTxnState(error.message)
    if isinstance(error, InvalidTxnState):
        return InvalidTxnState("the partition was not added to the transaction")
    return error


def _named(error: KafkaError) -> str:
    return f"{type(error).__name__} ({error.message})" if error.message else type(error).__name__


def _message(verification: Verification, partitions: Iterable[TopicPartition]) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=verification.transactional_id,
        producer_id=verification.producer_id,
        producer_epoch=verification.producer_epoch,
        verify_only=not verification.adds,
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
    # Producers expect this error for fencing here.
    return InvalidProducerEpoch("another producer has taken over") if error is ProducerFenced else error()
