"""A broker process: creates, wires, starts and stops all parts (KafkaServer)."""

import asyncio
import logging
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from tidelog.client.network.broker_links import BrokerLinks
from tidelog.cluster.image import Broker as RegisteredBroker
from tidelog.cluster.znodes import MalformedNode
from tidelog.config.broker import BrokerSettings
from tidelog.config.listeners import Endpoint, host_and_port
from tidelog.controller.channels import ControllerChannels
from tidelog.controller.context_loading import load_image
from tidelog.controller.controller import Controller
from tidelog.controller.registration import (
    BrokerIdInUse,
    ControllerFence,
    find_cluster_id,
    generate_broker_id,
    prepare_store,
    wait_for_free_id,
)
from tidelog.controller.takeover import TakeoverRules, take_over
from tidelog.controller.topics import new_topic_id
from tidelog.replication.fetcher_manager import FetcherManager
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.runtime.deadlines import Deadlines
from tidelog.runtime.http_server import HttpServer
from tidelog.runtime.network import Channel, FrameReceiver, Listener
from tidelog.runtime.purgatory import Purgatory
from tidelog.runtime.side_tasks import SideTasks
from tidelog.runtime.turns import Turns
from tidelog.server.cluster_backup import ClusterBackup
from tidelog.server.cluster_state import ClusterState
from tidelog.server.config_changes import ConfigChanges
from tidelog.server.connection import Connection, ConnectionRegistry
from tidelog.server.control_plane import ControlPlane
from tidelog.server.controlled_shutdown import ControlledShutdown
from tidelog.server.controller_link import ControllerLink
from tidelog.server.coordinators import Coordinators
from tidelog.server.dispatch import Dispatcher
from tidelog.server.handlers.create_topics import create_topics_of_brokers
from tidelog.server.internal_topics import InternalTopics, internal_topic_configs
from tidelog.server.membership import Membership, MembershipContext
from tidelog.server.metrics.page import PATH as METRICS_PATH
from tidelog.server.metrics.page import MetricsPage
from tidelog.server.seams import Seams, system_seams
from tidelog.server.services import Services
from tidelog.server.store_marks import increment_change_counter
from tidelog.server.takeover import StoreEntry
from tidelog.storage.log_directory import NO_BROKER_EPOCH, Identity, LogDirectory, StorageSetupError, find_identity
from tidelog.storage.log_manager import LogManager
from tidelog.store.interface import Store, StoreError
from tidelog.types import BrokerId, TopicPartition

logger = logging.getLogger(__name__)

IDLE_CHECKS_PER_LIMIT = 10
SHORTEST_IDLE_CHECK_S = 0.1
UNREAD_CHECK_S = 1.0
DRAIN_S = 1.0
DRAIN_POLL_S = 0.01
CONTROLLER_WAIT_S = 10.0
"""Maximum wait at startup for the first requests of a controller. After it the broker serves and logs a warning."""


class CannotStart(Exception):
    """The environment prevents the start. The message is one sentence for the operator."""


class BrokerStatistics(NamedTuple):
    connections: int
    waiting_operations: int
    partitions: int
    offline_partitions: int


class Broker:
    """A running broker. `start` returns one that serves requests; `stop` leaves its log directories clean."""

    def __init__(self, settings: BrokerSettings, seams: Seams) -> None:
        self.settings = settings
        self._seams = seams
        self.listeners: list[Listener] = []
        self.metrics_server: HttpServer | None = None
        self._turns = Turns(asyncio.get_running_loop().time) if seams.turns is None else seams.turns
        self._registry = ConnectionRegistry(settings)
        self._background = SideTasks(self._on_background_failure)
        self._failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.broker_id: BrokerId = -1
        self.cluster_id = ""
        self._logs: LogManager | None = None
        self._store: Store | None = None
        self._keeping_session: asyncio.Task[object] | None = None
        self._membership: Membership
        self._entry: StoreEntry
        self._backup: ClusterBackup
        self._fetchers: FetcherManager
        self._services: Services
        self._dispatcher: Dispatcher
        self.metrics: MetricsPage

    # ---- starting

    @classmethod
    async def start(cls, settings: BrokerSettings, seams: Seams | None = None) -> "Broker":
        broker = cls(settings, seams or system_seams(settings))
        try:
            await broker._start()
        except (OSError, StorageSetupError, StoreError, BrokerIdInUse, MalformedNode) as error:
            await broker._abandon()
            raise CannotStart(_sentence(error)) from error
        except BaseException:
            await broker._abandon()
            raise
        return broker

    async def _start(self) -> None:
        """Steps that can be refused come first: a refused start leaves no trace."""
        for endpoint in self.settings.endpoints:
            self.listeners.append(await self._bind(endpoint))
        self.metrics_server = await self._bind_metrics()
        identity = self._find_identity(Identity(None, self.settings.configured_broker_id))
        store = await self._open_store()
        await prepare_store(store)
        self.cluster_id = await find_cluster_id(store, self._seams.randomness, identity.cluster_id)
        identity = self._find_identity(Identity(self.cluster_id, identity.broker_id))
        self.broker_id = await self._choose_broker_id(store, identity.broker_id)
        await wait_for_free_id(store, self.broker_id, self._seams.clock, self.settings.session_timeout_ms)
        cluster = ClusterState(self.broker_id, self.settings, await load_image(store))
        logs = self._logs = await self._open_logs(cluster)
        self._wire(store, cluster, logs)
        if self.metrics_server is not None:
            await self.metrics_server.start({METRICS_PATH: self.metrics})
        await self._entry.enter(store)
        await self._membership.join()
        # No await before `begin`: if the session expired in between, its successor would run for controller first.
        self._start_background(logs)
        self._membership.begin()
        await self._wait_for_takeover(cluster)
        for listener in self.listeners:
            listener.start()
        await self._wait_for_controller(cluster)
        self._log_start()
        self._log_stray_logs(cluster, logs)

    def _wire(self, store: Store, cluster: ClusterState, logs: LogManager) -> None:
        seams = self._seams
        purgatory = self._make_purgatory()
        self._fetchers = FetcherManager(
            self.broker_id, lambda: self._membership.broker.epoch, seams.network, seams.clock, lambda: cluster.settings
        )
        replicas = self._make_replicas(cluster, logs, purgatory)
        cluster.start(replicas)
        self._backup = ClusterBackup(self.broker_id, logs, cluster, seams.disk, seams.clock, seams.workers)
        self._entry = StoreEntry(self.broker_id, self.cluster_id, logs, self._backup, seams.clock, seams.randomness)
        self._backup.controller_epoch = self._entry.controller_epoch = lambda: replicas.controller_epoch
        self._backup.is_store_in_use = lambda: self._entry.is_in_use
        self._backup.increment_change_counter = lambda: increment_change_counter(self._membership.store, self.broker_id)
        self._membership = self._make_membership(store, cluster, replicas)
        config_changes = ConfigChanges(
            cluster,
            lambda: self._membership.store,
            seams.clock,
            lambda topics: self._membership.on_settings_changed(topics),
        )
        self._entry.on_rebuilt = config_changes.on_store_rebuilt
        internal_topics = InternalTopics(cluster, lambda request: create_topics_of_brokers(request, self._services))
        self._services = Services(
            seams=seams,
            turns=self._turns,
            logs=logs,
            replicas=replicas,
            cluster=cluster,
            membership=self._membership,
            purgatory=purgatory,
            control_plane=ControlPlane(cluster, replicas, config_changes, self._membership),
            controller_link=ControllerLink(seams.network, seams.clock, cluster, self.broker_id),
            config_changes=config_changes,
            internal_topics=internal_topics,
            coordinators=self._make_coordinators(cluster, replicas, purgatory, internal_topics),
        )
        self._dispatcher = Dispatcher(self._services)
        self.metrics = MetricsPage(self._services, self._fetchers, self._registry)
        self._registry.reconfigure(cluster.settings)
        cluster.on_settings += [self._registry.reconfigure, logs.reconfigure, lambda _: self._fetchers.resize()]
        logs.on_directory_offline.append(self._on_directory_offline)

    def _make_replicas(self, cluster: ClusterState, logs: LogManager, purgatory: Purgatory) -> ReplicaManager:
        return ReplicaManager(
            broker_id=self.broker_id,
            logs=logs,
            purgatory=purgatory,
            fetchers=self._fetchers,
            store=lambda: self._membership.store,
            clock=self._seams.clock,
            settings=cluster.settings,
            topic_settings=cluster.topic_settings,
        )

    def _make_coordinators(
        self, cluster: ClusterState, replicas: ReplicaManager, purgatory: Purgatory, internal_topics: InternalTopics
    ) -> Coordinators:
        links = BrokerLinks(
            self._seams.network,
            f"broker-{self.broker_id}",
            lambda: cluster.image,
            self.settings.inter_broker_listener_name,
        )
        return Coordinators(
            seams=self._seams,
            cluster=cluster,
            replicas=replicas,
            purgatory=purgatory,
            membership=self._membership,
            internal_topics=internal_topics,
            links=links,
        )

    def _make_membership(self, store: Store, cluster: ClusterState, replicas: ReplicaManager) -> Membership:
        seams = self._seams
        logs = self._logs
        assert logs is not None
        registration = RegisteredBroker(
            self.broker_id,
            self._advertised(),
            self.settings.broker_rack,
            previous_epoch=logs.previous_broker_epoch,
        )
        world = MembershipContext(
            clock=seams.clock,
            randomness=seams.randomness,
            open_store=self._open_store,
            make_controller=lambda store: self._make_controller(store, cluster),
            cluster=cluster,
            replicas=replicas,
            directory_ids=lambda: logs.directory_ids,
            spawn=self._background.start,
            entry=self._entry,
            persist_last_producer_id=self._backup.persist_last_producer_id,
            yield_turn=self._turns.yield_turn,
        )
        return Membership(store, registration, world)

    def _make_controller(self, store: Store, cluster: ClusterState) -> Controller:
        seams = self._seams

        async def on_elected(fence: ControllerFence) -> None:
            await take_over(store, fence, self.broker_id, self._takeover_rules(cluster))

        return Controller(
            broker_id=self.broker_id,
            store=store,
            clock=seams.clock,
            settings=lambda: cluster.settings,
            channels=lambda: ControllerChannels(
                seams.network, f"controller-{self.broker_id}", self.settings.inter_broker_listener_name
            ),
            on_elected=on_elected,
        )

    def _takeover_rules(self, cluster: ClusterState) -> TakeoverRules:
        return TakeoverRules(
            clock=self._seams.clock,
            wait_ms=self.settings.takeover_wait_ms,
            is_forced=self.settings.unclean_takeover_enable,
            new_topic_id=lambda: new_topic_id(self._seams.randomness, cluster.image),
            internal_configs=lambda name, factor: internal_topic_configs(cluster.settings, name, factor),
        )

    async def _bind(self, endpoint: Endpoint) -> Listener:
        def accept(channel: Channel) -> FrameReceiver | None:
            return self.accept(channel, endpoint.listener_name)

        try:
            return await self._seams.network.listen(endpoint.host, endpoint.port, accept)
        except OSError as error:
            raise CannotStart(
                f"cannot listen on {endpoint.host}:{endpoint.port}: {error.strerror or error};"
                " choose another address with --set listeners=PLAINTEXT://HOST:PORT"
            ) from error

    async def _bind_metrics(self) -> HttpServer | None:
        address = self.settings.metrics_address
        if address is None:
            return None
        try:
            return await HttpServer.listen(*address)
        except OSError as error:
            raise CannotStart(
                f"cannot serve metrics on {host_and_port(*address)}: {error.strerror or error};"
                " choose another address with --set metrics.listener=HOST:PORT"
            ) from error

    def _find_identity(self, configured: Identity) -> Identity:
        return find_identity(self._seams.disk, self.settings.log_directories, configured)

    async def _open_store(self) -> Store:
        """Open a new session and keep it alive. The previous session is closed."""
        if self._keeping_session is not None:
            self._keeping_session.cancel()
        if self._store is not None:
            self._background.start(self._close_store(self._store))
        self._store = await self._seams.open_store()
        self._keeping_session = self._background.start(self._store.run())
        return self._store

    async def _choose_broker_id(self, store: Store, configured: BrokerId | None) -> BrokerId:
        if configured is not None:
            return configured
        return await generate_broker_id(store, self.settings.reserved_broker_max_id)

    async def _open_logs(self, cluster: ClusterState) -> LogManager:
        seams = self._seams
        return await LogManager.open(
            cluster.settings,
            cluster.settings_of_found_log,
            seams.disk,
            seams.clock,
            seams.workers,
            Identity(self.cluster_id, self.broker_id),
            randomness=seams.randomness,
        )

    def _make_purgatory(self) -> Purgatory:
        loop = asyncio.get_running_loop()
        return Purgatory(loop, Deadlines(loop, turns=self._turns), self._turns)

    def _advertised(self) -> tuple[Endpoint, ...]:
        """An empty host becomes the machine's name, port 0 the port that was bound."""
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
        endpoint = self._membership.broker.endpoints[0]
        return host_and_port(endpoint.host, endpoint.port)

    async def _wait_for_takeover(self, cluster: ClusterState) -> None:
        """Wait until a takeover has filled an empty store, then load the image again."""
        if not self._entry.is_in_use:
            await self._entry.wait_until_in_use(lambda: self._membership.store, self.settings.takeover_wait_ms)
            cluster.apply(await load_image(self._membership.store))

    async def _wait_for_controller(self, cluster: ClusterState) -> None:
        """Wait for UpdateMetadata and for LeaderAndIsr of all partitions hosted here."""
        replicas = self._services.replicas
        roles_changed = asyncio.Event()

        def on_roles(*_: object) -> None:
            roles_changed.set()

        replicas.on_leadership_change.append(on_roles)
        deadline = self._seams.clock.monotonic() + CONTROLLER_WAIT_S
        is_ready = await cluster.wait_until(
            lambda image: self.broker_id in image.brokers and replicas.controller_epoch > 0, CONTROLLER_WAIT_S
        )
        while is_ready and not self._has_its_partitions(cluster):
            roles_changed.clear()
            is_ready = await _is_set(roles_changed, deadline - self._seams.clock.monotonic())
        replicas.on_leadership_change.remove(on_roles)
        if not is_ready:
            logger.warning("no requests of a controller yet, serving anyway broker_id=%d", self.broker_id)

    def _has_its_partitions(self, cluster: ClusterState) -> bool:
        replicas = self._services.replicas
        return all(
            replicas.is_hosted(TopicPartition(topic.name, partition.index))
            for topic in cluster.image.topics.values()
            for partition in topic.partitions
            if self.broker_id in partition.replicas and partition.leader in cluster.image.brokers
        )

    def _log_start(self) -> None:
        replicas, metrics = self._services.replicas, self.metrics_server
        logger.info(
            "broker started broker_id=%d address=%s metrics=%s partitions=%d leading=%d offline=%d",
            self.broker_id,
            self.advertised_address,
            f"{host_and_port(metrics.host, metrics.port)}{METRICS_PATH}" if metrics else "-",
            len(replicas),
            replicas.leader_count,
            len(replicas.offline_partitions),
        )

    def _log_stray_logs(self, cluster: ClusterState, logs: LogManager) -> None:
        for topic_partition in logs.logs:
            if cluster.image.partition(topic_partition) is None:
                logger.warning("kept log of unknown topic partition=%s", topic_partition)
        for path in logs.stray_paths:
            logger.warning("kept stray log; move it away, or delete it if you do not need it path=%s", path)

    # ---- running

    @property
    def replicas(self) -> ReplicaManager:
        return self._services.replicas

    @property
    def fetchers(self) -> FetcherManager:
        return self._fetchers

    def statistics(self) -> BrokerStatistics:
        return BrokerStatistics(
            connections=len(self._registry),
            waiting_operations=self._services.purgatory.size,
            partitions=len(self._services.replicas),
            offline_partitions=len(self._services.replicas.offline_partitions),
        )

    def _start_background(self, logs: LogManager) -> None:
        services = self._services
        for work in (
            logs.run(),
            services.replicas.run(),
            services.config_changes.run(),
            self._backup.run(),
            self._close_idle_connections(),
            self._close_connections_that_read_nothing(),
        ):
            self._background.start(work)

    def _on_background_failure(self, error: BaseException) -> None:
        """The broker cannot run without its background work."""
        logger.error("background work failed", exc_info=error)
        self._fail("background work failed; the log above says why")

    def _fail(self, reason: str) -> None:
        if not self._failure.done():
            self._failure.set_result(reason)

    async def run_until(self, stop: asyncio.Event) -> str | None:
        """Serve until `stop` is set. Returns a reason if the broker failed before that."""
        stopping = asyncio.ensure_future(stop.wait())
        waited: list[asyncio.Future[Any]] = [stopping, self._failure]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        return self._failure.result() if self._failure.done() else None

    def accept(self, channel: Channel, listener_name: str) -> FrameReceiver | None:
        """Accept a new connection, or return None to refuse it."""
        refusal = self._registry.refusal(channel.peer_host)
        if refusal is not None:
            if self._registry.peer_errors.should_log(channel.peer_host):
                logger.warning("connection refused peer=%s reason=%s", channel.peer_host, refusal)
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

    async def _close_connections_that_read_nothing(self) -> None:
        while True:
            await asyncio.sleep(UNREAD_CHECK_S)
            self._registry.close_unread(self._seams.clock.monotonic())

    def _on_directory_offline(self, directory: LogDirectory, partitions: AbstractSet[TopicPartition]) -> None:
        assert self._logs is not None
        self._services.replicas.mark_offline(partitions)
        if self._logs.are_all_directories_offline:
            self._fail(f"all log directories are offline; the last one was {directory.path}: {directory.error}")
        else:
            self._services.spawn(self._membership.report_log_directory_failure())

    # ---- stopping

    async def stop(self) -> None:
        """Controlled shutdown, then close listeners, answer pending requests and flush everything to disk."""
        await self._move_leaders_away()
        for listener in self.listeners:
            listener.close()
        await self._drain()
        self._registry.close_all("broker is shutting down")
        await self._fetchers.close()
        await self._services.close()
        await self._membership.leave()
        await self._backup.flush()
        await self._background.cancel()
        if self._logs is not None:
            await self._logs.close(self._membership.broker.epoch)
        await self._close_store(self._store)
        await self._close_metrics()
        self._seams.close()
        logger.info("broker stopped broker_id=%d", self.broker_id)

    async def _move_leaders_away(self) -> None:
        services, membership = self._services, self._membership
        if not membership.is_fenced:
            await ControlledShutdown(
                services.controller_link, services.cluster, self.broker_id, membership.broker_epoch
            ).run()

    async def _drain(self) -> None:
        """Wait briefly for answers that are being sent. Fetches that wait for data are not waited for."""
        deadline = self._seams.clock.monotonic() + DRAIN_S
        while self._registry.has_unsent_answers and self._seams.clock.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(DRAIN_POLL_S)

    async def _close_store(self, store: Store | None) -> None:
        if store is not None:
            try:
                await store.close()
            except (StoreError, OSError) as error:
                logger.warning("cannot close session with coordination store reason=%s", error)

    async def _close_metrics(self) -> None:
        if self.metrics_server is not None:
            await self.metrics_server.close()

    async def _abandon(self) -> None:
        """Close everything that a failed start has opened."""
        for listener in self.listeners:
            listener.close()
        await self._close_metrics()
        await self._background.cancel()
        if self._logs is not None:
            membership: Membership | None = getattr(self, "_membership", None)  # unset if the start failed early
            await self._logs.close(NO_BROKER_EPOCH if membership is None else membership.broker.epoch)
        await self._close_store(self._store)
        self._seams.close()


async def _is_set(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(max(timeout_s, 0)):
            return await event.wait()
    except TimeoutError:
        return False


def _sentence(error: Exception) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError):
        return f"cannot use {error.filename}: it is a file, and must be a directory"
    if isinstance(error, OSError) and error.filename:
        return f"cannot use {error.filename}: {error.strerror}"
    return str(error)
