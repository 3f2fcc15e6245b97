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

    def __init__(self, why_not_ready: Callable[[], str]) -> None:
        """`why_not_ready` returns an empty text if the broker is ready."""
        self._why_not_ready = why_not_ready

    def pieces(self) -> Iterator[bytes]:
        if reason := self._why_not_ready():
            raise Unavailable(reason)
        yield b"ready\n"
