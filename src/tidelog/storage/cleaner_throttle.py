"""Rate limit of the cleaner's reads and writes (Kafka: Throttler): log.cleaner.io.max.bytes.per.second."""

import asyncio
import sys
from typing import Final

UNLIMITED: Final = sys.float_info.max

MAX_STEP_S: Final = 1.0
"""A new rate takes effect after this time at the latest."""
MIN_PAUSE_S: Final = 0.001


class CleanerThrottle:
    """The cleaner pauses after each group of segments for as long as the rate demands."""

    def __init__(self) -> None:
        self.bytes_per_second: float = UNLIMITED

    async def pause_after(self, size: int) -> None:
        """Wait until `size` bytes more have been allowed."""
        left = float(size)
        while (left_s := left / self.bytes_per_second) >= MIN_PAUSE_S:
            rate, step_s = self.bytes_per_second, min(left_s, MAX_STEP_S)
            await asyncio.sleep(step_s)
            left -= rate * step_s
