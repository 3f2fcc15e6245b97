"""Open TLS handshakes of a listener: a limit on how many wait for their peers at the same time.

OpenSSL holds about 45 KB for each. A peer that means to talk completes its handshake within milliseconds; who leaves
thousands open gives way to the others.
"""

from collections.abc import Hashable
from typing import Protocol

MAX_OPEN_HANDSHAKES = 1000


class Handshake(Hashable, Protocol):
    @property
    def peer_host(self) -> str: ...

    def close(self, reason: str) -> None: ...


class OpenHandshakes:
    def __init__(self, limit: int = MAX_OPEN_HANDSHAKES) -> None:
        self._limit = limit
        self._by_host: dict[str, dict[Handshake, None]] = {}
        """In order of arrival."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, handshake: Handshake) -> None:
        """Above the limit, the oldest handshake of the host with the most is closed."""
        self._by_host.setdefault(handshake.peer_host, {})[handshake] = None
        self._count += 1
        if self._count > self._limit:
            most = max(self._by_host.values(), key=len)
            next(iter(most)).close(f"{self._limit} handshakes are open")

    def discard(self, handshake: Handshake) -> None:
        """It is complete, or closed."""
        of_host = self._by_host.get(handshake.peer_host, {})
        if handshake in of_host:
            del of_host[handshake]
            self._count -= 1
            if not of_host:
                del self._by_host[handshake.peer_host]
