"""Heartbeat (API key 12): renews the session of a classic group member; the error code announces a rebalance."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import NO_ERROR, CoordinatorLoadInProgress, GroupAuthorizationFailed, KafkaError
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.runtime.deferred import Deferred
from tidelog.server.client_identity import caller_of
from tidelog.server.coordinator_confirmation import HEARTBEAT_CONFIRMATION_MS, confirmed
from tidelog.server.dispatch import RequestContext


def handle_heartbeat(
    request: HeartbeatRequest, context: RequestContext
) -> HeartbeatResponse | Deferred[HeartbeatResponse]:
    if context.is_denied(Operation.READ, ResourceType.GROUP, request.group_id):
        return _rejected(GroupAuthorizationFailed())
    reply = Deferred(_rejected)
    groups = context.services.groups
    groups.heartbeat(request, caller_of(context), reply)
    coordinated_by = groups.partition_of(request.group_id)
    return confirmed(reply, coordinated_by, _rejected, context.services, HEARTBEAT_CONFIRMATION_MS)


def _rejected(error: KafkaError) -> HeartbeatResponse:
    """While the group is loading no session can expire: the heartbeat succeeds, as in Kafka."""
    is_loading = isinstance(error, CoordinatorLoadInProgress)
    return HeartbeatResponse(error_code=NO_ERROR if is_loading else error.code)
