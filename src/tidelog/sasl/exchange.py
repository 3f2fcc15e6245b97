"""Interface of the server side of a SASL mechanism (Kafka: SaslServer)."""

from typing import Protocol


class SaslFailure(Exception):
    """The login failed. Clients get `reason_for_client`; if it is None, only that the credentials are invalid."""

    def __init__(self, reason: str, *, is_for_client: bool = False, reason_for_client: str | None = None) -> None:
        super().__init__(reason)
        self.reason_for_client = reason if is_for_client else reason_for_client


class ServerExchange(Protocol):
    """Exchange of messages of one login. The client is authenticated when `is_complete`."""

    is_complete: bool
    user: str
    """Name that the client claims; proved when the exchange is complete."""
    expires_at_ms: int | None
    """When the credential expires, if it does."""

    def evaluate(self, message: bytes, now_ms: int) -> bytes:
        """Next message of the server, in response to one of the client. Raises SaslFailure."""
        ...
