"""EndTxn (API key 26): commits or aborts a transaction or a transaction group."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import KafkaError, TransactionalIdAuthorizationFailed
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.runtime.deferred import Deferred
from tidelog.server.coordinator_confirmation import confirmed
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import code_for_producer

KNOWS_FENCING_FROM_VERSION = 2


def handle_end_txn(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse | Deferred[EndTxnResponse]:
    if context.is_denied(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return _rejected(TransactionalIdAuthorizationFailed(), context.version)
    transactions, version = context.services.transactions, context.version
    reply = Deferred(lambda error: _rejected(error, version))
    transactions.end(request, version, reply)
    coordinated_by = transactions.partition_of(request.transactional_id)
    return confirmed(reply, coordinated_by, lambda error: _rejected(error, version), context.services)


def _rejected(error: KafkaError, version: int) -> EndTxnResponse:
    code = code_for_producer(error, knows_fencing=version >= KNOWS_FENCING_FROM_VERSION)
    return EndTxnResponse(error_code=code)
