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
from tidelog.server.outcome import Deferred


def handle_consumer_group_describe(
    request: ConsumerGroupDescribeRequest, call: Call
) -> Deferred[ConsumerGroupDescribeResponse]:
    deferred: Deferred[ConsumerGroupDescribeResponse] = Deferred()

    def finish(parts: list[ConsumerGroupDescribeResponse]) -> None:
        groups = [group for part in parts for group in part.groups]
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == NO_ERROR:
                    group.authorized_operations = GROUP_OPERATIONS
        deferred.resolve(ConsumerGroupDescribeResponse(groups=groups))

    gathering = Gathering(len(request.group_ids), finish)
    for index, group_id in enumerate(request.group_ids):
        reply = gathering.part(index, lambda error, group_id=group_id: _failed(group_id, error))  # type: ignore[misc]
        call.services.groups.describe_consumer_group(group_id, reply)
    return deferred


def _failed(group_id: str, error: KafkaError) -> ConsumerGroupDescribeResponse:
    failed = DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    return ConsumerGroupDescribeResponse(groups=[failed])
