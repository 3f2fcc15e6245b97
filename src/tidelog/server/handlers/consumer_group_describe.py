"""ConsumerGroupDescribe (API key 69): describes consumer groups, members, current and target assignments (KIP-848)."""

from functools import partial

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import GroupAuthorizationFailed, KafkaError, TopicAuthorizationFailed
from tidelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from tidelog.runtime.deferred import Deferred
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import add_group_operations
from tidelog.server.sliced_requests import Promised, begin_each


def handle_consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> Promised[ConsumerGroupDescribeResponse]:
    def finish(parts: list[ConsumerGroupDescribeResponse]) -> ConsumerGroupDescribeResponse:
        groups = [group for part in parts for group in part.groups]
        if request.include_authorized_operations:
            add_group_operations(groups, partial(context.authorized_operations, ResourceType.GROUP))
        if context.services.authorizer is not None:
            groups = [_without_denied(group, context) for group in groups]
        return ConsumerGroupDescribeResponse(groups=groups)

    def begin(group_id: str) -> Deferred[ConsumerGroupDescribeResponse]:
        reply = Deferred(lambda error: _failed(group_id, error))
        if context.is_denied(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            reply.fail(GroupAuthorizationFailed())
            return reply
        context.services.groups.describe_consumer_group(group_id, reply)
        return reply

    # Once each: a request can name a group with thousands of members thousands of times.
    return begin_each(dict.fromkeys(request.group_ids), begin, finish, context)


def _without_denied(group: DescribedGroup, context: RequestContext) -> DescribedGroup:
    """Of a group with assigned topics that the client may not describe, it learns nothing, as in Kafka."""
    assignments = [each for member in group.members for each in (member.assignment, member.target_assignment) if each]
    topics = {partitions.topic_name for assignment in assignments for partitions in assignment.topic_partitions}
    if not context.denied(Operation.DESCRIBE, ResourceType.TOPIC, topics):
        return group
    return DescribedGroup(
        group_id=group.group_id,
        error_code=TopicAuthorizationFailed.code,
        error_message="The group has described topic(s) that the client is not authorized to describe.",
    )


def _failed(group_id: str, error: KafkaError) -> ConsumerGroupDescribeResponse:
    failed = DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    return ConsumerGroupDescribeResponse(groups=[failed])
