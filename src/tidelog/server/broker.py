"""One broker: where all parts are made, wired together, started and stopped."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tidelog.cluster.image import Broker as RegisteredBroker
from tidelog.config.broker import BrokerSettings
from tidelog.config.listeners import Endpoint, host_and_port
from tidelog.controller.elections import raise_leader_epochs
from tidelog.controller.loading import load_image
from tidelog.controller.registration import (
    BrokerIdInUse,
    find_cluster_id,
    generate_broker_id,
    prepare_store,
)
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.runtime.clock import Clock, SystemClock
from tidelog.runtime.deadlines import Deadlines
from tidelog.runtime.disk import Disk, SystemDisk
from tidelog.runtime.network import Channel, FrameReceiver, Listener, Network
from tidelog.runtime.purgatory import Purgatory
from tidelog.runtime.randomness import Randomness, SystemRandomness
from tidelog.runtime.socket_network import SocketNetwork
from tidelog.runtime.workers import ThreadWorkers, Workers
from tidelog.server.cluster_state import ClusterState
from tidelog.server.connection import Connection, ConnectionRegistry
from tidelog.server.dispatch import Dispatcher
from tidelog.server.membership import Membership, NotAlone, check_alone
from tidelog.server.services import Services
from tidelog.server.takeover import take_over_logs
from tidelog.storage.log_directory import Identity, LogDirectory, StorageSetupError, find_identity
from tidelog.storage.log_manager import LogManager
from tidelog.store.interface import Store, StoreError
from tidelog.store.sqlite import SqliteStore
from tidelog.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

WORKER_THREADS = 4
IDLE_CHECKS_PER_LIMIT = 10
SHORTEST_IDLE_CHECK_S = 0.1
DRAIN_S = 1.0
DRAIN_POLL_S = 0.01
REJOIN_PAUSE_S = 1.0


class CannotStart(Exception):
    """Something outside the broker is not as it has to be; the message is a sentence for whoever starts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """The world as the broker sees it."""

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

    async def open_store() -> Store:
        return await SqliteStore.open(
            settings.coordination_store_path,
            disk,
            clock,
            workers,
            session_timeout_ms=settings.broker_session_timeout_ms,
            heartbeat_interval_ms=settings.broker_heartbeat_interval_ms,
        )

    return Seams(
        clock=clock,
        disk=disk,
        network=network,
        randomness=SystemRandomness(),
        workers=workers,
        open_store=open_store,
    )


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    connections: int
    waiting_operations: int
    partitions: int
    offline_partitions: int


class Broker:
    """A running broker. `start` gives one that serves; `stop` leaves its log directories clean."""

    def __init__(self, settings: BrokerSettings, seams: Seams) -> None:
        self.settings = settings
        self._seams = seams
        self.listeners: list[Listener] = []
        self._registry = ConnectionRegistry(settings)
        self._background: list[asyncio.Task[object]] = []
        self._failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.broker_id: BrokerId = -1
        self.cluster_id = ""
        self._logs: LogManager | None = None
        self._store: Store | None = None
        self._services: Services
        self._dispatcher: Dispatcher

    # -- starting

    @classmethod
    async def start(cls, settings: BrokerSettings, seams: Seams | None = None) -> "Broker":
        broker = cls(settings, seams or system_seams(settings))
        try:
            await broker._start()
        except (OSError, StorageSetupError, StoreError, BrokerIdInUse, NotAlone) as error:
            await broker._abandon()
            raise CannotStart(_sentence(error)) from error
        except BaseException:
            await broker._abandon()
            raise
        return broker

    async def _start(self) -> None:
        """What can be refused comes first, so that a refusal changes nothing."""
        for endpoint in self.settings.endpoints:
            self.listeners.append(await self._bind(endpoint))
        identity = self._find_identity(Identity(None, self.settings.configured_broker_id))
        store = await self._open_store()
        await check_alone(store)
        self.cluster_id = await find_cluster_id(store, self._seams.randomness, identity.cluster_id)
        identity = self._find_identity(Identity(self.cluster_id, identity.broker_id))
        self.broker_id = await self._choose_broker_id(store, identity.broker_id)
        cluster = ClusterState(self.broker_id, self.settings, await load_image(store))
        logs = self._logs = await self._open_logs(cluster)
        purgatory = self._make_purgatory()
        replicas = ReplicaManager(logs, purgatory)
        cluster.start(replicas)
        self._registry.take_settings(cluster.settings)
        cluster.on_settings += [self._registry.take_settings, logs.take_settings]
        membership = await self._join(store, cluster)
        await self._take_office(membership, cluster, logs)
        self._services = Services(
            clock=self._seams.clock,
            workers=self._seams.workers,
            logs=logs,
            replicas=replicas,
            cluster=cluster,
            membership=membership,
            purgatory=purgatory,
        )
        self._dispatcher = Dispatcher(self._services)
        logs.on_directory_offline.append(self._on_directory_offline)
        self._start_background(logs)
        for listener in self.listeners:
            listener.start()

    async def _bind(self, endpoint: Endpoint) -> Listener:
        def accept(channel: Channel) -> FrameReceiver | None:
            return self.accept(channel, endpoint.listener_name)

        try:
            return await self._seams.network.listen(endpoint.host, endpoint.port, accept)
        except OSError as error:
            raise CannotStart(
                f"cannot listen on {endpoint.host or '*'}:{endpoint.port}: {error.strerror or error};"
                " choose another address with --set listeners=PLAINTEXT://HOST:PORT"
            ) from error

    def _find_identity(self, known: Identity) -> Identity:
        return find_identity(self._seams.disk, self.settings.log_directories, known)

    async def _open_store(self) -> Store:
        self._store = await self._seams.open_store()
        await prepare_store(self._store)
        return self._store

    async def _choose_broker_id(self, store: Store, known: BrokerId | None) -> BrokerId:
        if known is not None:
            return known
        return await generate_broker_id(store, self.settings.reserved_broker_max_id)

    async def _open_logs(self, cluster: ClusterState) -> LogManager:
        seams = self._seams
        return await LogManager.open(
            cluster.settings,
            cluster.topic_settings,
            seams.disk,
            seams.clock,
            seams.workers,
            self.cluster_id,
            self.broker_id,
            randomness=seams.randomness,
        )

    def _make_purgatory(self) -> Purgatory:
        loop = asyncio.get_running_loop()
        return Purgatory(loop, Deadlines(loop))

    async def _join(self, store: Store, cluster: ClusterState) -> Membership:
        registration = RegisteredBroker(self.broker_id, self._advertised(), self.settings.broker_rack)
        membership = await Membership.join(store, registration, cluster, self._seams.clock, self._seams.randomness)
        store.on_session_end(self._on_session_end)
        return membership

    def _advertised(self) -> tuple[Endpoint, ...]:
        """An empty host becomes the machine's name, port 0 the port that was found."""
        bound = {
            endpoint.listener_name: listener
            for endpoint, listener in zip(self.settings.endpoints, self.listeners, strict=True)
        }
        found = []
        for endpoint in self.settings.advertised_endpoints:
            listener = bound.get(endpoint.listener_name)
            port = endpoint.port or (listener.port if listener else 0)
            found.append(endpoint._replace(host=endpoint.host or self._seams.network.host_name(), port=port))
        return tuple(found)

    @property
    def advertised_address(self) -> str:
        endpoint = self._services.membership.broker.endpoints[0]
        return host_and_port(endpoint.host, endpoint.port)

    async def _take_office(self, membership: Membership, cluster: ClusterState, logs: LogManager) -> None:
        if not cluster.image.topics and logs.logs:
            await take_over_logs(membership, cluster, logs)
        elif not all(directory.was_clean for directory in logs.directories):
            topics = cluster.image.topics.values()
            raised = await raise_leader_epochs(membership.store, membership.term, topics, self.broker_id)
            cluster.apply(cluster.image.with_topics(*raised))
        for topic_partition in logs.logs:
            if cluster.image.partition(topic_partition) is None:
                log.warning("log of an unknown topic is left alone partition=%s", topic_partition)

    # -- running

    def statistics(self) -> BrokerStatistics:
        return BrokerStatistics(
            connections=len(self._registry),
            waiting_operations=self._services.purgatory.size,
            partitions=len(self._services.replicas),
            offline_partitions=len(self._services.replicas.offline_partitions),
        )

    def _start_background(self, logs: LogManager) -> None:
        assert self._store is not None
        for work in (logs.run(), self._store.run(), self._close_idle_connections()):
            task = asyncio.get_running_loop().create_task(work)
            task.add_done_callback(self._on_background_done)
            self._background.append(task)

    def _on_background_done(self, task: asyncio.Task[object]) -> None:
        if task in self._background:
            self._background.remove(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background work failed", exc_info=task.exception())
            self._fail("background work failed; the log above says why")

    def _fail(self, reason: str) -> None:
        if not self._failure.done():
            self._failure.set_result(reason)

    async def run_until(self, stop: asyncio.Event) -> str | None:
        """Serve until told to stop; the reason if the broker cannot go on by itself."""
        stopping = asyncio.ensure_future(stop.wait())
        waited: list[asyncio.Future[Any]] = [stopping, self._failure]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        return self._failure.result() if self._failure.done() else None

    def accept(self, channel: Channel, listener_name: str) -> FrameReceiver | None:
        """Take a new connection, or turn it away."""
        refusal = self._registry.refusal(channel.peer_host)
        if refusal is not None:
            log.warning("connection refused peer=%s reason=%s", channel.peer_host, refusal)
            return None
        connection = Connection(channel, self._dispatcher, self._registry, listener_name)
        self._registry.add(connection)
        return connection

    async def _close_idle_connections(self) -> None:
        limit_s = self.settings.connections_max_idle_ms / 1000
        if limit_s < 0:
            return
        while True:
            await asyncio.sleep(max(limit_s / IDLE_CHECKS_PER_LIMIT, SHORTEST_IDLE_CHECK_S))
            self._registry.close_idle(self._seams.clock.monotonic() - limit_s)

    def _on_directory_offline(self, directory: LogDirectory, partitions: set[TopicPartition]) -> None:
        assert self._logs is not None
        self._services.replicas.take_offline(partitions)
        if self._logs.are_all_directories_offline:
            self._fail(f"all log dirs are offline, the last one: {directory.path}: {directory.error}")

    def _on_session_end(self) -> None:
        log.warning("session with the coordination store ended, joining again")
        self._services.spawn(self._rejoin())

    async def _rejoin(self) -> None:
        """A machine that slept, or a process that was stopped, comes back as a new member."""
        while True:
            try:
                store = await self._open_store()
                self._services.membership = await self._join(store, self._services.cluster)
                task = asyncio.get_running_loop().create_task(store.run())
                task.add_done_callback(self._on_background_done)
                self._background.append(task)
                return
            except (StoreError, BrokerIdInUse, NotAlone) as error:
                log.warning("cannot join again yet reason=%s", error)
                await asyncio.sleep(REJOIN_PAUSE_S)

    # -- stopping

    async def stop(self) -> None:
        """Take nothing new, answer what is under way, leave everything on disk."""
        for listener in self.listeners:
            listener.close()
        await self._drain()
        self._registry.close_all("the broker stops")
        await self._services.close()
        await self._cancel_background()
        if self._logs is not None:
            await self._logs.close()
        await self._close_store()
        self._seams.workers.close()
        log.info("broker stopped broker_id=%d", self.broker_id)

    async def _drain(self) -> None:
        """Give requests under way a moment; a fetch that waits for data is not waited for."""
        deadline = self._seams.clock.monotonic() + DRAIN_S
        while self._registry.has_unsent_answers and self._seams.clock.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(DRAIN_POLL_S)

    async def _cancel_background(self) -> None:
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _close_store(self) -> None:
        if self._store is not None:
            try:
                await self._store.close()
            except StoreError as error:
                log.warning("session with the coordination store could not be ended reason=%s", error)

    async def _abandon(self) -> None:
        """Undo a start that failed: nothing of it stays open."""
        for listener in self.listeners:
            listener.close()
        if self._logs is not None:
            await self._logs.close()
        await self._close_store()
        self._seams.workers.close()


def _sentence(error: Exception) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError):
        return f"cannot use {error.filename}: a file stands where a directory should be"
    if isinstance(error, OSError) and error.filename:
        return f"cannot use {error.filename}: {error.strerror}"
    return str(error)
