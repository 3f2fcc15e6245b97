"""InitProducerId: an id under which an idempotent producer numbers its batches."""

from tidelog.errors import NO_ERROR, CoordinatorLoadInProgress, InvalidRequest, KafkaError, RetriableError
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.server.dispatch import Call
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


async def handle_init_producer_id(request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse:
    try:
        if request.transactional_id is not None:
            raise InvalidRequest("this broker has no transaction coordinator")
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            raise InvalidRequest("a producer names both its id and its epoch, or neither")
        producer_id = await call.services.membership.producer_ids.next()
    except RetriableError:  # older clients give up on any other code that says so
        return _refused(CoordinatorLoadInProgress.code)
    except KafkaError as error:
        return _refused(error.code)
    return InitProducerIdResponse(error_code=NO_ERROR, producer_id=producer_id, producer_epoch=0)


def _refused(error_code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error_code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
