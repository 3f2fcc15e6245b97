"""Seams of a broker: clock, disk, network, randomness, workers and store, replaced by fakes in tests.

Everything that can fail or that depends on time stands behind one of them.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from tidelog.config.broker import BrokerSettings
from tidelog.config.listeners import TLS_PROTOCOLS
from tidelog.runtime.clock import Clock, SystemClock
from tidelog.runtime.disk import Disk, SystemDisk
from tidelog.runtime.network import Network
from tidelog.runtime.randomness import Randomness, SystemRandomness
from tidelog.runtime.socket_network import SocketNetwork
from tidelog.runtime.tls_context import ListenerTls
from tidelog.runtime.turns import Turns
from tidelog.runtime.workers import ThreadWorkers, Workers
from tidelog.server.tracing import Tracing, open_tracing
from tidelog.store.interface import Store
from tidelog.store.opening import open_store

WORKER_THREADS = 4
STORE_THREADS = 2


class Seams(NamedTuple):
    clock: Clock
    disk: Disk
    network: Network
    randomness: Randomness
    workers: Workers
    open_store: Callable[[], Awaitable[Store]]
    large_messages: Workers | None = None
    """One thread that decodes and encodes large messages; None: `workers` do it."""
    store_workers: Workers | None = None
    """Threads of the session with the store, separate from all other work."""
    tls: Mapping[str, ListenerTls] = {}
    """TLS of the listeners that have it, by name."""
    turns: Turns | None = None
    """Shared with the network, which schedules connections with them."""
    control_network: Network | None = None
    """The controller connects to brokers through it; None: through `network`."""
    tracing: Tracing | None = None
    """Sends a span for each request; None: there are no traces."""

    def close(self) -> None:
        """Stop the threads after their current work."""
        for workers in (self.workers, self.large_messages, self.store_workers):
            if workers is not None:
                workers.close()
        if self.tracing is not None:
            self.tracing.close()


def system_seams(settings: BrokerSettings) -> Seams:
    """Raises BadKeyMaterial if a listener has TLS and its certificate cannot be used, and TracingUnavailable."""
    tracing = open_tracing(settings)
    tls = {
        endpoint.listener_name: ListenerTls(settings.for_listener(endpoint.listener_name))
        for endpoint in settings.endpoints
        if endpoint.security_protocol in TLS_PROTOCOLS
    }
    clock, disk, randomness = SystemClock(), SystemDisk(), SystemRandomness()
    turns = Turns(clock.monotonic)
    workers = ThreadWorkers("tidelog-worker", WORKER_THREADS)
    # A session that waits behind the disk reads of clients would expire.
    store_workers = ThreadWorkers("tidelog-store", STORE_THREADS)

    def network_to(listener: str | None) -> SocketNetwork:
        return SocketNetwork(
            settings.socket_request_max_bytes,
            max_buffered_bytes=settings.queued_max_request_bytes,
            send_buffer_bytes=settings.socket_send_buffer_bytes,
            receive_buffer_bytes=settings.socket_receive_buffer_bytes,
            accept_backlog=settings.socket_listen_backlog_size,
            turns=turns,
            tls=tls.get(listener or ""),
        )

    control_listener = settings.control_plane_listener
    return Seams(
        clock=clock,
        disk=disk,
        network=network_to(settings.inter_broker_listener),
        randomness=randomness,
        workers=workers,
        open_store=lambda: open_store(settings, disk, clock, store_workers, randomness),
        large_messages=ThreadWorkers("tidelog-large-message", 1),
        store_workers=store_workers,
        tls=tls,
        turns=turns,
        control_network=None if control_listener is None else network_to(control_listener),
        tracing=tracing,
    )
