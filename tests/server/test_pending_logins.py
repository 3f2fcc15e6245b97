"""Connections that have not logged in: how many there may be, and which of them give way."""

from typing import Any

from tidelog.runtime.clock import ManualClock
from tidelog.server.audit_log import AuditLog
from tidelog.server.login import LOGIN_TIMEOUT_S, MAX_PENDING_LOGINS, Login, Logins, SaslListener

LISTENER = SaslListener("CLIENTS", {}, 1000, 1000, 0.1)


class SilentPeer:
    def __init__(self, logins: Logins, host: str) -> None:
        self.peer_host = host
        self.closed_because = ""
        self.login: Login | None = logins.begin(self._as_peer(), LISTENER)

    def _as_peer(self) -> Any:
        self.channel, self.session = self, None
        return self

    def limit_frames(self, max_bytes: int) -> None:
        return None

    def close(self, reason: str) -> None:
        self.closed_because = reason
        if self.login is not None:
            self.login.on_closed()


def test_the_host_with_the_most_gives_way() -> None:
    logins = Logins(ManualClock(), AuditLog())
    slow = SilentPeer(logins, "10.0.0.2")
    many = [SilentPeer(logins, "10.0.0.1") for _ in range(2 * MAX_PENDING_LOGINS)]
    assert not slow.closed_because
    assert [bool(each.closed_because) for each in many].count(True) == MAX_PENDING_LOGINS + 1
    assert all(each.closed_because for each in many[: MAX_PENDING_LOGINS + 1])
    assert len(logins) == MAX_PENDING_LOGINS


def test_nothing_is_left_of_a_host_that_is_gone() -> None:
    clock = ManualClock()
    logins = Logins(clock, AuditLog())
    peers = [SilentPeer(logins, f"10.0.0.{number % 7}") for number in range(100)]
    peers[0].close("by the peer")
    peers[0].close("twice")
    clock.advance(int(LOGIN_TIMEOUT_S * 1000) + 1)
    logins.close_late(clock.monotonic())
    assert all(each.closed_because for each in peers)
    assert (len(logins), logins._by_host) == (0, {})
