"""Produce: append one batch to each of some partitions, and answer as `acks` asks for."""

import logging
import struct
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeAlias

from tidelog.cluster.topic_names import is_internal
from tidelog.errors import (
    NO_ERROR,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopic,
    InvalidTxnState,
    KafkaError,
    OutOfOrderSequenceNumber,
    RecordsRefused,
    RequestTimedOut,
    TransactionalIdAuthorizationFailed,
    UnknownServerError,
    UnsupportedCompressionType,
)
from tidelog.protocol.compression import Codec
from tidelog.protocol.messages.produce import (
    TOPIC_IDS_FROM_VERSION,
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.protocol.record_batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from tidelog.replication.partition import ACKS_ALL, Partition
from tidelog.runtime.deferred import Deferred
from tidelog.runtime.purgatory import DelayedOperation, Watchers
from tidelog.server.commit_waits import CommitWait
from tidelog.server.connection import Held
from tidelog.server.dispatch import Call
from tidelog.server.leader_hints import add_leaders_to_produce
from tidelog.server.sliced_requests import MANY
from tidelog.storage.record_checks import UndecodableBatch
from tidelog.storage.validation import AppendOrigin, NeedsSlices, PreparedBatch, only_batch
from tidelog.storage.verification_guards import VerificationGuard
from tidelog.transactions.verifier import Verification, error_for_producer
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

ZSTD_FROM_VERSION = 7
ABORTABLE_FROM_VERSION = 11
ADDS_TO_TRANSACTION_FROM_VERSION = 12
ACKS_ALLOWED = (0, 1, ACKS_ALL)
LENGTH = struct.Struct(">8xi")
MAGIC_POSITION = 16
LOW_ATTRIBUTES_BYTE = 22

ERRORS_THAT_TELL_THE_LOG_START = (
    RecordsRefused,
    UndecodableBatch,
    OutOfOrderSequenceNumber,
    InvalidProducerEpoch,
    InvalidTxnState,
)
"""Found while appending: a producer may learn from the log start that its state was deleted with old records."""

ProduceOutcome: TypeAlias = (
    ProduceResponse | Deferred[ProduceResponse] | Coroutine[Any, Any, ProduceResponse | None] | None
)


def handle_produce(request: ProduceRequest, call: Call) -> ProduceOutcome:
    if call.connection.is_held or _is_divided(request, call):
        outcome = _append_in_turn(_with_own_memory(request), call, call.connection.hold())
        return _to_the_end(outcome, request, call)
    appends = _Appends(request, call)
    response = appends.begin(request)
    if appends.long_batches:
        outcome = _check_first(request, response, appends, call, call.connection.hold())
        return _to_the_end(outcome, request, call)
    if appends.unverified or (appends.unflushed and request.acks != 0):
        return _finish(request, response, appends, call)
    if request.acks == 0:
        _close_if_failed(response, call)
        return None
    return _answer(request, response, appends.waits, call)


def _is_divided(request: ProduceRequest, call: Call) -> bool:
    """Whether its appends, each of which is one step, are too many for one turn of the loop."""
    topics = request.topic_data
    if len(topics) == 1:
        return len(topics[0].partition_data) > MANY
    return sum(len(topic.partition_data) for topic in topics) > MANY


def _to_the_end(
    outcome: Coroutine[Any, Any, ProduceResponse | None], request: ProduceRequest, call: Call
) -> ProduceOutcome:
    """A client that wants no answer may leave at once, and its records are appended all the same."""
    if request.acks != 0:
        return outcome

    async def finish() -> None:
        try:
            await outcome
        except Exception:
            call.connection.channel.close("the broker failed on a request")
            raise

    call.services.spawn(finish())
    return None


def _with_own_memory(request: ProduceRequest) -> ProduceRequest:
    """The frame is gone by the time it is looked at again."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))
    return request


async def _append_in_turn(request: ProduceRequest, call: Call, held: Held) -> ProduceResponse | None:
    """In the order they came: an earlier request may still be checked, and later ones wait for this."""
    try:
        await held.wait_for_those_ahead()
        appends = _Appends(request, call)
        response = await appends.begin_in_slices(request) if _is_divided(request, call) else appends.begin(request)
    except BaseException:
        held.release()
        raise
    return await _check_first(request, response, appends, call, held)


async def _check_first(
    request: ProduceRequest, response: ProduceResponse, appends: "_Appends", call: Call, held: Held
) -> ProduceResponse | None:
    # Each is let go of when it is done: batch and appends know each other, and a cycle keeps megabytes for long.
    try:
        while appends.long_batches:
            await appends.long_batches.pop(0).check_and_append()
    finally:
        appends.long_batches.clear()
        held.release()
    return await _finish(request, response, appends, call)


async def _finish(
    request: ProduceRequest, response: ProduceResponse, appends: "_Appends", call: Call
) -> ProduceResponse | None:
    """Wait for what must happen before it is answered: verification, flushes, replication."""
    for (_, answers, position), appended in appends.unverified:
        answers[position] = await appended.wait()
    if request.acks == 0:
        _close_if_failed(response, call)
        return None
    await _flush(appends)
    outcome = _answer(request, response, appends.waits, call)
    return outcome if isinstance(outcome, ProduceResponse) else await outcome.wait()


async def _flush(appends: "_Appends") -> None:
    """flush.messages promises that what is acknowledged has reached the disk."""
    for partition, answer in appends.unflushed:
        try:
            await partition.log.flush()
        except KafkaError as error:
            answer.error_code, answer.error_message, answer.base_offset = error.code, error.message, -1


def _answer(
    request: ProduceRequest, response: ProduceResponse, waits: list["_Wait"], call: Call
) -> ProduceResponse | Deferred[ProduceResponse]:
    if waits and not all(wait.is_over() for wait in waits):
        return _wait_for_replication(request, response, waits, call)
    _end_waits(waits)
    add_leaders_to_produce(response, call)
    return response


class _Appends:
    """What is still to be done for the appends of one request before it is answered."""

    __slots__ = ("acks", "call", "long_batches", "transactional_id", "unflushed", "unverified", "waits")

    def __init__(self, request: ProduceRequest, call: Call) -> None:
        self.call = call
        self.acks = request.acks
        self.transactional_id = request.transactional_id
        self.waits: list[_Wait] = []
        self.unflushed: list[tuple[Partition, PartitionProduceResponse]] = []
        self.unverified: list[tuple[_Place, Deferred[PartitionProduceResponse]]] = []
        """Batches that wait for the coordinator of their transaction."""
        self.long_batches: list[_LongBatch] = []
        """Batches that are checked in slices before they are appended."""

    def begin(self, request: ProduceRequest) -> ProduceResponse:
        """Append what can be appended now; the answers to the others stand in for what will come."""
        return ProduceResponse([_append_to_topic(topic, self) for topic in request.topic_data])

    async def begin_in_slices(self, request: ProduceRequest) -> ProduceResponse:
        turns = self.call.services.turns
        response = ProduceResponse([])
        await turns.wait()
        for topic in request.topic_data:
            answers: list[PartitionProduceResponse] = []
            response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
            for data in topic.partition_data:
                _append_or_fail(topic, data, answers, self)
                if turns.is_slice_over():
                    await turns.wait(is_continued=True)
        return response


class _Wait(CommitWait):
    """An acks=all append, and what it is answered with."""

    __slots__ = ("answer",)

    def __init__(self, partition: Partition, end_offset: int, answer: PartitionProduceResponse) -> None:
        super().__init__(partition, end_offset)
        self.answer = answer


def _append_to_topic(topic: TopicProduceData, appends: _Appends) -> TopicProduceResponse:
    answers: list[PartitionProduceResponse] = []
    for data in topic.partition_data:
        _append_or_fail(topic, data, answers, appends)
    return TopicProduceResponse(topic.name, topic.topic_id, answers)


def _append_or_fail(
    topic: TopicProduceData, data: PartitionProduceData, answers: list[PartitionProduceResponse], appends: _Appends
) -> None:
    try:
        answers.append(_append(topic, data, answers, appends))
    except KafkaError as error:
        answers.append(_failed(data.index, error))


def _append(
    topic: TopicProduceData, data: PartitionProduceData, answers: list[PartitionProduceResponse], appends: _Appends
) -> PartitionProduceResponse:
    call = appends.call
    name = topic.name if call.version < TOPIC_IDS_FROM_VERSION else call.services.cluster.topic_name(topic.topic_id)
    batch = data.records
    if appends.acks not in ACKS_ALLOWED:
        raise InvalidRequiredAcks(f"acks={appends.acks}; allowed are 0, 1 and -1")
    if batch is None:
        raise InvalidRecord("a produce request carries exactly one record batch per partition")
    if (
        len(batch) < HEADER_BYTES
        or LENGTH.unpack_from(batch)[0] != len(batch) - LENGTH_OVERHEAD_BYTES
        or batch[MAGIC_POSITION] != MAGIC
    ):
        batch = only_batch(batch)
    if is_internal(name):
        raise InvalidTopic(f"{name} is internal: only brokers write to it")
    if call.version < ZSTD_FROM_VERSION and batch[LOW_ATTRIBUTES_BYTE] & COMPRESSION_MASK == Codec.ZSTD:
        raise UnsupportedCompressionType(f"zstd needs version {ZSTD_FROM_VERSION} of Produce, not {call.version}")
    try:
        if batch[LOW_ATTRIBUTES_BYTE] & TRANSACTIONAL_BIT:
            return _verify_and_append(_Place.of(name, data.index, answers), batch, appends, None)
        return _append_to(name, data.index, batch, appends)
    except NeedsSlices:
        appends.long_batches.append(_LongBatch(_Place.of(name, data.index, answers), batch, appends))
        return _failed(data.index, RequestTimedOut("the batch was not checked in time"))


def _verify_and_append(
    place: "_Place", batch: memoryview, appends: _Appends, prepared: PreparedBatch | None
) -> PartitionProduceResponse:
    """A batch that begins a transaction in its partition waits for the transaction's coordinator (KIP-890)."""
    services, topic_partition = appends.call.services, place.topic_partition
    header = read_header(batch)
    asked = _question(header, appends)
    partition = services.partition(*topic_partition)
    partition.require_leader()
    guard = None
    if asked.adds or services.verifier.is_enabled:
        if prepared is None:
            partition.log.require_short(batch)
        guard = partition.log.producers.begin_verification(header, services.clock.now_ms(), starts_at_zero=asked.adds)
    if guard is None:  # its transaction goes on here already, or nobody wants to know
        return _append_to(*topic_partition, batch, appends, prepared)
    verdict = services.verifier.verify_guarded(asked, topic_partition, guard)
    held = _HeldBatch(topic_partition, memoryview(bytearray(batch)), header, prepared)  # the frame is gone by then
    appended = verdict.map(lambda refusal: held.append(refusal, asked, guard, appends))
    appended.on_abandoned = None  # a client that leaves has its records appended all the same
    appends.unverified.append((place, appended))
    return _failed(topic_partition.partition, RequestTimedOut("the transaction was not confirmed in time"))


def _question(header: BatchHeader, appends: _Appends) -> Verification:
    if appends.transactional_id is None:
        raise TransactionalIdAuthorizationFailed("the batch is part of a transaction, and the request does not name it")
    if header.producer_id < 0:
        raise InvalidTxnState("the batch is part of a transaction, and does not say whose")
    adds = appends.call.version >= ADDS_TO_TRANSACTION_FROM_VERSION
    return Verification(appends.transactional_id, header.producer_id, header.producer_epoch, adds)


def _append_to(
    name: str, index: int, batch: memoryview, appends: _Appends, prepared: PreparedBatch | None = None
) -> PartitionProduceResponse:
    services = appends.call.services
    partition = services.partition(name, index)
    try:
        result = partition.append_as_leader(batch, appends.acks, AppendOrigin.CLIENT, prepared)
    except KafkaError as error:
        partition.traffic.count_failed_produce(error)
        if isinstance(error, ERRORS_THAT_TELL_THE_LOG_START):
            return _failed(index, error, partition.log.log_start_offset)
        raise
    answer = PartitionProduceResponse(
        index, NO_ERROR, result.first_offset, result.log_append_time_ms, result.log_start_offset
    )
    if appends.acks == ACKS_ALL:
        appends.waits.append(_Wait(partition, result.last_offset + 1, answer))
    if partition.log.is_flush_due:
        appends.unflushed.append((partition, answer))
    return answer


class _Place(NamedTuple):
    """Where an append goes, and its answer."""

    topic_partition: TopicPartition
    answers: list[PartitionProduceResponse]
    position: int

    @classmethod
    def of(cls, name: str, index: int, answers: list[PartitionProduceResponse]) -> "_Place":
        return cls(TopicPartition(name, index), answers, len(answers))


class _LongBatch:
    """Too long to be checked in one turn of the event loop."""

    __slots__ = ("_appends", "_batch", "_place")

    def __init__(self, place: _Place, batch: memoryview, appends: _Appends) -> None:
        self._place = place
        self._batch = memoryview(bytearray(batch))  # the frame is gone by then
        self._appends = appends

    async def check_and_append(self) -> None:
        topic_partition, answers, position = self._place
        try:
            answer = await self._checked_append()
        except KafkaError as error:
            answer = _failed(topic_partition.partition, error)
        answers[position] = answer

    async def _checked_append(self) -> PartitionProduceResponse:
        services, index = self._appends.call.services, self._place.topic_partition.partition
        partition = services.partition(*self._place.topic_partition)
        partition.require_leader()
        try:
            prepared = await services.long_checks.prepare(self._batch, partition.log.settings, services.clock.now_ms())
        except KafkaError as error:
            partition.traffic.count_failed_produce(error)
            if isinstance(error, ERRORS_THAT_TELL_THE_LOG_START):
                return _failed(index, error, partition.log.log_start_offset)
            raise
        if self._batch[LOW_ATTRIBUTES_BYTE] & TRANSACTIONAL_BIT:
            return _verify_and_append(self._place, self._batch, self._appends, prepared)
        return _append_to(*self._place.topic_partition, self._batch, self._appends, prepared)


class _HeldBatch(NamedTuple):
    """A batch that waits until its transaction is verified."""

    topic_partition: TopicPartition
    batch: memoryview
    header: BatchHeader
    prepared: PreparedBatch | None

    def append(
        self, refusal: KafkaError | None, asked: Verification, guard: VerificationGuard, appends: _Appends
    ) -> PartitionProduceResponse:
        """Checks the guard again in the step that appends, or an end marker could come in between."""
        index = self.topic_partition.partition
        try:
            if refusal is not None:
                knows_abortable = appends.call.version >= ABORTABLE_FROM_VERSION
                return _failed(index, error_for_producer(refusal, asked, knows_abortable=knows_abortable))
            log = appends.call.services.replicas.get(*self.topic_partition).log
            try:
                log.producers.check_verified(self.header, guard)
            except ERRORS_THAT_TELL_THE_LOG_START as error:
                return _failed(index, error, log.log_start_offset)
            return _append_to(*self.topic_partition, self.batch, appends, self.prepared)
        except KafkaError as error:
            return _failed(index, error)
        except Exception:
            logger.exception("a batch could not be appended partition=%s", self.topic_partition)
            return _failed(index, UnknownServerError("the broker failed on the batch"))


def _failed(index: int, error: KafkaError, log_start_offset: int = -1) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=log_start_offset,
        record_errors=_record_errors(error),
        error_message=error.message,
    )


def _record_errors(error: KafkaError) -> list[BatchIndexAndErrorMessage]:
    """KIP-467: which records are to blame, so that a producer can drop just them."""
    blamed = error.record_errors if isinstance(error, RecordsRefused) else ()
    return [BatchIndexAndErrorMessage(record.batch_index, record.message) for record in blamed]


def _close_if_failed(response: ProduceResponse, call: Call) -> None:
    """A client that asked for no answer learns of a failure by losing its connection."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != NO_ERROR:
                call.connection.channel.close(f"acks=0 and the append failed: {partition.error_message}")
                return


def _end_waits(waits: list[_Wait]) -> None:
    for wait in waits:
        error = wait.failure()
        if error is not None:
            wait.answer.error_code = error.code
            wait.answer.error_message = error.message
            wait.answer.base_offset = -1


class DelayedProduce(DelayedOperation):
    """Holds the answer back until every append in it is replicated, or cannot be any more."""

    __slots__ = ("_call", "_deferred", "_response", "_unreplicated", "_waits")

    kind = "Produce"

    def __init__(
        self, waits: list[_Wait], response: ProduceResponse, deferred: Deferred[ProduceResponse], call: Call
    ) -> None:
        super().__init__()
        self._call = call
        self._waits = waits
        self._unreplicated = list(waits)
        self._response = response
        self._deferred = deferred

    def is_satisfied(self, changed: Watchers) -> bool:
        waits = self._unreplicated
        while waits and waits[-1].is_committed:
            waits.pop()  # not asked again: each of thousands of partitions may be the one that changed
        return all(wait.is_over() for wait in waits)

    def on_completed(self) -> None:
        _end_waits(self._waits)
        add_leaders_to_produce(self._response, self._call)
        self._deferred.resolve(self._response)


def _wait_for_replication(
    request: ProduceRequest, response: ProduceResponse, waits: list[_Wait], call: Call
) -> Deferred[ProduceResponse]:
    deferred: Deferred[ProduceResponse] = Deferred()
    operation = DelayedProduce(waits, response, deferred, call)
    deferred.on_abandoned = operation.abandon
    watched = [wait.partition.watchers for wait in waits]
    call.services.purgatory.wait(operation, watched, request.timeout_ms / 1000)
    return deferred
