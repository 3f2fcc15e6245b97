"""UnregisterBroker: the controller forgets a broker that is gone for good (KIP-631)."""

from tidelog.errors import KafkaError
from tidelog.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tidelog.server.dispatch import Call
from tidelog.server.forwarding import forward_unless_controller
from tidelog.server.response_fields import error_fields

TIMEOUT_MS = 30_000


async def handle_unregister_broker(request: UnregisterBrokerRequest, call: Call) -> UnregisterBrokerResponse:
    services = call.services
    try:
        answer = await forward_unless_controller(
            services, call.client_id, request, UnregisterBrokerResponse, TIMEOUT_MS
        )
        if answer is None:
            await services.membership.unregister_broker(request.broker_id)
            answer = UnregisterBrokerResponse()
    except KafkaError as error:
        return UnregisterBrokerResponse(**error_fields(error))
    return answer
