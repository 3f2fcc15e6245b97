"""Process of `tidelog console`: connects to the cluster, observes it, and serves the page until it is interrupted."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple

import uvicorn

from tidelog.client.routing.cluster import Cluster
from tidelog.console.app import Console
from tidelog.console.broker_metrics import BrokerMetrics
from tidelog.console.changes import Changes, LocalCluster
from tidelog.console.observer import Observer
from tidelog.console.security import LOOPBACK, Guard, is_loopback

BACKLOG = 128


class ConsoleOptions(NamedTuple):
    host: str
    port: int
    may_change: bool
    token: str | None
    title: str
    local: LocalCluster | None


class AddressTaken(Exception):
    """The message says which address, and what to do."""


async def serve(cluster: Cluster, options: ConsoleOptions, say: Callable[[str], None]) -> None:
    """Until the calling task is cancelled."""
    listener = _bind(options.host, options.port)
    token = options.token if is_loopback(options.host) else options.token or secrets.token_urlsafe(24)
    guard = Guard(frozenset({*LOOPBACK, options.host}), token, options.may_change)
    observer = Observer(cluster, BrokerMetrics())
    console = Console(observer, Changes(cluster, options.local), guard, options.title)
    config = uvicorn.Config(console.app(), log_level="warning", access_log=False, lifespan="off", ws="none")
    server = _Server(config)
    say(_address_line(listener, options, token))
    async with _running(observer):
        try:
            await server.serve(sockets=[listener])
        except asyncio.CancelledError:
            observer.close()
            server.should_exit = True
            raise


class _Server(uvicorn.Server):
    """Signals belong to the command that runs the server."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def _running(observer: Observer) -> AsyncIterator[None]:
    task = asyncio.get_running_loop().create_task(observer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)  # so that the address answers as soon as it is printed
    except OSError as error:
        listener.close()
        raise AddressTaken(f"cannot listen on {host}:{port} ({error.strerror}); choose another --port") from error
    return listener


def _address_line(listener: socket.socket, options: ConsoleOptions, token: str | None) -> str:
    port = listener.getsockname()[1]
    host = f"[{options.host}]" if ":" in options.host else options.host
    url = f"http://{host}:{port}/" + (f"?token={token}" if token else "")
    return f"console of {options.title}: {url}{'' if options.may_change else ' (read-only; --manage allows changes)'}"
