"""Rate limit for log lines about misbehaving peers: a few per peer and minute, so that nobody can fill the log."""

import asyncio
import logging

LINES_PER_MINUTE = 5
MINUTE_S = 60.0
MAX_PEERS = 1000
"""Further peers share one limit."""

OTHERS = "others"


class PeerErrorLog:
    def __init__(self, logger: logging.Logger, lines_per_minute: int = LINES_PER_MINUTE) -> None:
        self._logger = logger
        self._lines_per_minute = lines_per_minute
        self._counts: dict[str, int] = {}
        """Lines of each peer in its current minute, written or suppressed. A minute begins with its first line."""

    def should_log(self, host: str) -> bool:
        """Whether to write a line about this peer; suppressed lines are counted."""
        if host not in self._counts and len(self._counts) >= MAX_PEERS:
            host = OTHERS
        if host not in self._counts:
            self._counts[host] = 0
            asyncio.get_running_loop().call_later(MINUTE_S, self._end_minute, host)
        self._counts[host] += 1
        return self._counts[host] <= self._lines_per_minute

    def _end_minute(self, host: str) -> None:
        suppressed = self._counts.pop(host) - self._lines_per_minute
        if suppressed > 0:
            self._logger.warning("suppressed log lines in the last minute peer=%s lines=%d", host, suppressed)
