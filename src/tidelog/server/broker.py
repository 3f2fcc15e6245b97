"""A broker process: its life from `start` to `stop` (KafkaServer).

`server/broker_parts.py` wires the parts, `server/acceptor.py` owns listeners and connections.
"""

import asyncio
import logging
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from tidelog.cluster import znodes
from tidelog.cluster.znodes import MalformedNode
from tidelog.config.broker import BrokerSettings
from tidelog.config.listeners import host_and_port
from tidelog.controller.context_loading import load_image
from tidelog.controller.registration import (
    BrokerIdInUse,
    find_cluster_id,
    generate_broker_id,
    prepare_store,
    wait_for_free_id,
)
from tidelog.replication.fetcher_manager import FetcherManager
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.runtime.http_server import HttpServer
from tidelog.runtime.network import Listener
from tidelog.runtime.side_tasks import SideTasks
from tidelog.runtime.tls_context import BadKeyMaterial, server_context
from tidelog.runtime.turns import Turns
from tidelog.server.acceptor import Acceptor
from tidelog.server.broker_parts import BrokerParts, Foundation
from tidelog.server.cluster_backup import ClusterBackup
from tidelog.server.cluster_state import ClusterState
from tidelog.server.controlled_shutdown import ControlledShutdown
from tidelog.server.inter_broker_login import with_inter_broker_login
from tidelog.server.membership import Membership
from tidelog.server.metrics.health import LIVE_PATH, READY_PATH, LivePage, ReadyPage
from tidelog.server.metrics.page import PATH as METRICS_PATH
from tidelog.server.metrics.page import MetricsPage
from tidelog.server.seams import Seams, system_seams
from tidelog.server.services import Services
from tidelog.server.startup_waits import wait_for_controller, wait_for_takeover
from tidelog.server.store_session import StoreSession
from tidelog.storage.log_directory import NO_BROKER_EPOCH, Identity, LogDirectory, StorageSetupError, find_identity
from tidelog.storage.log_manager import LogManager
from tidelog.store.interface import Store, StoreError
from tidelog.types import BrokerId, TopicPartition

logger = logging.getLogger(__name__)


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
        self._seams = seams = with_inter_broker_login(seams, settings)
        self.acceptor = Acceptor(settings, seams)
        self.metrics_server: HttpServer | None = None
        self._turns = Turns(asyncio.get_running_loop().time) if seams.turns is None else seams.turns
        self._background = SideTasks(self._on_background_failure)
        self._failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._session = StoreSession(seams.open_store, self._background)
        self._unready = "the broker is starting"
        self.broker_id: BrokerId = -1
        self.cluster_id = ""
        self._logs: LogManager | None = None
        self._parts: BrokerParts | None = None

    # ---- starting

    @classmethod
    async def start(cls, settings: BrokerSettings, seams: Seams | None = None) -> "Broker":
        try:
            broker = cls(settings, seams or system_seams(settings))
        except OSError as error:
            raise CannotStart(_sentence(error)) from error
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
        await self.acceptor.bind()
        self.metrics_server = await self._bind_metrics()
        identity = self._find_identity(Identity(None, self.settings.configured_broker_id))
        store = await self._session.open()
        await self._find_ids(store, identity)
        cluster = ClusterState(self.broker_id, self.settings, await load_image(store))
        logs = self._logs = await self._open_logs(cluster)
        parts = self._parts = self._wire(store, cluster, logs)
        if self.metrics_server is not None:
            ready = ReadyPage(self.reason_against_readiness)
            await self.metrics_server.start({METRICS_PATH: parts.metrics, LIVE_PATH: LivePage(), READY_PATH: ready})
        await parts.entry.enter(store)
        await parts.membership.join()
        # No await before `begin`: if the session expired in between, its successor would run for controller first.
        self._start_background(logs)
        parts.membership.begin()
        await wait_for_takeover(parts.entry, parts.membership, cluster)
        await parts.load_users()
        if parts.services.acls is not None:
            await parts.services.acls.load()
            self._background.start(parts.services.acls.run())
        self.acceptor.start()
        await wait_for_controller(self.broker_id, parts.replicas, cluster, self._seams.clock)
        self._unready = ""
        self._log_start()
        _log_stray_logs(cluster, logs)

    async def _bind_metrics(self) -> HttpServer | None:
        address = self.settings.metrics_address
        if address is None:
            return None
        try:
            tls = server_context(self.settings) if self.settings.metrics_ssl_enable else None
            return await HttpServer.listen(*address, tls=tls, basic_auth=self.settings.metrics_basic_auth)
        except BadKeyMaterial as error:
            raise CannotStart(f"metrics.ssl.enable: {error}") from error
        except OSError as error:
            raise CannotStart(
                f"cannot serve metrics on {host_and_port(*address)}: {error.strerror or error};"
                " choose another address with --set metrics.listener=HOST:PORT"
            ) from error

    async def _find_ids(self, store: Store, identity: Identity) -> None:
        """The ids of cluster and broker: configured, found in the log directories or the store, or new."""
        await prepare_store(store)
        if identity.cluster_id is None and identity.unread and await store.exists(znodes.CLUSTER_ID) is None:
            # A new cluster id would make all other brokers foreign, if a disk comes back or the store was lost.
            raise CannotStart(
                f"the coordination store is empty, and log dirs cannot be read: {', '.join(identity.unread)};"
                " they may belong to a cluster. Repair them, or remove them from log.dirs for a new cluster"
            )
        self.cluster_id = await find_cluster_id(store, self._seams.randomness, identity.cluster_id, identity.broker_id)
        identity = self._find_identity(Identity(self.cluster_id, identity.broker_id))
        if identity.broker_id is not None:
            self.broker_id = identity.broker_id
        else:
            self.broker_id = await generate_broker_id(store, self.settings.reserved_broker_max_id)
        await wait_for_free_id(store, self.broker_id, self._seams.clock, self.settings.session_timeout_ms)

    def _find_identity(self, configured: Identity) -> Identity:
        return find_identity(self._seams.disk, self.settings.log_directories, configured)

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

    def _wire(self, store: Store, cluster: ClusterState, logs: LogManager) -> BrokerParts:
        foundation = Foundation(
            settings=self.settings,
            seams=self._seams,
            turns=self._turns,
            session=self._session,
            acceptor=self.acceptor,
            background=self._background,
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            cluster=cluster,
            logs=logs,
        )
        parts = BrokerParts(foundation, store)
        logs.on_directory_offline.append(self._on_directory_offline)
        return parts

    def _start_background(self, logs: LogManager) -> None:
        for work in (
            logs.run(),
            self.replicas.run(),
            self._services.alter_log_dirs.run(),
            self._services.config_changes.run(),
            self._backup.run(),
            self.acceptor.close_idle_connections(),
            self.acceptor.close_unread_connections(),
            self.acceptor.close_late_logins(),
            self.acceptor.refresh_token_keys(),
        ):
            self._background.start(work)

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

    # ---- running

    @property
    def _wired(self) -> BrokerParts:
        assert self._parts is not None, "the broker has not been started"
        return self._parts

    @property
    def _services(self) -> Services:
        return self._wired.services

    @property
    def _membership(self) -> Membership:
        return self._wired.membership

    @property
    def _backup(self) -> ClusterBackup:
        return self._wired.backup

    @property
    def metrics(self) -> MetricsPage:
        return self._wired.metrics

    @property
    def cluster(self) -> ClusterState:
        return self._services.cluster

    @property
    def replicas(self) -> ReplicaManager:
        return self._wired.replicas

    @property
    def fetchers(self) -> FetcherManager:
        return self._wired.fetchers

    @property
    def listeners(self) -> list[Listener]:
        return self.acceptor.listeners

    @property
    def advertised_address(self) -> str:
        endpoint = self._membership.broker.endpoints[0]
        return host_and_port(endpoint.host, endpoint.port)

    def statistics(self) -> BrokerStatistics:
        return BrokerStatistics(
            connections=len(self.acceptor.registry),
            waiting_operations=self._services.purgatory.size,
            partitions=len(self._services.replicas),
            offline_partitions=len(self._services.replicas.offline_partitions),
        )

    def reason_against_readiness(self) -> str:
        """Why clients should not be sent here; empty if they should."""
        return self._unready or self._membership.suspension

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
        self._unready = "the broker is stopping"
        await self._move_leaders_away()
        self.acceptor.close_listeners()
        await self.acceptor.close_connections()
        await self.fetchers.close()
        await self._services.close()
        await self._membership.leave()
        await self._backup.flush()
        await self._background.cancel()
        if self._logs is not None:
            await self._logs.close(self._membership.broker.epoch)
        await self._session.close()
        await self._close_metrics()
        self._seams.close()
        logger.info("broker stopped broker_id=%d", self.broker_id)

    async def _move_leaders_away(self) -> None:
        services, membership = self._services, self._membership
        if not membership.is_fenced:
            await ControlledShutdown(
                services.controller_link, services.cluster, self.broker_id, membership.broker_epoch
            ).run()

    async def _close_metrics(self) -> None:
        if self.metrics_server is not None:
            await self.metrics_server.close()

    async def _abandon(self) -> None:
        """Close everything that a failed start has opened."""
        self.acceptor.close_listeners()
        await self._close_metrics()
        await self._background.cancel()
        if self._logs is not None:
            await self._logs.close(NO_BROKER_EPOCH if self._parts is None else self._membership.broker.epoch)
        await self._session.close()
        self._seams.close()


def _log_stray_logs(cluster: ClusterState, logs: LogManager) -> None:
    for topic_partition in logs.logs:
        if cluster.image.partition(topic_partition) is None:
            logger.warning("kept log of unknown topic partition=%s", topic_partition)
    for path in logs.stray_paths:
        logger.warning("kept stray log; move it away, or delete it if you do not need it path=%s", path)


def _sentence(error: Exception) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError):
        return f"cannot use {error.filename}: it is a file, and must be a directory"
    if isinstance(error, OSError) and error.filename:
        return f"cannot use {error.filename}: {error.strerror}"
    return str(error)
