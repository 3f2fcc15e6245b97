"""AllocateProducerIds (API key 67): a block of producer ids for a broker of Apache Kafka (KIP-730)."""

from tidelog.errors import KafkaError
from tidelog.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tidelog.server.dispatch import RequestContext


async def handle_allocate_producer_ids(
    request: AllocateProducerIdsRequest, context: RequestContext
) -> AllocateProducerIdsResponse:
    try:
        context.require_inter_broker_listener()
        block = await context.services.membership.allocate_producer_ids(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return AllocateProducerIdsResponse(error_code=error.code)
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.last - block.first + 1)
