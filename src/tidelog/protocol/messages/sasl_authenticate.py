"""SaslAuthenticate: one token of a SASL mechanism in each direction."""

from tidelog.protocol.fields import binary, int16, int64, string
from tidelog.protocol.structs import Request, Response


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = binary()


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = binary()
    session_lifetime_ms: int = int64(versions="1+")
