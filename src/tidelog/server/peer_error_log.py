"""Log lines about what peers do wrong, limited per peer and minute: nobody fills the log by sending nonsense."""

import asyncio
import logging

LINES_PER_MINUTE = 5
MINUTE_S = 60.0
MAX_PEERS = 1000
"""More addresses than that share one limit."""

OTHERS = "others"


class Complaints:
    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._counts: dict[str, int] = {}
        """Lines of the peers' present minutes, told or left out. A minute begins with its first line."""

    def may_tell(self, host: str) -> bool:
        """Whether a line about this peer may be written now; if not, it is counted."""
        if host not in self._counts and len(self._counts) >= MAX_PEERS:
            host = OTHERS
        if host not in self._counts:
            self._counts[host] = 0
            asyncio.get_running_loop().call_later(MINUTE_S, self._end_minute, host)
        self._counts[host] += 1
        return self._counts[host] <= LINES_PER_MINUTE

    def _end_minute(self, host: str) -> None:
        left_out = self._counts.pop(host) - LINES_PER_MINUTE
        if left_out > 0:
            self._logger.warning("left out lines about a peer in the last minute peer=%s lines=%d", host, left_out)
