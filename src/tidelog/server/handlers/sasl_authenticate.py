"""SaslAuthenticate (API key 36): one token of a login."""

from typing import Any

from tidelog.errors import IllegalSaslState
from tidelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.runtime.deferred import Deferred
from tidelog.server.dispatch import RequestContext
from tidelog.server.login import Login

ALREADY_LOGGED_IN = "SaslAuthenticate request received after successful authentication"


def handle_sasl_authenticate(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse | Deferred[Any]:
    login = context.connection.login
    if not isinstance(login, Login):
        return SaslAuthenticateResponse(error_code=IllegalSaslState.code, error_message=ALREADY_LOGGED_IN)
    return login.authenticate(bytes(request.auth_bytes))
