"""IncrementalAlterConfigs: set, unset, append to and subtract from single settings of a topic or broker."""

from tidelog.controller.configs import ConfigChange
from tidelog.errors import NO_ERROR
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.server.dispatch import Call


async def handle_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, call: Call
) -> IncrementalAlterConfigsResponse:
    changes = [
        ConfigChange(
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.value, config.config_operation) for config in resource.configs],
        )
        for resource in request.resources
    ]
    outcomes = await call.services.alter_configs(changes, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=outcome.error.code if outcome.error else NO_ERROR,
                error_message=outcome.error.message if outcome.error else None,
                resource_type=outcome.resource_type,
                resource_name=outcome.resource_name,
            )
            for outcome in outcomes
        ]
    )
