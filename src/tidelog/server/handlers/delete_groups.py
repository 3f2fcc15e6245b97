"""DeleteGroups (API key 42): deletes empty groups with their offsets."""

import asyncio

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import GroupAuthorizationFailed, KafkaError
from tidelog.groups.group import coordinator_error
from tidelog.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.runtime.deferred import Deferred, gather
from tidelog.server.dispatch import RequestContext


async def handle_delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    await asyncio.sleep(0)  # let due timers run first: an expired session must not keep a group alive
    denied = context.denied(Operation.DELETE, ResourceType.GROUP, request.groups_names)
    group_ids = dict.fromkeys(request.groups_names)
    permitted = [group_id for group_id in group_ids if group_id not in denied]
    begun = await context.services.turns.each(permitted, lambda each: _delete(each, context))
    parts = await gather(begun).wait()
    parts += [_failed(group_id, GroupAuthorizationFailed()) for group_id in group_ids if group_id in denied]
    return DeleteGroupsResponse(results=[result for part in parts for result in part.results])


def _delete(group_id: str, context: RequestContext) -> Deferred[DeleteGroupsResponse]:
    reply = Deferred(lambda error: _failed(group_id, error))
    context.services.groups.delete(group_id, reply)
    return reply


def _failed(group_id: str, error: KafkaError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id, coordinator_error(error).code)])
