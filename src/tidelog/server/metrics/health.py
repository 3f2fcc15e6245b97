"""HTTP pages `/health/live` and `/health/ready`, for supervisors such as Kubernetes."""

from collections.abc import Callable, Iterator

from tidelog.runtime.http_server import PLAIN_TEXT, Unavailable

LIVE_PATH = "/health/live"
READY_PATH = "/health/ready"


class LivePage:
    """The process answers: if it does not, only a restart helps."""

    content_type = PLAIN_TEXT

    def pieces(self) -> Iterator[bytes]:
        yield b"live\n"


class ReadyPage:
    """The broker is a member of its cluster and serves clients; else status 503 with the reason."""

    content_type = PLAIN_TEXT

    def __init__(self, reason_against: Callable[[], str]) -> None:
        """Empty if the broker is ready."""
        self._reason_against = reason_against

    def pieces(self) -> Iterator[bytes]:
        if reason := self._reason_against():
            raise Unavailable(reason)
        yield b"ready\n"
