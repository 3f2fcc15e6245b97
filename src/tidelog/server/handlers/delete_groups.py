"""DeleteGroups: forget groups that have no members, with their offsets."""

import asyncio

from tidelog.errors import KafkaError
from tidelog.groups.group import coordinator_error
from tidelog.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.runtime.deferred import Deferred, gather
from tidelog.server.dispatch import Call


async def handle_delete_groups(request: DeleteGroupsRequest, call: Call) -> DeleteGroupsResponse:
    await asyncio.sleep(0)  # timers that are due have their turn: a session that is over shall not hold a group
    parts = await gather([_delete(group_id, call) for group_id in dict.fromkeys(request.groups_names)]).wait()
    return DeleteGroupsResponse(results=[result for part in parts for result in part.results])


def _delete(group_id: str, call: Call) -> Deferred[DeleteGroupsResponse]:
    reply = Deferred(lambda error: _failed(group_id, error))
    call.services.groups.delete(group_id, reply)
    return reply


def _failed(group_id: str, error: KafkaError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id, coordinator_error(error).code)])
