"""Schedule of malloc_trim, which returns free memory to the operating system."""

GROWTH_BYTES = 16 * 1024 * 1024
"""Growth since the last trim after which another one is due."""

WORTHWHILE_BYTES = 4 * 1024 * 1024
MAX_PAUSE = 6


class TrimSchedule:
    """Checked at regular intervals.

    During a burst of large requests there is nothing to return, and after it memory does not grow any more. A process
    that is larger than its minimum is therefore trimmed again, less and less often.
    """

    def __init__(self, resident_bytes: int) -> None:
        self._least_bytes = self._last_bytes = resident_bytes
        self._pause = 1
        self._asked = 0

    def is_due(self, resident_bytes: int) -> bool:
        self._asked += 1
        has_grown = resident_bytes > self._last_bytes + GROWTH_BYTES
        return has_grown or (resident_bytes > self._least_bytes + GROWTH_BYTES and self._asked >= self._pause)

    def on_trimmed(self, before_bytes: int, after_bytes: int) -> None:
        self._asked = 0
        self._last_bytes = after_bytes
        self._least_bytes = min(self._least_bytes, after_bytes)
        is_worthwhile = before_bytes - after_bytes >= WORTHWHILE_BYTES
        self._pause = 1 if is_worthwhile else min(2 * self._pause, MAX_PAUSE)
