"""TxnOffsetCommit (API key 28): commits offsets of a group as part of a transaction."""

from collections.abc import Iterable

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    GroupAuthorizationFailed,
    InvalidTxnState,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartition,
)
from tidelog.groups.group import coordinator_error
from tidelog.groups.transaction_guards import OffsetCommitGuard
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tidelog.runtime.deferred import Deferred
from tidelog.server.client_identity import caller_of
from tidelog.server.dispatch import RequestContext
from tidelog.server.unknown_partitions import divide_topics, merged
from tidelog.transactions.verifier import Verification

KNOWS_LOADING_FROM_VERSION = 2
KNOWS_ABORTABLE_FROM_VERSION = 4
ADDS_FROM_VERSION = 5
"""From here on TxnOffsetCommit adds the group to the transaction (KIP-890); before, AddOffsetsToTxn did."""


async def handle_txn_offset_commit(request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    if context.is_denied(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return TxnOffsetCommitResponse(topics=_failed(request, TransactionalIdAuthorizationFailed.code))
    if context.is_denied(Operation.READ, ResourceType.GROUP, request.group_id):
        return TxnOffsetCommitResponse(topics=_failed(request, GroupAuthorizationFailed.code))
    image = context.services.cluster.image
    denied = context.denied(Operation.READ, ResourceType.TOPIC, (topic.name for topic in request.topics))
    permitted = [topic for topic in request.topics if topic.name not in denied]
    unauthorized = [topic for topic in request.topics if topic.name in denied]
    request.topics, rejected = divide_topics(permitted, image, TxnOffsetCommitRequestTopic, _unknown)
    rejected += _failed_topics(unauthorized, TopicAuthorizationFailed.code)
    if not request.topics:
        return TxnOffsetCommitResponse(topics=merged([], rejected))
    try:
        topics = (await _commit(request, context)).topics
    except KafkaError as error:
        topics = _failed(request, _error_for_version(error, context.version).code)
    return TxnOffsetCommitResponse(topics=merged(topics, rejected))


async def _commit(request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    groups = context.services.groups
    own_epoch = request.producer_epoch if context.version >= ADDS_FROM_VERSION else None
    guard = OffsetCommitGuard(request.producer_id, own_epoch)
    guarded: Deferred[TxnOffsetCommitResponse] = Deferred()
    groups.guard_transaction(request.group_id, guard, guarded)
    await guarded.wait()
    committed: Deferred[TxnOffsetCommitResponse] = Deferred()
    try:
        await _verify(request, context)
        groups.commit_offsets_in_transaction(request, guard, caller_of(context), committed)
    finally:
        groups.release_guard(request.group_id, guard)
    return await committed.wait()


async def _verify(request: TxnOffsetCommitRequest, context: RequestContext) -> None:
    """Verify with the transaction coordinator that the group's partition is in the transaction, or add it."""
    verifier, adds = context.services.verifier, context.version >= ADDS_FROM_VERSION
    if not adds and not verifier.is_enabled:
        return
    asked = Verification(request.transactional_id, request.producer_id, request.producer_epoch, adds)
    rejection = await verifier.verify(asked, context.services.groups.partition_of(request.group_id))
    if rejection is not None:
        raise type(rejection)(*rejection.args)  # a copy: the traceback of `refusal` would refer to itself


def _error_for_version(error: KafkaError, version: int) -> KafkaError:
    """The error in terms of the producer's API version."""
    if isinstance(error, CoordinatorLoadInProgress) and version < KNOWS_LOADING_FROM_VERSION:
        return CoordinatorNotAvailable(error.message)
    if isinstance(error, TransactionAbortable) and version < KNOWS_ABORTABLE_FROM_VERSION:
        return InvalidTxnState(error.message)
    return coordinator_error(error)


def _failed(request: TxnOffsetCommitRequest, error_code: int) -> list[TxnOffsetCommitResponseTopic]:
    return _failed_topics(request.topics, error_code)


def _failed_topics(
    topics: Iterable[TxnOffsetCommitRequestTopic], error_code: int
) -> list[TxnOffsetCommitResponseTopic]:
    return [
        _answered(topic.name, (partition.partition_index for partition in topic.partitions), error_code)
        for topic in topics
    ]


def _unknown(topic: str, indexes: Iterable[int]) -> TxnOffsetCommitResponseTopic:
    return _answered(topic, indexes, UnknownTopicOrPartition.code)


def _answered(topic: str, indexes: Iterable[int], error_code: int) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        topic, [TxnOffsetCommitResponsePartition(index, error_code) for index in indexes]
    )
