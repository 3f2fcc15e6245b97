"""Client identity of a request (client id, host, API version), as group coordinators need it."""

from tidelog.groups.group import Caller
from tidelog.server.dispatch import RequestContext


def caller_of(context: RequestContext) -> Caller:
    return Caller(context.client_id or "", f"/{context.connection.channel.peer_host}", context.version)
