"""PLAIN (RFC 4616): user name and password in one message (Kafka: PlainSaslServer)."""

import hmac
from collections.abc import Mapping

from tidelog.sasl.exchange import SaslFailure

TOKENS = 3


class PlainServer:
    """Server side, with the passwords of the JAAS login module. Unknown users take as long as known ones."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.is_complete = False
        self.user = ""
        self.expires_at_ms: int | None = None

    def evaluate(self, message: bytes, now_ms: int) -> bytes:
        try:
            tokens = message.decode().split("\0")
        except UnicodeDecodeError:
            raise SaslFailure("Invalid SASL/PLAIN response: not in UTF-8") from None
        if len(tokens) != TOKENS:
            raise SaslFailure(
                f"Invalid SASL/PLAIN response: expected {TOKENS} tokens, got {len(tokens)}", is_for_client=True
            )
        authorization_id, self.user, password = tokens
        if not self.user:
            raise SaslFailure("Authentication failed: username not specified", is_for_client=True)
        if not password:
            raise SaslFailure("Authentication failed: password not specified", is_for_client=True)
        expected = self._passwords.get(self.user)
        is_equal = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is None or not is_equal:
            raise SaslFailure("Authentication failed: Invalid username or password", is_for_client=True)
        if authorization_id and authorization_id != self.user:
            raise SaslFailure(
                "Authentication failed: Client requested an authorization id that is different from username",
                is_for_client=True,
            )
        self.is_complete = True
        return b""


def plain_message(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()
