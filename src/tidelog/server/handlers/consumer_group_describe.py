"""ConsumerGroupDescribe (API key 69): describes consumer groups, members, current and target assignments (KIP-848)."""

from tidelog.errors import KafkaError
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
            add_group_operations(groups)
        return ConsumerGroupDescribeResponse(groups=groups)

    def begin(group_id: str) -> Deferred[ConsumerGroupDescribeResponse]:
        reply = Deferred(lambda error: _failed(group_id, error))
        context.services.groups.describe_consumer_group(group_id, reply)
        return reply

    return begin_each(request.group_ids, begin, finish, context)


def _failed(group_id: str, error: KafkaError) -> ConsumerGroupDescribeResponse:
    failed = DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    return ConsumerGroupDescribeResponse(groups=[failed])
