"""InitProducerId (API key 22): assigns a producer id and epoch; with a transactional id it fences older producers."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import (
    NO_ERROR,
    ClusterAuthorizationFailed,
    CoordinatorLoadInProgress,
    InvalidRequest,
    KafkaError,
    RetriableError,
    TransactionalIdAuthorizationFailed,
)
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.runtime.deferred import Deferred
from tidelog.server.coordinator_confirmation import confirmed
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import code_for_producer
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

KNOWS_FENCING_FROM_VERSION = 4


async def handle_init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    error = _permission_error(request, context)
    if error is not None:
        return _rejected(error, context.version)
    if request.transactional_id is None:
        return await _for_idempotence(request, context)
    transactions, version = context.services.transactions, context.version
    reply = Deferred(lambda error: _rejected(error, version))
    await transactions.init(request, reply)
    coordinated_by = transactions.partition_of(request.transactional_id)
    return await confirmed(reply, coordinated_by, lambda error: _rejected(error, version), context.services).wait()


def _permission_error(request: InitProducerIdRequest, context: RequestContext) -> KafkaError | None:
    """Without a transaction, a permission to write to any topic suffices (KIP-679)."""
    if request.transactional_id is not None:
        denied = context.is_denied(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        return TransactionalIdAuthorizationFailed() if denied else None
    if not context.is_denied(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, is_logged=False):
        return None
    return None if context.allows_any(Operation.WRITE, ResourceType.TOPIC) else ClusterAuthorizationFailed()


async def _for_idempotence(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    try:
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            raise InvalidRequest("a producer names both its id and its epoch, or neither")
        producer_id = await context.services.membership.producer_ids.next()
    except RetriableError:  # older clients retry on this code only
        return _rejected(CoordinatorLoadInProgress(), context.version)
    except KafkaError as error:
        return _rejected(error, context.version)
    return InitProducerIdResponse(error_code=NO_ERROR, producer_id=producer_id, producer_epoch=0)


def _rejected(error: KafkaError, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code_for_producer(error, knows_fencing=version >= KNOWS_FENCING_FROM_VERSION),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
    )
