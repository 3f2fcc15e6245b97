"""IncrementalAlterConfigs: set, unset, append to and subtract from single settings of a topic, broker or group."""

from tidelog.controller.configs import ConfigChange
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.server.answers import altered_fields
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
        responses=[AlterConfigsResourceResponse(**altered_fields(outcome)) for outcome in outcomes]
    )
