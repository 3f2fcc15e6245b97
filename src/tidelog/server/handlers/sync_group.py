"""SyncGroup (API key 14): distributes the assignments of a classic group, which its leader member sends."""

from tidelog.errors import KafkaError
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.runtime.deferred import Deferred
from tidelog.server.client_identity import caller_of
from tidelog.server.dispatch import RequestContext


def handle_sync_group(request: SyncGroupRequest, context: RequestContext) -> Deferred[SyncGroupResponse]:
    reply = Deferred(_rejected)
    context.services.groups.sync(request, caller_of(context), reply)
    return reply


def _rejected(error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code)
