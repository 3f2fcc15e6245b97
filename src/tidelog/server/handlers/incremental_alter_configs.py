"""IncrementalAlterConfigs (API key 44): sets, deletes, appends to and subtracts from single configs."""

from tidelog.controller.configs import ConfigChange
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.server.config_permissions import alter_permitted
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import altered_fields


async def handle_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    each = context.services.turns.each
    changes = await each(request.resources, _change)
    outcomes = await alter_permitted(changes, context, validate_only=request.validate_only)
    responses = await each(outcomes, lambda outcome: AlterConfigsResourceResponse(**altered_fields(outcome)))
    return IncrementalAlterConfigsResponse(responses=responses)


def _change(resource: AlterConfigsResource) -> ConfigChange:
    return ConfigChange(
        resource.resource_type,
        resource.resource_name,
        [(config.name, config.value, config.config_operation) for config in resource.configs],
    )
