"""Sessions of users who logged in, and the limit on failed logins."""

# Core: no clock, no I/O, no await.

from collections import deque
from hashlib import sha256
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_SESSIONS = 100
MAX_SESSIONS_OF_USER = 10
IDLE_S = 1800.0
MAX_AGE_S = 12 * 3600.0
MAX_FAILURES = 5
FAILURES_WITHIN_S = 60.0
MAX_ADDRESSES = 1000


class Session(Generic[T]):
    def __init__(self, user: str, content: T, now_s: float) -> None:
        self.user = user
        self.content = content
        self.began_s = now_s
        self.used_s = now_s


class Sessions(Generic[T]):
    """By the hash of their secret, so that the secret is kept nowhere but in the browser."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, Session[T]] = {}

    def open(self, secret: str, user: str, content: T, now_s: float) -> list[Session[T]]:
        """Returns the sessions that had to end for this one: of the user, or of all, the one unused for longest."""
        ended = []
        own = [key for key, session in self._sessions.items() if session.user == user]
        candidates = own if len(own) >= MAX_SESSIONS_OF_USER else list(self._sessions)
        if candidates is own or len(candidates) >= MAX_SESSIONS:
            ended.append(self._sessions.pop(min(candidates, key=lambda key: self._sessions[key].used_s)))
        self._sessions[_key(secret)] = Session(user, content, now_s)
        return ended

    def find(self, secret: str | None, now_s: float) -> Session[T] | None:
        found = None if secret is None else self._sessions.get(_key(secret))
        if found is None or _is_over(found, now_s):
            return None
        found.used_s = now_s
        return found

    def close(self, secret: str) -> Session[T] | None:
        return self._sessions.pop(_key(secret), None)

    def end_expired(self, now_s: float) -> list[Session[T]]:
        over = [key for key, session in self._sessions.items() if _is_over(session, now_s)]
        return [self._sessions.pop(key) for key in over]

    def end_all(self) -> list[Session[T]]:
        ended = list(self._sessions.values())
        self._sessions.clear()
        return ended

    def all(self) -> list[Session[T]]:
        return list(self._sessions.values())


def _key(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def _is_over(session: Session[T], now_s: float) -> bool:
    return now_s - session.used_s > IDLE_S or now_s - session.began_s > MAX_AGE_S


class FailedLogins:
    """Failures of each client address: passwords are not to be guessed through the console."""

    def __init__(self) -> None:
        self._failures: dict[str, deque[float]] = {}

    def blocked_for_s(self, address: str, now_s: float) -> float:
        """Seconds until the address may try again; 0 if it may."""
        failures = self._failures.get(address)
        if failures is None or len(failures) < MAX_FAILURES:
            return 0.0
        return max(0.0, failures[0] + FAILURES_WITHIN_S - now_s)

    def note(self, address: str, now_s: float) -> None:
        failures = self._failures.pop(address, None) or deque[float](maxlen=MAX_FAILURES)
        failures.append(now_s)
        self._failures[address] = failures
        if len(self._failures) > MAX_ADDRESSES:
            del self._failures[next(iter(self._failures))]

    def clear(self, address: str) -> None:
        self._failures.pop(address, None)
