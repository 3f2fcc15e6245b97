"""DescribeGroups: classic groups with their members."""

from tidelog.errors import NO_ERROR, KafkaError
from tidelog.groups.gathering import Gathering
from tidelog.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.server.answers import GROUP_OPERATIONS
from tidelog.server.dispatch import Call
from tidelog.server.many_parts import Promised, begin_each
from tidelog.server.outcome import Deferred


def handle_describe_groups(request: DescribeGroupsRequest, call: Call) -> Promised[DescribeGroupsResponse]:
    deferred: Deferred[DescribeGroupsResponse] = Deferred()

    def finish(parts: list[DescribeGroupsResponse]) -> None:
        groups = [group for part in parts for group in part.groups]
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == NO_ERROR:
                    group.authorized_operations = GROUP_OPERATIONS
        deferred.resolve(DescribeGroupsResponse(groups=groups))

    gathering = Gathering(len(request.groups), finish)

    def begin(numbered: tuple[int, str]) -> None:
        index, group_id = numbered
        reply = gathering.part(index, lambda error: _failed(group_id, error))
        call.services.groups.describe(group_id, call.version, reply)

    return begin_each(enumerate(request.groups), begin, deferred, call)


def _failed(group_id: str, error: KafkaError) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[DescribedGroup(group_id=group_id, error_code=error.code)])
