"""AlterConfigs: replace all settings of a topic, broker or group."""

from tidelog.controller.configs import AlterOperation, ConfigChange
from tidelog.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from tidelog.server.answers import altered_fields
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
    return AlterConfigsResponse(responses=[AlterConfigsResourceResponse(**altered_fields(each)) for each in outcomes])
