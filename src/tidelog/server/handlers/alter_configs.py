"""AlterConfigs (API key 33): replaces all configs of a topic, broker or group."""

from tidelog.controller.configs import AlterOperation, ConfigChange
from tidelog.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from tidelog.server.config_permissions import alter_permitted
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import altered_fields


async def handle_alter_configs(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    each = context.services.turns.each
    changes = await each(request.resources, _change)
    outcomes = await alter_permitted(changes, context, validate_only=request.validate_only)
    responses = await each(outcomes, lambda outcome: AlterConfigsResourceResponse(**altered_fields(outcome)))
    return AlterConfigsResponse(responses=responses)


def _change(resource: AlterConfigsResource) -> ConfigChange:
    return ConfigChange(
        resource.resource_type,
        resource.resource_name,
        [(config.name, config.value, AlterOperation.SET) for config in resource.configs],
        replacing=True,
    )
