"""Who may use the console: loopback or a token, pages of its own origin only, changes only with `--manage`."""

# Core: no clock, no I/O, no await.

import hmac
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")
TOKEN_COOKIE = "tidelog_console"
CHANGE_HEADER = "x-tidelog-console"
"""Pages of other origins cannot send it without asking, and are not allowed to: no forged requests."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " font-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Refusal(NamedTuple):
    status: int
    reason: str


class Guard(NamedTuple):
    hosts: frozenset[str]
    """Names under which the console may be reached. Others are refused: a foreign name may lead to loopback."""
    token: str | None
    may_change: bool

    def refusal(self, method: str, headers: Mapping[str, str], token: str | None) -> Refusal | None:
        host = _host_of(headers.get("host", ""))
        if host not in self.hosts:
            return Refusal(421, f"the console does not answer as {host!r}; start it with --host to allow another name")
        if self.token is not None and not hmac.compare_digest((token or "").encode(), self.token.encode()):
            return Refusal(401, "open the address with the token that `tidelog console` printed")
        return None if method in ("GET", "HEAD") else self._refusal_of_change(headers)

    def _refusal_of_change(self, headers: Mapping[str, str]) -> Refusal | None:
        if not self.may_change:
            return Refusal(403, "this console is read-only; start it with --manage to make changes")
        origin = headers.get("origin")
        if CHANGE_HEADER not in headers or (origin is not None and urlsplit(origin).netloc != headers.get("host")):
            return Refusal(403, "changes are accepted from the console's own page only")
        return None


def is_loopback(host: str) -> bool:
    return host in LOOPBACK


def _host_of(header: str) -> str:
    return header if header.endswith("]") else header.rsplit(":", 1)[0] if ":" in header else header
