"""The world as a broker sees it: what stands behind its seams."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tidelog.config.broker import BrokerSettings
from tidelog.runtime.clock import Clock, SystemClock
from tidelog.runtime.disk import Disk, SystemDisk
from tidelog.runtime.network import Network
from tidelog.runtime.randomness import Randomness, SystemRandomness
from tidelog.runtime.socket_network import SocketNetwork
from tidelog.runtime.workers import ThreadWorkers, Workers
from tidelog.store.interface import Store
from tidelog.store.opening import open_store

WORKER_THREADS = 4


class Seams(NamedTuple):
    clock: Clock
    disk: Disk
    network: Network
    randomness: Randomness
    workers: Workers
    open_store: Callable[[], Awaitable[Store]]


def system_seams(settings: BrokerSettings) -> Seams:
    clock, disk = SystemClock(), SystemDisk()
    workers = ThreadWorkers("tidelog-worker", WORKER_THREADS)
    network = SocketNetwork(
        settings.socket_request_max_bytes,
        max_buffered_bytes=settings.queued_max_request_bytes,
        send_buffer_bytes=settings.socket_send_buffer_bytes,
        receive_buffer_bytes=settings.socket_receive_buffer_bytes,
        accept_backlog=settings.socket_listen_backlog_size,
    )
    return Seams(
        clock=clock,
        disk=disk,
        network=network,
        randomness=SystemRandomness(),
        workers=workers,
        open_store=lambda: open_store(settings, disk, clock, workers),
    )
