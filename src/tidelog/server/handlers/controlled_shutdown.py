"""ControlledShutdown (API key 7): the controller moves leaders away from a broker that is about to stop (R39)."""

from tidelog.errors import KafkaError
from tidelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from tidelog.server.dispatch import RequestContext


async def handle_controlled_shutdown(
    request: ControlledShutdownRequest, context: RequestContext
) -> ControlledShutdownResponse:
    try:
        context.require_inter_broker_listener()
        remaining = await context.services.membership.controller.controlled_shutdown(
            request.broker_id, request.broker_epoch
        )
    except KafkaError as error:
        return ControlledShutdownResponse(error_code=error.code)
    return ControlledShutdownResponse(remaining_partitions=[RemainingPartition(*each) for each in sorted(remaining)])
