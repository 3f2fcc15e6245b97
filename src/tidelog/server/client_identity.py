"""Who a request comes from, as groups want to know it."""

from tidelog.groups.group import Caller
from tidelog.server.dispatch import Call


def caller_of(call: Call) -> Caller:
    return Caller(call.client_id or "", f"/{call.connection.channel.peer_host}", call.version)
