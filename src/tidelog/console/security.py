"""Access to the console: loopback, a token or a login; pages of its own origin only; changes only with `--manage`."""

# Core: no clock, no I/O, no await.

import hmac
from collections.abc import Mapping
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")
WILDCARDS = ("0.0.0.0", "::")
CHANGE_HEADER = "x-tidelog-console"
"""Pages of other origins cannot send it without asking, and are not allowed to: no forged requests."""
API = "/api/"
CHANGES = "/api/changes/"
OWN_SITES = ("same-origin", "none")
"""Sec-Fetch-Site of requests of the console's own page, or of a person who types the address."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
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
    answers_to_addresses: bool = False
    """Any IP address is accepted as its name: no foreign name leads there."""
    public_origin: str | None = None
    """Of a proxy in front of the console, such as `https://console.example`."""

    def refusal(self, method: str, path: str, headers: Mapping[str, str], token: str | None) -> Refusal | None:
        host = _host_of(headers.get("host", ""))
        if host not in self.hosts and not (self.answers_to_addresses and _is_address(host)):
            return Refusal(421, f"the console does not answer as {host!r}; --public-url allows another name")
        if not path.startswith(API):
            return None if method in ("GET", "HEAD") else Refusal(405, "only the API takes other methods")
        # A page of another origin cannot read the answer, but could make the console work.
        if headers.get("sec-fetch-site", "none") not in OWN_SITES:
            return Refusal(403, "the console answers its own page only")
        if self.token is not None and not self.accepts(token or ""):
            return Refusal(401, "open the address with the token that `tidelog console` printed")
        return None if method in ("GET", "HEAD") else self._refusal_of_post(path, headers)

    def accepts(self, token: str) -> bool:
        return self.token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    def _refusal_of_post(self, path: str, headers: Mapping[str, str]) -> Refusal | None:
        if path.startswith(CHANGES) and not self.may_change:
            return Refusal(403, "this console is read-only; start it with --manage to make changes")
        if CHANGE_HEADER not in headers or not self._is_own_origin(headers):
            return Refusal(403, "changes are accepted from the console's own page only")
        return None

    def _is_own_origin(self, headers: Mapping[str, str]) -> bool:
        origin = headers.get("origin")
        return origin is None or origin == self.public_origin or urlsplit(origin).netloc == headers.get("host")


def guard_of(host: str, token: str | None, *, may_change: bool, public_url: str | None = None) -> Guard:
    """The guard of a console that listens on `host`."""
    public = urlsplit(public_url) if public_url else None
    names = {*LOOPBACK, host, *([_host_of(public.netloc)] if public else [])}
    origin = f"{public.scheme}://{public.netloc}" if public else None
    return Guard(frozenset(names), token, may_change, host in WILDCARDS, origin)


def is_loopback(host: str) -> bool:
    return host in LOOPBACK


def cookie_name(port: int, *, is_secure: bool) -> str:
    """With the port: browsers send the cookies of a host to all its ports, where another console may listen."""
    # Browsers accept the prefix only from HTTPS, for the whole host and this host alone.
    return f"{'__Host-' if is_secure else ''}tidelog_console_{port}"


def _host_of(header: str) -> str:
    return header if header.endswith("]") else header.rsplit(":", 1)[0] if ":" in header else header


def _is_address(host: str) -> bool:
    try:
        ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
