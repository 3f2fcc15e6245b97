"""Errors in bytes from a peer, and in messages to encode."""


class MalformedMessage(Exception):
    """The peer sent malformed bytes. Its connection is closed."""


class TooManyElements(MalformedMessage):
    """The message has more array elements than its limit."""


class UnknownApi(Exception):
    """The peer requested an API that this broker does not have."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"unknown API api_key={api_key} api_version={api_version}")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


class UnencodableMessage(ValueError):
    """A value does not fit its field, such as a string of more than 32,767 bytes or a number out of range."""
