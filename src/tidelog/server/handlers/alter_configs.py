"""AlterConfigs: replace all settings of a topic or broker."""

from tidelog.controller.configs import AlterOperation, ConfigChange
from tidelog.errors import NO_ERROR
from tidelog.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from tidelog.server.dispatch import Call


async def handle_alter_configs(request: AlterConfigsRequest, call: Call) -> AlterConfigsResponse:
    changes = [
        ConfigChange(
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.value, AlterOperation.SET) for config in resource.configs],
            replacing=True,
        )
        for resource in request.resources
    ]
    outcomes = await call.services.alter_configs(changes, validate_only=request.validate_only)
    return AlterConfigsResponse(
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
