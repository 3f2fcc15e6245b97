"""SaslHandshake: choose a SASL mechanism. Tokens follow in SaslAuthenticate, after version 0 in frames of their own."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, int16, string
from tidelog.protocol.structs import Request, Response


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    mechanism: str = string()


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    error_code: int = int16()
    mechanisms: Sequence[str] = array(string)
