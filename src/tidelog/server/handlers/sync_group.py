"""SyncGroup: a member asks for its assignment; the leader brings those of all."""

from tidelog.errors import KafkaError
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.runtime.deferred import Deferred
from tidelog.server.client_identity import caller_of
from tidelog.server.dispatch import Call


def handle_sync_group(request: SyncGroupRequest, call: Call) -> Deferred[SyncGroupResponse]:
    reply = Deferred(_refused)
    call.services.groups.sync(request, caller_of(call), reply)
    return reply


def _refused(error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code)
