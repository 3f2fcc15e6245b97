"""Lease of a session: how long it is certainly alive, by the broker's own clock. Then the broker fences itself."""

import asyncio
from collections.abc import Callable
from math import inf

SAFETY_MARGIN = 0.1
"""Share of the session timeout by which a broker fences itself before the store can end its session."""


class Lease:
    """Counted from the time at which a heartbeat was sent, not answered: the store may have received it right then.

    A process that was stopped and continues is out of its lease before any of its timers runs.
    """

    def __init__(
        self, now: Callable[[], float], on_suspended: Callable[[], None], on_resumed: Callable[[], None]
    ) -> None:
        self._now = now
        self._on_suspended = on_suspended
        self._on_resumed = on_resumed
        self._timer: asyncio.TimerHandle | None = None
        self.end = inf
        self.is_suspended = False

    @property
    def is_valid(self) -> bool:
        return self.end == inf or self._now() < self.end

    def renew(self, sent_at: float, timeout_s: float) -> None:
        """A heartbeat sent at this time was answered."""
        self.end = sent_at + timeout_s * (1 - SAFETY_MARGIN)
        self.check()

    def extend(self, sent_at: float, timeout_s: float) -> None:
        """The same from another thread, while the loop is late. Calls no callback, and never shortens the lease.

        A lease that has ended stays ended: a suspended or ended session is not resumed by this.
        """
        end = sent_at + timeout_s * (1 - SAFETY_MARGIN)
        if self.is_valid and not self.is_suspended and self.end < end < inf:
            self.end = end

    def is_within(self, now: float, distance_s: float) -> bool:
        """True if it is valid and ends soon."""
        return now < self.end < now + distance_s

    def hold(self) -> None:
        """Valid until `renew` or `cancel`."""
        self.end = inf
        self.check()

    def cancel(self) -> None:
        """The session has ended: no more callbacks."""
        self.end = -inf
        self._stop_timer()

    def check(self) -> None:
        """Calls the callbacks if the lease has ended or is valid again; also called by a timer."""
        if self.end == -inf:
            return
        if self.is_valid == self.is_suspended:
            self.is_suspended = not self.is_suspended
            callback = self._on_suspended if self.is_suspended else self._on_resumed
            callback()
        self._set_timer()

    def _set_timer(self) -> None:
        if self.is_suspended or self.end == inf:
            self._stop_timer()
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + max(0.0, self.end - self._now())
        if self._timer is not None and self._timer.when() > due:
            self._stop_timer()
        if self._timer is None:
            self._timer = loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        """Sets the timer again if the lease was renewed meanwhile."""
        self._timer = None
        self.check()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
