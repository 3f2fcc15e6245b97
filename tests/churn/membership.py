"""What members of a group are told, whatever client they are."""

from enum import StrEnum
from typing import NamedTuple

COMMIT_INTERVAL_S = 0.1
HEARTBEAT_MS = 300
SESSION_MS = 3000
FETCH_WAIT_MS = 50
POLL_MS = 100
# Of commits: the coordinator knows the member or its generation no more.
FORGOTTEN_CODES = frozenset({22, 25, 82, 110, 113})


class Protocol(StrEnum):
    EAGER = "eager"
    COOPERATIVE = "cooperative"
    CONSUMER = "consumer"
    """The broker assigns (KIP-848)."""


class Options(NamedTuple):
    bootstrap: str
    group: str
    topic: str
    protocol: Protocol
    instance_id: str | None
