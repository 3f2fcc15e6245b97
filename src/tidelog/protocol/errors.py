"""Errors in bytes from a peer, and in messages to encode."""


class MalformedMessage(Exception):
    """The peer sent bytes that are no message; its connection is closed."""


class TooManyElements(MalformedMessage):
    """More array elements than the reader allowed the message to have."""


class UnknownApi(Exception):
    """The peer asked for an API that this broker does not have."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"unknown API api_key={api_key} api_version={api_version}")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


class UnencodableMessage(ValueError):
    """A value does not fit its field: a text longer than 32,767 bytes, a number out of range."""
