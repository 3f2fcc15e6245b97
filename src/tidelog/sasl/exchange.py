"""Server side of a SASL mechanism: what a login needs of it."""

from typing import Protocol


class SaslFailure(Exception):
    """The login failed. Clients are told `reason_for_client`; None: only that the credentials are invalid."""

    def __init__(self, reason: str, *, is_told: bool = False, told: str | None = None) -> None:
        super().__init__(reason)
        self.reason_for_client = reason if is_told else told


class ServerExchange(Protocol):
    """Messages of one login. Complete when `is_complete`."""

    is_complete: bool
    user: str
    """As the client claims; proved when the exchange is complete."""
    expires_at_ms: int | None
    """When the credential expires, if it does."""

    def evaluate(self, message: bytes, now_ms: int) -> bytes:
        """The next message of the server. Raises SaslFailure."""
        ...
