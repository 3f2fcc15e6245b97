"""DeleteGroups: forget groups that have no members, with their offsets."""

import asyncio

from tidelog.errors import KafkaError
from tidelog.groups.gathering import Gathering
from tidelog.groups.group import answer_for
from tidelog.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.server.dispatch import Call
from tidelog.server.outcome import Deferred


async def handle_delete_groups(request: DeleteGroupsRequest, call: Call) -> DeleteGroupsResponse:
    await asyncio.sleep(0)  # timers that are due have their turn: a session that is over shall not hold a group
    deferred: Deferred[DeleteGroupsResponse] = Deferred()

    def finish(parts: list[DeleteGroupsResponse]) -> None:
        deferred.resolve(DeleteGroupsResponse(results=[result for part in parts for result in part.results]))

    group_ids = list(dict.fromkeys(request.groups_names))
    gathering = Gathering(len(group_ids), finish)
    for index, group_id in enumerate(group_ids):
        reply = gathering.part(index, lambda error, group_id=group_id: _failed(group_id, error))  # type: ignore[misc]
        call.services.groups.delete(group_id, reply)
    return await deferred.wait()


def _failed(group_id: str, error: KafkaError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id, answer_for(error).code)])
