"""EndTxn: commit or abort a transaction, or all of a transaction group."""

from tidelog.errors import KafkaError
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.runtime.deferred import Deferred
from tidelog.server.dispatch import Call
from tidelog.server.response_fields import code_for_producer

KNOWS_FENCING_FROM_VERSION = 2


def handle_end_txn(request: EndTxnRequest, call: Call) -> Deferred[EndTxnResponse]:
    reply = Deferred(lambda error: _refused(error, call.version))
    call.services.transactions.end(request, call.version, reply)
    return reply


def _refused(error: KafkaError, version: int) -> EndTxnResponse:
    code = code_for_producer(error, knows_fencing=version >= KNOWS_FENCING_FROM_VERSION)
    return EndTxnResponse(error_code=code)
