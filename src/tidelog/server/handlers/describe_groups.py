"""DescribeGroups (API key 15): describes classic groups and their members."""

from functools import partial

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import GroupAuthorizationFailed, KafkaError
from tidelog.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.runtime.deferred import Deferred
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import add_group_operations
from tidelog.server.sliced_requests import Promised, begin_each


def handle_describe_groups(request: DescribeGroupsRequest, context: RequestContext) -> Promised[DescribeGroupsResponse]:
    def finish(parts: list[DescribeGroupsResponse]) -> DescribeGroupsResponse:
        groups = [group for part in parts for group in part.groups]
        if request.include_authorized_operations:
            add_group_operations(groups, partial(context.authorized_operations, ResourceType.GROUP))
        return DescribeGroupsResponse(groups=groups)

    def begin(group_id: str) -> Deferred[DescribeGroupsResponse]:
        reply = Deferred(lambda error: _failed(group_id, error))
        if context.is_denied(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            reply.fail(GroupAuthorizationFailed())
            return reply
        context.services.groups.describe(group_id, context.version, reply)
        return reply

    # Once each: a request can name a group with thousands of members thousands of times.
    return begin_each(dict.fromkeys(request.groups), begin, finish, context)


def _failed(group_id: str, error: KafkaError) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[DescribedGroup(group_id=group_id, error_code=error.code)])
