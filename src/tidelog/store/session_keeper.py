"""Session keeper: a thread that renews the session while the event loop is late but alive.

The loop normally renews the lease itself. A long turn of the loop, with a large request or much garbage to collect,
must not cost a broker its session and all its leaders, so the thread renews when the loop is late. It keeps pinging the
loop, and stops renewing after `loop_timeout_s` without a response: a broker whose loop hangs still loses its session,
only later. A stopped process stops this thread, too. The lease is counted from the time a renewal was sent, as
everywhere, so a broker still fences itself before others can declare it dead.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from tidelog.store.lease import Lease

logger = logging.getLogger(__name__)

TICKS_PER_SESSION = 12


class SessionKeeper:
    """`tick` runs in the keeper's thread every `interval_s`; `_on_ping` runs on the event loop."""

    def __init__(
        self,
        lease: Lease,
        timeout_s: float,
        now: Callable[[], float],
        renew: Callable[[float], None],
        loop_timeout_s: float | None = None,
    ) -> None:
        """`renew` takes the current time and returns when the store has renewed the session; it may raise anything."""
        self._lease = lease
        self._timeout_s = timeout_s
        self._now = now
        self._renew = renew
        self._loop_timeout_s = timeout_s if loop_timeout_s is None else loop_timeout_s
        self._loop = asyncio.get_running_loop()
        self._last_ping = now()
        self._is_ping_pending = False

    @property
    def interval_s(self) -> float:
        return self._timeout_s / TICKS_PER_SESSION

    def tick(self) -> None:
        now = self._now()
        if not self._is_ping_pending:
            self._is_ping_pending = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._on_ping)
        is_alive = now - self._last_ping < self._loop_timeout_s
        # The loop renews several times per session timeout: half a timeout without renewal is late.
        if is_alive and self._lease.is_within(now, self._timeout_s / 2):
            try:
                self._renew(now)
            except Exception as error:  # noqa: BLE001 - the loop will see the same error and handle it
                logger.debug("session not renewed reason=%s", error)
            else:
                self._lease.extend(now, self._timeout_s)
                logger.warning("event loop is late, session renewed by keeper thread silent_ms=%d", self._silent_ms())

    def _silent_ms(self) -> int:
        return int((self._now() - self._last_ping) * 1000)

    def _on_ping(self) -> None:
        self._is_ping_pending = False
        self._last_ping = self._now()
