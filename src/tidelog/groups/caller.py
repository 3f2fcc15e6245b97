"""Who a request to a group comes from, as the connection knows it."""

from typing import NamedTuple


class Caller(NamedTuple):
    client_id: str
    """Empty if the client gave none."""
    client_host: str
    """As DescribeGroups tells it: `/` and the address."""
    api_version: int
