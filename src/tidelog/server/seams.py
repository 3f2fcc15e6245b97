"""The world as a broker sees it: what stands behind its seams."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tidelog.config.broker import BrokerSettings
from tidelog.runtime.clock import Clock, SystemClock
from tidelog.runtime.disk import Disk, SystemDisk
from tidelog.runtime.network import Network
from tidelog.runtime.randomness import Randomness, SystemRandomness
from tidelog.runtime.socket_network import SocketNetwork
from tidelog.runtime.turns import Turns
from tidelog.runtime.workers import ThreadWorkers, Workers
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
    """One thread for what clients make large; without it `workers` do that too."""
    store_workers: Workers | None = None
    """What the session with the store runs in, apart from all other work."""
    turns: Turns | None = None
    """Shared with the network, which serves connections by them."""

    def close(self) -> None:
        """End the threads, after what they still do."""
        for workers in (self.workers, self.large_messages, self.store_workers):
            if workers is not None:
                workers.close()


def system_seams(settings: BrokerSettings) -> Seams:
    clock, disk = SystemClock(), SystemDisk()
    turns = Turns(clock.monotonic)
    workers = ThreadWorkers("tidelog-worker", WORKER_THREADS)
    # The session must not wait behind searches of clients.
    store_workers = ThreadWorkers("tidelog-store", STORE_THREADS)
    network = SocketNetwork(
        settings.socket_request_max_bytes,
        max_buffered_bytes=settings.queued_max_request_bytes,
        send_buffer_bytes=settings.socket_send_buffer_bytes,
        receive_buffer_bytes=settings.socket_receive_buffer_bytes,
        accept_backlog=settings.socket_listen_backlog_size,
        turns=turns,
    )
    return Seams(
        clock=clock,
        disk=disk,
        network=network,
        randomness=SystemRandomness(),
        workers=workers,
        open_store=lambda: open_store(settings, disk, clock, store_workers),
        large_messages=ThreadWorkers("tidelog-large-message", 1),
        store_workers=store_workers,
        turns=turns,
    )
