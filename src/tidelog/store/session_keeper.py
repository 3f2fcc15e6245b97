"""Renewal of a session while the event loop is late: a thread that goes on as long as the loop shows signs of life.

The loop renews the lease itself. A long turn of it, with much garbage to collect or a very large request, must not cost
a broker its session and all of its leaders; so a thread renews when the loop is late. It asks the loop for a sign of
life all the time, and stops renewing when there was none for `patience_s`: a broker whose loop hangs loses its session,
if later. A process that is stopped stops this thread, too. The lease is counted as everywhere (from when the renewal
was sent), so that a broker still fences itself before others can take it for dead.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from tidelog.store.lease import Lease

logger = logging.getLogger(__name__)

TICKS_PER_SESSION = 12


class SessionKeeper:
    """Everything here but `__init__` runs in a thread of its own."""

    def __init__(
        self,
        lease: Lease,
        timeout_s: float,
        now: Callable[[], float],
        renew: Callable[[float], None],
        patience_s: float | None = None,
    ) -> None:
        """`renew` takes the time of now and returns when the store has taken it; it may raise anything."""
        self._lease = lease
        self._timeout_s = timeout_s
        self._now = now
        self._renew = renew
        self._patience_s = timeout_s if patience_s is None else patience_s
        self._loop = asyncio.get_running_loop()
        self._sign_of_life = now()
        self._is_asked = False

    @property
    def interval_s(self) -> float:
        return self._timeout_s / TICKS_PER_SESSION

    def tick(self) -> None:
        now = self._now()
        if not self._is_asked:
            self._is_asked = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._on_asked)
        is_alive = now - self._sign_of_life < self._patience_s
        # The loop renews several times in a session: half of one without that is late.
        if is_alive and self._lease.is_within(now, self._timeout_s / 2):
            try:
                self._renew(now)
            except Exception as error:  # noqa: BLE001 - the loop meets it again, and acts on it
                logger.debug("session not renewed reason=%s", error)
            else:
                self._lease.extend(now, self._timeout_s)
                logger.warning("event loop is late, session renewed for it silent_ms=%d", self._silent_ms())

    def _silent_ms(self) -> int:
        return int((self._now() - self._sign_of_life) * 1000)

    def _on_asked(self) -> None:
        self._is_asked = False
        self._sign_of_life = self._now()
