"""ListGroups (API key 16): lists the groups that this broker coordinates."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import NO_ERROR, KafkaError
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.server.dispatch import RequestContext


def handle_list_groups(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """A filter with unknown states or types only matches nothing."""
    states = {state.lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}
    try:
        groups = [
            group
            for group in context.services.groups.listed()
            if (not states or group.group_state.lower() in states) and (not kinds or group.group_type in kinds)
        ]
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    if context.is_denied(Operation.DESCRIBE, ResourceType.CLUSTER, is_logged=False):
        names = (group.group_id for group in groups)
        denied = context.denied(Operation.DESCRIBE, ResourceType.GROUP, names, is_logged=False)
        groups = [group for group in groups if group.group_id not in denied]
    return ListGroupsResponse(error_code=NO_ERROR, groups=groups)
