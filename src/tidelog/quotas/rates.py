"""Measures of client quotas: rate over sampled windows, and token bucket (Kafka: Rate, TokenBucket)."""

# Core: no clock, no I/O, no await.
# Times are in seconds of one monotonic clock.

from collections import deque

MIN_SPAN_S = 0.001


class SampledRate:
    """Amount per second over the last windows. A missing window counts as an empty one."""

    __slots__ = ("_total", "_window_s", "_windows", "_windows_kept", "used_at_s")

    def __init__(self, windows_kept: int, window_s: float) -> None:
        self._windows_kept = windows_kept
        self._window_s = window_s
        self._windows: deque[list[float]] = deque()
        """Start and amount of each window, oldest first."""
        self._total = 0.0
        self.used_at_s = 0.0

    def record(self, amount: float, now_s: float) -> None:
        self._drop_old(now_s)
        if not self._windows or now_s - self._windows[-1][0] >= self._window_s:
            self._windows.append([now_s, 0.0])
        self._windows[-1][1] += amount
        self._total += amount
        self.used_at_s = now_s

    def per_second(self, now_s: float) -> float:
        self._drop_old(now_s)
        return self._total / self._span_s(now_s)

    def throttle_s(self, bound: float, now_s: float) -> float:
        """Time without any amount until the rate is within the bound again; 0 if it is."""
        rate = self.per_second(now_s)
        if bound <= 0:
            return self._span_s(now_s)
        return max((rate - bound) / bound * self._span_s(now_s), 0.0)

    def _span_s(self, now_s: float) -> float:
        """Time since the oldest window began; with fewer windows than are kept, as if those before were empty."""
        if not self._windows:
            return max((self._windows_kept - 1) * self._window_s, MIN_SPAN_S)
        elapsed_s = now_s - self._windows[0][0]
        missing = self._windows_kept - 1 - int(elapsed_s / self._window_s)
        return max(elapsed_s + max(missing, 0) * self._window_s, MIN_SPAN_S)

    def _drop_old(self, now_s: float) -> None:
        limit_s = now_s - self._windows_kept * self._window_s
        windows = self._windows
        while windows and windows[0][0] <= limit_s:
            self._total -= windows.popleft()[1]
        if not windows:
            self._total = 0.0  # without the rounding errors of the subtractions


class TokenBucket:
    """Token bucket (KIP-599): refilled at the rate of the quota, up to the amount of all windows together."""

    __slots__ = ("_tokens", "_updated_at_s", "_windows_s", "used_at_s")

    def __init__(self, windows_kept: int, window_s: float) -> None:
        self._windows_s = windows_kept * window_s
        self._tokens: float | None = None  # None: full, which depends on the rate
        self._updated_at_s = 0.0
        self.used_at_s = 0.0

    def tokens(self, rate: float, now_s: float) -> float:
        burst = rate * self._windows_s
        if self._tokens is None:
            return burst
        return min(self._tokens + rate * (now_s - self._updated_at_s), burst)

    def take(self, amount: float, rate: float, now_s: float) -> None:
        """Take tokens. The balance may become negative."""
        self._tokens = self.tokens(rate, now_s) - amount
        self._updated_at_s = self.used_at_s = now_s

    def throttle_s(self, rate: float, now_s: float) -> float:
        """Time until the balance is no longer negative; 0 if it is not."""
        return max(-self.tokens(rate, now_s) / rate, 0.0)
