"""SaslHandshake (API key 17): the client chooses a mechanism. After the login only to log in again (KIP-368)."""

from typing import Any

from tidelog.errors import IllegalSaslState
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.runtime.deferred import Deferred
from tidelog.server.dispatch import RequestContext
from tidelog.server.login import Login


def handle_sasl_handshake(
    request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse | Deferred[Any]:
    login = context.connection.login
    if not isinstance(login, Login):
        return SaslHandshakeResponse(error_code=IllegalSaslState.code)
    return login.handshake(request.mechanism, context.version)
