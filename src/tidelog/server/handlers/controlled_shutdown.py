"""ControlledShutdown: a broker that is about to leave asks the controller to move its leaders away first (R39)."""

from tidelog.errors import KafkaError
from tidelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from tidelog.server.dispatch import Call


async def handle_controlled_shutdown(request: ControlledShutdownRequest, call: Call) -> ControlledShutdownResponse:
    try:
        remaining = await call.services.membership.controller.controlled_shutdown(
            request.broker_id, request.broker_epoch
        )
    except KafkaError as error:
        return ControlledShutdownResponse(error_code=error.code)
    return ControlledShutdownResponse(remaining_partitions=[RemainingPartition(*each) for each in sorted(remaining)])
