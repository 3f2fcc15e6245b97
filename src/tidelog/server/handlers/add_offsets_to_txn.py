"""AddOffsetsToTxn (API key 25): adds the offsets partition of a group to a transaction."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import NO_ERROR, GroupAuthorizationFailed, KafkaError, TransactionalIdAuthorizationFailed
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.runtime.deferred import Deferred
from tidelog.server.coordinator_confirmation import confirmed
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import code_for_producer
from tidelog.transactions.transaction import TV_0, ProducerIdentity

KNOWS_FENCING_FROM_VERSION = 2


def handle_add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Deferred[AddOffsetsToTxnResponse]:
    if context.is_denied(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return _rejected(TransactionalIdAuthorizationFailed(), context.version)
    if context.is_denied(Operation.READ, ResourceType.GROUP, request.group_id):
        return _rejected(GroupAuthorizationFailed(), context.version)
    transactions, version = context.services.transactions, context.version
    reply = Deferred(lambda error: _rejected(error, version))
    transactions.add_partitions(
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        [context.services.groups.partition_of(request.group_id)],
        TV_0,  # with transaction.version 2 clients do not send it: TxnOffsetCommit adds the partition
        AddOffsetsToTxnResponse(error_code=NO_ERROR),
        reply,
    )
    coordinated_by = transactions.partition_of(request.transactional_id)
    return confirmed(reply, coordinated_by, lambda error: _rejected(error, version), context.services)


def _rejected(error: KafkaError, version: int) -> AddOffsetsToTxnResponse:
    code = code_for_producer(error, knows_fencing=version >= KNOWS_FENCING_FROM_VERSION)
    return AddOffsetsToTxnResponse(error_code=code)
