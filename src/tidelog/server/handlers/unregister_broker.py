"""UnregisterBroker (API key 64): the controller removes a dead broker from the members (KIP-631)."""

from tidelog.errors import KafkaError
from tidelog.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tidelog.server.dispatch import RequestContext
from tidelog.server.forwarding import forward_unless_controller
from tidelog.server.response_fields import error_fields

TIMEOUT_MS = 30_000


async def handle_unregister_broker(
    request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    services = context.services
    try:
        response = await forward_unless_controller(
            services, context.client_id, request, UnregisterBrokerResponse, TIMEOUT_MS
        )
        if response is None:
            await services.membership.unregister_broker(request.broker_id)
            response = UnregisterBrokerResponse()
    except KafkaError as error:
        return UnregisterBrokerResponse(**error_fields(error))
    return response
