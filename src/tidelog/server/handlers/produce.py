"""Produce (API key 0): appends one record batch to each partition, and answers according to `acks`.

Most requests are appended in one step. Long batches, requests with very many partitions and new transactions wait
first; requests behind them on the same connection are held, so that appends keep their order.
"""

import logging
import struct
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeAlias

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.cluster.topic_names import INTERNAL_TOPICS
from tidelog.errors import (
    NO_ERROR,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopic,
    InvalidTxnState,
    KafkaError,
    OutOfOrderSequenceNumber,
    RecordsRejected,
    RequestTimedOut,
    RetriableError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)
from tidelog.protocol.compression import Codec
from tidelog.protocol.messages.produce import (
    TOPIC_IDS_FROM_VERSION,
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
    LOW_ATTRIBUTES_POSITION,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from tidelog.replication.partition import ACKS_ALL, Partition
from tidelog.runtime.deferred import Deferred, awaited
from tidelog.server.connection import HeldRequest
from tidelog.server.delayed_produce import AppendWait, end_waits, wait_for_replication
from tidelog.server.dispatch import RequestContext
from tidelog.server.leader_hints import add_leaders_to_produce
from tidelog.server.produce_responses import close_if_failed, confirm_order, failed, rejected
from tidelog.server.refused_batches import ClientPartition
from tidelog.server.sliced_requests import MANY
from tidelog.storage.producer_state import ProducerStateManager
from tidelog.storage.record_checks import UndecodableBatch
from tidelog.storage.validation import AppendOrigin, NeedsSlices, PreparedBatch, only_batch
from tidelog.storage.verification_guards import VerificationGuard
from tidelog.transactions.verifier import Verification, error_for_producer
from tidelog.types import Buffer, TopicPartition

logger = logging.getLogger(__name__)

ZSTD_FROM_VERSION = 7
ABORTABLE_FROM_VERSION = 11
ADDS_TO_TRANSACTION_FROM_VERSION = 12
ACKS_ALLOWED = (0, 1, ACKS_ALL)
CLIENT = AppendOrigin.CLIENT  # looking up an enum member takes ten times as long as a name
LENGTH = struct.Struct(">8xi")

ERRORS_WITH_LOG_START = (
    RecordsRejected,
    UndecodableBatch,
    OutOfOrderSequenceNumber,
    InvalidProducerEpoch,
    InvalidTxnState,
)
"""Errors of an append. From the log start a producer learns that its state was deleted with old records."""

ProduceOutcome: TypeAlias = (
    ProduceResponse | Deferred[ProduceResponse] | Coroutine[Any, Any, ProduceResponse | None] | None
)


def handle_produce(request: ProduceRequest, context: RequestContext) -> ProduceOutcome:
    if context.services.authorizer is not None and _is_transaction_denied(request, context):
        return _reject_transaction(request, context)
    topics = request.topic_data
    if context.connection.is_held or (
        len(topics[0].partition_data) > MANY if len(topics) == 1 else _is_divided(request)
    ):
        outcome = _append_in_turn(_with_own_memory(request), context, context.connection.hold())
        return _even_if_disconnected(outcome, request, context)
    appends = _Appends(request, context)
    response = ProduceResponse([_append_to_topic(topics[0], appends)]) if len(topics) == 1 else appends.begin(request)
    if appends.long_batches:
        outcome = _append_long_batches(request, response, appends, context, context.connection.hold())
        return _even_if_disconnected(outcome, request, context)
    if appends.unverified or ((appends.unflushed or appends.unconfirmed) and request.acks != 0):
        return _finish(request, response, appends, context)
    if request.acks == 0:
        close_if_failed(response, context.connection.channel)
        return None
    if appends.waits or appends.has_error:
        return _answer(request, response, appends.waits, context)
    return response


def _is_transaction_denied(request: ProduceRequest, context: RequestContext) -> bool:
    batches = [data.records for topic in request.topic_data for data in topic.partition_data if data.records]
    if not any(len(each) >= HEADER_BYTES and each[LOW_ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT for each in batches):
        return False
    transactional_id = request.transactional_id
    return transactional_id is None or context.is_denied(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    )


def _reject_transaction(request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
    response = rejected(request, TransactionalIdAuthorizationFailed())
    if request.acks != 0:
        return response
    close_if_failed(response, context.connection.channel)
    return None


def _is_divided(request: ProduceRequest) -> bool:
    """Whether the request has too many appends for one loop turn."""
    return sum(len(topic.partition_data) for topic in request.topic_data) > MANY


def _even_if_disconnected(
    outcome: Coroutine[Any, Any, ProduceResponse | None], request: ProduceRequest, context: RequestContext
) -> ProduceOutcome:
    """With acks=0 the client may disconnect at once; its records are appended all the same."""
    if request.acks != 0:
        return outcome

    async def finish() -> None:
        try:
            await outcome
        except Exception:
            context.connection.channel.close("the broker failed on a request")
            raise

    context.services.spawn(finish())
    return None


def _with_own_memory(request: ProduceRequest) -> ProduceRequest:
    """Copy the records: the frame is reused before they are appended."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))
    return request


async def _append_in_turn(
    request: ProduceRequest, context: RequestContext, held: HeldRequest
) -> ProduceResponse | None:
    """Append after all earlier requests of the connection; later ones wait for this one."""
    try:
        await held.wait_for_predecessor()
        appends = _Appends(request, context)
        response = await appends.begin_in_slices(request) if _is_divided(request) else appends.begin(request)
    except BaseException:
        held.release()
        raise
    return await _append_long_batches(request, response, appends, context, held)


async def _append_long_batches(
    request: ProduceRequest, response: ProduceResponse, appends: "_Appends", context: RequestContext, held: HeldRequest
) -> ProduceResponse | None:
    # Pop each batch when it is done: batch and appends refer to each other, and the cycle would keep megabytes.
    try:
        while appends.long_batches:
            await appends.long_batches.pop(0).check_and_append()
    finally:
        appends.long_batches.clear()
        held.release()
    return await _finish(request, response, appends, context)


async def _finish(
    request: ProduceRequest, response: ProduceResponse, appends: "_Appends", context: RequestContext
) -> ProduceResponse | None:
    """Wait for verification, confirmation, flush and replication, then answer."""
    for slot, appended in appends.unverified:
        slot.responses[slot.position] = await appended.wait()
    if request.acks == 0:
        close_if_failed(response, context.connection.channel)
        return None
    await confirm_order(appends.unconfirmed, context.services.replicas.leader_confirmation)
    await _flush(appends)
    return await awaited(_answer(request, response, appends.waits, context))


async def _flush(appends: "_Appends") -> None:
    """With flush.messages, acknowledged records are on disk."""
    for partition, response in appends.unflushed:
        try:
            await partition.log.flush()
        except KafkaError as error:
            response.error_code, response.error_message, response.base_offset = error.code, error.message, -1


def _answer(
    request: ProduceRequest, response: ProduceResponse, waits: list[AppendWait], context: RequestContext
) -> ProduceResponse | Deferred[ProduceResponse]:
    if waits:
        if not all(wait.is_over() for wait in waits):
            return wait_for_replication(request, response, waits, context)
        end_waits(waits)
    add_leaders_to_produce(response, context)
    return response


class _Appends:
    """The appends of one request, and the work to do before its response."""

    __slots__ = (
        "acks",
        "context",
        "has_error",
        "long_batches",
        "transactional_id",
        "unconfirmed",
        "unflushed",
        "unverified",
        "waits",
    )

    def __init__(self, request: ProduceRequest, context: RequestContext) -> None:
        self.context = context
        self.acks = request.acks
        self.transactional_id = request.transactional_id
        self.has_error = False
        self.waits: list[AppendWait] = []
        self.unflushed: list[tuple[Partition, PartitionProduceResponse]] = []
        self.unconfirmed: list[tuple[Partition, PartitionProduceResponse]] = []
        """Batches out of order. Producers take that error for final: ask the store first who leads."""
        self.unverified: list[tuple[_Slot, Deferred[PartitionProduceResponse]]] = []
        """Batches that wait for their transaction coordinator."""
        self.long_batches: list[_LongBatch] = []
        """Batches that are validated in slices before they are appended."""

    def begin(self, request: ProduceRequest) -> ProduceResponse:
        """Append all batches that need no waiting. The others get a timeout error, replaced when they are done."""
        return ProduceResponse([_append_to_topic(topic, self) for topic in request.topic_data])

    async def begin_in_slices(self, request: ProduceRequest) -> ProduceResponse:
        turns = self.context.services.turns
        response = ProduceResponse([])
        await turns.wait()
        for topic in request.topic_data:
            responses: list[PartitionProduceResponse] = []
            response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, responses))
            for data in topic.partition_data:
                _append_or_fail(topic, data, responses, self)
                if turns.is_slice_over():
                    await turns.wait(is_continued=True)
        return response

    def refuse(self, requested: ClientPartition, batch: Buffer, error: KafkaError) -> PartitionProduceResponse:
        """The response of a batch with an error. If the producer will retry, batches behind it get the error too."""
        if isinstance(error, RetriableError):
            self.context.connection.refused_batches.add(requested, read_header(batch), error)
        return failed(requested.partition, error)


def _append_to_topic(topic: TopicProduceData, appends: _Appends) -> TopicProduceResponse:
    responses: list[PartitionProduceResponse] = []
    for data in topic.partition_data:
        try:  # not `_append_or_fail`: one call less for every request
            responses.append(_append(topic, data, responses, appends))
        except KafkaError as error:
            appends.has_error = True
            responses.append(_refuse(topic, data, error, appends))
    return TopicProduceResponse(topic.name, topic.topic_id, responses)


def _append_or_fail(
    topic: TopicProduceData, data: PartitionProduceData, responses: list[PartitionProduceResponse], appends: _Appends
) -> None:
    try:
        responses.append(_append(topic, data, responses, appends))
    except KafkaError as error:
        responses.append(_refuse(topic, data, error, appends))


def _refuse(
    topic: TopicProduceData, data: PartitionProduceData, error: KafkaError, appends: _Appends
) -> PartitionProduceResponse:
    if data.records is None or len(data.records) < HEADER_BYTES:
        return failed(data.index, error)
    return appends.refuse(ClientPartition.of(topic, data.index), data.records, error)


def _append(
    topic: TopicProduceData, data: PartitionProduceData, responses: list[PartitionProduceResponse], appends: _Appends
) -> PartitionProduceResponse:
    context, batch = appends.context, data.records
    version = context.version
    name = topic.name if version < TOPIC_IDS_FROM_VERSION else context.services.cluster.topic_name(topic.topic_id)
    if context.services.authorizer is not None and context.is_denied(Operation.WRITE, ResourceType.TOPIC, name):
        raise TopicAuthorizationFailed
    if appends.acks not in ACKS_ALLOWED:
        raise InvalidRequiredAcks(f"acks={appends.acks}; allowed are 0, 1 and -1")
    if batch is None:
        raise InvalidRecord("a produce request carries exactly one record batch per partition")
    size = len(batch)
    if (
        size < HEADER_BYTES
        or LENGTH.unpack_from(batch)[0] != size - LENGTH_OVERHEAD_BYTES
        or batch[MAGIC_POSITION] != MAGIC
    ):
        batch = only_batch(batch)
    if name in INTERNAL_TOPICS:
        raise InvalidTopic(f"{name} is internal: only brokers write to it")
    attributes = batch[LOW_ATTRIBUTES_POSITION]
    if version < ZSTD_FROM_VERSION and attributes & COMPRESSION_MASK == Codec.ZSTD:
        raise UnsupportedCompressionType(f"zstd needs version {ZSTD_FROM_VERSION} of Produce, not {version}")
    refused = context.connection.refused_batches
    if refused.by_producer:
        requested = ClientPartition.of(topic, data.index)
        refused.check(requested, read_header(batch), _producers_of(name, data.index, context))
    try:
        if attributes & TRANSACTIONAL_BIT:
            return _verify_and_append(_Slot.of(topic, name, data.index, responses), batch, appends, None)
        return _append_to(name, data.index, batch, appends)
    except NeedsSlices:
        appends.long_batches.append(_LongBatch(_Slot.of(topic, name, data.index, responses), batch, appends))
        return failed(data.index, RequestTimedOut("the batch was not validated in time"))


def _producers_of(name: str, index: int, context: RequestContext) -> ProducerStateManager | None:
    """None if this broker does not host the partition."""
    try:
        return context.services.replicas.get(name, index).log.producers
    except KafkaError:
        return None


def _verify_and_append(
    slot: "_Slot", batch: memoryview, appends: _Appends, prepared: PreparedBatch | None
) -> PartitionProduceResponse:
    """The first batch of a transaction in its partition waits for the transaction coordinator (KIP-890)."""
    services, topic_partition = appends.context.services, slot.topic_partition
    header = read_header(batch)
    asked = _question(header, appends)
    partition = services.partition(*topic_partition)
    partition.require_leader()
    guard = None
    if asked.adds or services.verifier.is_enabled:
        if prepared is None:
            partition.log.require_short(batch)
        guard = partition.log.producers.begin_verification(header, services.clock.now_ms(), starts_at_zero=asked.adds)
    if guard is None:  # the transaction is already in this partition, or verification is off
        return _append_to(*topic_partition, batch, appends, prepared)
    verdict = services.verifier.verify_guarded(asked, topic_partition, guard)
    own_memory = memoryview(bytearray(batch))  # the frame is reused by then
    held = _HeldBatch(topic_partition, slot.requested, own_memory, header, prepared)
    appended = verdict.map(lambda rejection: held.append(rejection, asked, guard, appends))
    appended.on_abandoned = None  # if the client disconnects, its records are appended all the same
    appends.unverified.append((slot, appended))
    return failed(topic_partition.partition, RequestTimedOut("the transaction was not confirmed in time"))


def _question(header: BatchHeader, appends: _Appends) -> Verification:
    if appends.transactional_id is None:
        raise TransactionalIdAuthorizationFailed("a transactional batch needs a transactional id in the request")
    if header.producer_id < 0:
        raise InvalidTxnState("a transactional batch needs a producer id")
    adds = appends.context.version >= ADDS_TO_TRANSACTION_FROM_VERSION
    return Verification(appends.transactional_id, header.producer_id, header.producer_epoch, adds)


def _append_to(
    name: str, index: int, batch: memoryview, appends: _Appends, prepared: PreparedBatch | None = None
) -> PartitionProduceResponse:
    services = appends.context.services
    try:  # not `services.partition` at once: one call less for every batch
        partition = services.replicas.get(name, index)
    except UnknownTopicOrPartition:
        partition = services.partition(name, index)  # raises what fits the cluster
    try:
        result = partition.append_as_leader(batch, appends.acks, CLIENT, prepared)
    except KafkaError as error:
        partition.traffic.count_failed_produce(error)
        if isinstance(error, ERRORS_WITH_LOG_START):
            return _failed_append(partition, error, appends)
        raise
    response = PartitionProduceResponse(
        index, NO_ERROR, result.first_offset, result.log_append_time_ms, result.log_start_offset
    )
    if appends.acks == ACKS_ALL:
        appends.waits.append(AppendWait(partition, result.last_offset + 1, response))
    if partition.log.is_flush_due:
        appends.unflushed.append((partition, response))
    return response


def _failed_append(partition: Partition, error: KafkaError, appends: _Appends) -> PartitionProduceResponse:
    """The response with the log start. See `ERRORS_WITH_LOG_START` and `_Appends.unconfirmed`."""
    response = failed(partition.topic_partition.partition, error, partition.log.log_start_offset)
    if isinstance(error, OutOfOrderSequenceNumber):
        appends.unconfirmed.append((partition, response))
    return response


class _Slot(NamedTuple):
    """The partition of an append, and the position of its response."""

    topic_partition: TopicPartition
    requested: ClientPartition
    responses: list[PartitionProduceResponse]
    position: int

    @classmethod
    def of(cls, topic: TopicProduceData, name: str, index: int, responses: list[PartitionProduceResponse]) -> "_Slot":
        requested = ClientPartition.of(topic, index)
        return cls(TopicPartition(name, index), requested, responses, len(responses))


class _LongBatch:
    """A batch that is too long to be validated in one loop turn."""

    __slots__ = ("_appends", "_batch", "_slot")

    def __init__(self, slot: _Slot, batch: memoryview, appends: _Appends) -> None:
        self._slot = slot
        self._batch = memoryview(bytearray(batch))  # the frame is reused by then
        self._appends = appends

    async def check_and_append(self) -> None:
        slot = self._slot
        try:
            response = await self._checked_append()
        except KafkaError as error:
            response = self._appends.refuse(slot.requested, self._batch, error)
        slot.responses[slot.position] = response

    async def _checked_append(self) -> PartitionProduceResponse:
        services, index = self._appends.context.services, self._slot.topic_partition.partition
        partition = services.partition(*self._slot.topic_partition)
        partition.require_leader()
        try:
            prepared = await services.long_checks.prepare(self._batch, partition.log.settings, services.clock.now_ms())
        except KafkaError as error:
            partition.traffic.count_failed_produce(error)
            if isinstance(error, ERRORS_WITH_LOG_START):
                return failed(index, error, partition.log.log_start_offset)
            raise
        if self._batch[LOW_ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT:
            return _verify_and_append(self._slot, self._batch, self._appends, prepared)
        return _append_to(*self._slot.topic_partition, self._batch, self._appends, prepared)


class _HeldBatch(NamedTuple):
    """A batch that waits for the verification of its transaction."""

    topic_partition: TopicPartition
    requested: ClientPartition
    batch: memoryview
    header: BatchHeader
    prepared: PreparedBatch | None

    def append(
        self, rejection: KafkaError | None, asked: Verification, guard: VerificationGuard, appends: _Appends
    ) -> PartitionProduceResponse:
        """Checks the guard again in the step that appends: an end marker may have been written in between."""
        try:
            if rejection is not None:
                knows_abortable = appends.context.version >= ABORTABLE_FROM_VERSION
                raise error_for_producer(rejection, asked, knows_abortable=knows_abortable)
            partition = appends.context.services.replicas.get(*self.topic_partition)
            producers = partition.log.producers
            appends.context.connection.refused_batches.check(self.requested, self.header, producers)
            try:
                producers.check_verified(self.header, guard)
            except ERRORS_WITH_LOG_START as error:
                return _failed_append(partition, error, appends)
            return _append_to(*self.topic_partition, self.batch, appends, self.prepared)
        except KafkaError as error:
            return appends.refuse(self.requested, self.batch, error)
        except Exception:
            logger.exception("cannot append batch partition=%s", self.topic_partition)
            return failed(self.requested.partition, UnknownServerError("the broker failed on the batch"))
