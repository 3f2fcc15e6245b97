"""Instructions for members of a group, whatever client they are."""

import time
from enum import StrEnum
from threading import Event
from typing import NamedTuple
from typing import Protocol as Interface

COMMIT_INTERVAL_S = 0.1
HEARTBEAT_MS = 300
SESSION_MS = 3000
FETCH_WAIT_MS = 50
POLL_MS = 100
METADATA_AGE_MS = 1000
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


class BlockingMember(Interface):
    def poll(self) -> None: ...

    def commit(self) -> object: ...

    def close(self) -> None: ...


def take_part(member: BlockingMember, ended: Event) -> None:
    """Reads on and on, commits now and then, and leaves in order."""
    due_s = 0.0
    while not ended.is_set():
        member.poll()
        if time.monotonic() >= due_s:
            member.commit()
            due_s = time.monotonic() + COMMIT_INTERVAL_S
    member.close()
