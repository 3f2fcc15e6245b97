"""ListGroups (API key 16): lists the groups that this broker coordinates."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import NO_ERROR, CoordinatorLoadInProgress
from tidelog.groups.group import Group
from tidelog.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tidelog.server.dispatch import RequestContext


async def handle_list_groups(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """A filter with unknown states or types only matches nothing."""
    states = {state.lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}
    topic = context.services.groups.topic
    if topic.is_loading:
        return ListGroupsResponse(error_code=CoordinatorLoadInProgress.code)
    is_hiding = context.is_denied(Operation.DESCRIBE, ResourceType.CLUSTER, is_logged=False)

    def listed(group: Group) -> ListedGroup | None:
        kind, state = group.kind, group.state_name
        if (states and state.lower() not in states) or (kinds and kind not in kinds):
            return None
        if is_hiding and context.is_denied(Operation.DESCRIBE, ResourceType.GROUP, group.group_id, is_logged=False):
            return None
        return ListedGroup(group.group_id, group.protocol_type, state, kind)

    groups = [group for _, machine in topic.loaded() for group in machine.groups.values()]
    found = await context.services.turns.each(groups, listed)
    return ListGroupsResponse(error_code=NO_ERROR, groups=[group for group in found if group is not None])
