"""ConsumerGroupDescribe: consumer groups with their members, and what these have and should have (KIP-848)."""

from tidelog.errors import NO_ERROR, KafkaError
from tidelog.groups.gathering import Gathering
from tidelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from tidelog.server.answers import GROUP_OPERATIONS
from tidelog.server.dispatch import Call
from tidelog.server.many_parts import Promised, begin_each
from tidelog.server.outcome import Deferred


def handle_consumer_group_describe(
    request: ConsumerGroupDescribeRequest, call: Call
) -> Promised[ConsumerGroupDescribeResponse]:
    deferred: Deferred[ConsumerGroupDescribeResponse] = Deferred()

    def finish(parts: list[ConsumerGroupDescribeResponse]) -> None:
        groups = [group for part in parts for group in part.groups]
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == NO_ERROR:
                    group.authorized_operations = GROUP_OPERATIONS
        deferred.resolve(ConsumerGroupDescribeResponse(groups=groups))

    gathering = Gathering(len(request.group_ids), finish)

    def begin(numbered: tuple[int, str]) -> None:
        index, group_id = numbered
        reply = gathering.part(index, lambda error: _failed(group_id, error))
        call.services.groups.describe_consumer_group(group_id, reply)

    return begin_each(enumerate(request.group_ids), begin, deferred, call)


def _failed(group_id: str, error: KafkaError) -> ConsumerGroupDescribeResponse:
    failed = DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    return ConsumerGroupDescribeResponse(groups=[failed])
