"""Process of `tidelog console`: connects to the cluster, observes it, and serves the page until it is interrupted."""

import asyncio
import contextlib
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple

import uvicorn

from tidelog.client.routing.cluster import Cluster
from tidelog.console.app import Console
from tidelog.console.changes import LocalCluster
from tidelog.console.decoding import AS_IT_IS, Decoding
from tidelog.console.gate import Entrance
from tidelog.console.login import Logins, LoginSettings
from tidelog.console.security import guard_of, is_loopback
from tidelog.console.workspace import Workspace

BACKLOG = 128


class ConsoleOptions(NamedTuple):
    host: str
    port: int
    may_change: bool
    token: str | None
    local: LocalCluster | None
    tls_certificate: str | None = None
    tls_key: str | None = None
    public_url: str | None = None
    decoding: Decoding = AS_IT_IS
    has_credentials: bool = False
    """It acts with credentials that not everybody on this machine has."""
    prometheus: str | None = None
    """Address that the charts link to."""
    listener: int | None = None
    """Descriptor of a socket that listens on host and port already."""

    @property
    def needs_token(self) -> bool:
        """Without a login, somebody else than the user of this machine may reach what the console may do."""
        return self.has_credentials or self.public_url is not None or not is_loopback(self.host)

    @property
    def is_secure(self) -> bool:
        return self.tls_certificate is not None or (self.public_url or "").startswith("https:")


class BadOptions(Exception):
    """The message says which option, and what to do."""


async def serve(cluster: Cluster, options: ConsoleOptions, say: Callable[[str], None]) -> None:
    """One workspace for everybody, with the credentials of `cluster`, until the calling task is cancelled."""
    token = options.token
    if token is None and options.needs_token:
        token = secrets.token_urlsafe(24)
    workspace = Workspace(cluster, options.local)
    await _serve(options, token, workspace, None, say)


async def serve_logins(settings: LoginSettings, options: ConsoleOptions, say: Callable[[str], None]) -> None:
    """A workspace for each user who logs in, until the calling task is cancelled."""
    if not is_loopback(options.host) and not options.is_secure:
        raise BadOptions(
            "passwords would cross the network unencrypted: give --tls-certificate and --tls-key, or --public-url with"
            " the https address of the proxy in front of the console"
        )
    await _serve(options._replace(local=None), options.token, None, Logins(settings), say)


async def _serve(
    options: ConsoleOptions,
    token: str | None,
    workspace: Workspace | None,
    logins: Logins | None,
    say: Callable[[str], None],
) -> None:
    listener = _bind(options.host, options.port) if options.listener is None else socket.socket(fileno=options.listener)
    guard = guard_of(options.host, token, may_change=options.may_change, public_url=options.public_url)
    entrance = Entrance(guard, listener.getsockname()[1], options.is_secure, workspace, logins)
    server = _Server(_config(Console(entrance, options.decoding, options.prometheus), options))
    say(_address_line(listener, options, token, workspace))
    async with _running(workspace, logins):
        try:
            await server.serve(sockets=[listener])
        except asyncio.CancelledError:
            server.should_exit = True
            raise


def _config(console: Console, options: ConsoleOptions) -> uvicorn.Config:
    config = uvicorn.Config(
        console.app(),
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        ssl_certfile=options.tls_certificate,
        ssl_keyfile=options.tls_key,
        ssl_keyfile_password="no password",  # or OpenSSL would ask for it at the terminal
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:  # an SSLError is an OSError whose file is not named
        name = getattr(error, "filename", None) or options.tls_certificate
        reason = error.strerror if not isinstance(error, ssl.SSLError) else "it is not a PEM certificate with this key"
        raise BadOptions(f"cannot use --tls-certificate {name}: {reason}; the key must have no password") from error
    return config


class _Server(uvicorn.Server):
    """Signals belong to the command that runs the server."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def _running(workspace: Workspace | None, logins: Logins | None) -> AsyncIterator[None]:
    tasks = []
    if workspace is not None:
        tasks.append(workspace.start())
    if logins is not None:
        tasks.append(asyncio.get_running_loop().create_task(logins.run()))
    try:
        yield
    finally:
        if workspace is not None:
            workspace.observer.close()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)  # so that the address answers as soon as it is printed
    except OSError as error:
        listener.close()
        raise BadOptions(f"cannot listen on {host}:{port} ({error.strerror}); choose another --port") from error
    return listener


def _address_line(
    listener: socket.socket, options: ConsoleOptions, token: str | None, workspace: Workspace | None
) -> str:
    port = listener.getsockname()[1]
    host = f"[{options.host}]" if ":" in options.host else options.host
    scheme = "https" if options.tls_certificate else "http"
    base = options.public_url.rstrip("/") if options.public_url else f"{scheme}://{host}:{port}"
    # A token that the user has chosen is known, and does not belong into a log.
    url = f"{base}/" + (f"?token={token}" if token and token != options.token else "")
    whose = "console with login" if workspace is None else f"console of {workspace.title}"
    return f"{whose}: {url}{'' if options.may_change else ' (read-only; --manage allows changes)'}"
