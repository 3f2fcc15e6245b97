"""Wiring of a broker: its parts are created here, once its id, its cluster image and its logs are known."""

import asyncio
from typing import NamedTuple

from tidelog.authorization.authorizer import Authorizer
from tidelog.client.network.broker_links import BrokerLinks
from tidelog.cluster.image import BrokerRegistration as RegisteredBroker
from tidelog.config.authorization import ACL_AUTHORIZER, parse_super_users
from tidelog.config.broker import BrokerSettings
from tidelog.controller.channels import ControllerChannels
from tidelog.controller.controller import Controller
from tidelog.controller.registration import ControllerFence
from tidelog.controller.takeover import TakeoverRules, take_over
from tidelog.controller.topics import new_topic_id
from tidelog.quotas.client_quotas import ClientQuotas, Windows
from tidelog.replication.fetcher_manager import FetcherManager
from tidelog.replication.quota import ReplicationQuotas
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.runtime.deadlines import Deadlines
from tidelog.runtime.purgatory import Purgatory
from tidelog.runtime.side_tasks import SideTasks
from tidelog.runtime.turns import Turns
from tidelog.server.acceptor import Acceptor
from tidelog.server.acls import Acls
from tidelog.server.cluster_backup import ClusterBackup
from tidelog.server.cluster_state import ClusterState
from tidelog.server.config_changes import ConfigChanges
from tidelog.server.control_plane import ControlPlane
from tidelog.server.controller_link import ControllerLink
from tidelog.server.coordinators import Coordinators
from tidelog.server.dispatch import Dispatcher
from tidelog.server.handlers.create_topics import create_topics_of_brokers
from tidelog.server.internal_topics import InternalTopics, internal_topic_configs
from tidelog.server.membership import Membership, MembershipContext
from tidelog.server.metrics.page import MetricsPage
from tidelog.server.quota_configs import QuotaConfigs
from tidelog.server.scram_secret import ensure_scram_secret
from tidelog.server.seams import Seams
from tidelog.server.security_nodes import SecurityNodes
from tidelog.server.services import Services
from tidelog.server.store_marks import increment_change_counter
from tidelog.server.store_session import StoreSession
from tidelog.server.takeover import StoreEntry
from tidelog.server.unused_settings_log import UnusedSettingsLog
from tidelog.server.user_configs import UserConfigs
from tidelog.storage.log_manager import LogManager
from tidelog.store.interface import Store
from tidelog.types import BrokerId


class Foundation(NamedTuple):
    """What a start has found or opened before the parts are created."""

    settings: BrokerSettings
    seams: Seams
    turns: Turns
    session: StoreSession
    acceptor: Acceptor
    background: SideTasks
    broker_id: BrokerId
    cluster_id: str
    cluster: ClusterState
    logs: LogManager


class BrokerParts:
    """All parts of one broker, wired. Nothing runs yet.

    Parts that need each other get functions that look the other one up when it is called.
    """

    def __init__(self, foundation: Foundation, store: Store) -> None:
        self._foundation = foundation
        seams, cluster, logs = foundation.seams, foundation.cluster, foundation.logs
        self.broker_id = foundation.broker_id
        self._purgatory = self._make_purgatory()
        self._quotas = ReplicationQuotas(cluster.settings)
        self.fetchers = FetcherManager(
            self.broker_id,
            lambda: self.membership.broker.epoch,
            seams.network,
            seams.clock,
            lambda: cluster.settings,
            self._quotas.follower,
        )
        self.replicas = self._make_replicas()
        cluster.start(self.replicas)
        logs.cleaner.are_replicas_in_sync = cluster.are_replicas_in_sync
        self.backup = ClusterBackup(self.broker_id, logs, cluster, seams.disk, seams.clock, seams.workers)
        self.entry = self._make_entry()
        self.membership = self._make_membership(store)
        self._config_changes = ConfigChanges(
            cluster,
            lambda: self.membership.store,
            seams.clock,
            lambda topics: self.membership.on_settings_changed(topics),
        )
        self.entry.on_rebuilt = self._on_store_rebuilt
        settings = cluster.settings
        self._client_quotas = ClientQuotas(
            Windows(settings.quota_window_num, settings.quota_window_size_seconds),
            Windows(settings.controller_quota_window_num, settings.controller_quota_window_size_seconds),
        )
        foundation.acceptor.registry.rates.use(self._client_quotas.table)
        self._user_configs = UserConfigs()
        self.services = self._make_services()
        self._security = SecurityNodes(self.backup, self._client_quotas.table, self.services.authorizer)
        self._user_configs.on_changed += [foundation.acceptor.credentials.apply, self._security.on_users]
        self._config_changes.on_entities += [
            self.services.quota_configs.load,
            self._security.on_entities,
            self._user_configs.load,
        ]
        if self.services.acls is not None:
            self.services.acls.on_changed = self._security.on_changed
        self.metrics = MetricsPage(self.services, self.fetchers, foundation.acceptor.registry)
        self._connect_acceptor(foundation.acceptor)

    async def load_users(self) -> None:
        """Before the first login: all users are known then."""
        if self._foundation.settings.sasl_endpoints:
            secret = await ensure_scram_secret(self.membership.store, self._foundation.seams.randomness)
            self._security.scram_secret = secret
            self._foundation.acceptor.use_scram_secret(secret)
            await self._config_changes.reload_for(self._user_configs.load)

    def _on_store_rebuilt(self) -> None:
        self._config_changes.on_store_rebuilt()
        if self.services.acls is not None:
            self.services.acls.on_store_rebuilt()

    def _connect_acceptor(self, acceptor: Acceptor) -> None:
        cluster, logs = self._foundation.cluster, self._foundation.logs
        acceptor.dispatcher = Dispatcher(self.services)
        acceptor.reconfigure(cluster.settings)
        cluster.on_settings += [
            acceptor.reconfigure,
            logs.reconfigure,
            lambda _: self.fetchers.resize(),
            self._quotas.reconfigure,
            UnusedSettingsLog(cluster.settings).on_settings,
        ]

    def _make_purgatory(self) -> Purgatory:
        loop, turns = asyncio.get_running_loop(), self._foundation.turns
        return Purgatory(loop, Deadlines(loop, turns=turns), turns)

    def _make_replicas(self) -> ReplicaManager:
        cluster = self._foundation.cluster
        return ReplicaManager(
            broker_id=self.broker_id,
            logs=self._foundation.logs,
            purgatory=self._purgatory,
            fetchers=self.fetchers,
            store=lambda: self.membership.store,
            clock=self._foundation.seams.clock,
            settings=cluster.settings,
            topic_settings=cluster.topic_settings,
        )

    def _make_entry(self) -> StoreEntry:
        seams, backup, replicas = self._foundation.seams, self.backup, self.replicas
        entry = StoreEntry(
            self.broker_id,
            self._foundation.cluster_id,
            self._foundation.logs,
            backup,
            seams.clock,
            seams.randomness,
        )
        backup.controller_epoch = entry.controller_epoch = lambda: replicas.controller_epoch
        backup.is_store_in_use = lambda: entry.is_in_use
        backup.increment_change_counter = lambda: increment_change_counter(self.membership.store, self.broker_id)
        return entry

    def _make_membership(self, store: Store) -> Membership:
        foundation = self._foundation
        seams, logs = foundation.seams, foundation.logs
        registration = RegisteredBroker(
            self.broker_id,
            foundation.acceptor.advertised_endpoints,
            foundation.settings.broker_rack,
            previous_epoch=logs.previous_broker_epoch,
        )
        context = MembershipContext(
            clock=seams.clock,
            randomness=seams.randomness,
            open_store=foundation.session.open,
            make_controller=self._make_controller,
            cluster=foundation.cluster,
            replicas=self.replicas,
            directory_ids=lambda: logs.directory_ids,
            spawn=foundation.background.start,
            entry=self.entry,
            persist_last_producer_id=self.backup.persist_last_producer_id,
            yield_turn=foundation.turns.yield_turn,
        )
        return Membership(store, registration, context)

    def _make_controller(self, store: Store) -> Controller:
        seams, cluster = self._foundation.seams, self._foundation.cluster

        async def on_elected(fence: ControllerFence) -> None:
            await take_over(store, fence, self.broker_id, self._takeover_rules())

        return Controller(
            broker_id=self.broker_id,
            store=store,
            clock=seams.clock,
            settings=lambda: cluster.settings,
            channels=lambda: ControllerChannels(
                seams.control_network or seams.network, f"controller-{self.broker_id}", self._control_listener
            ),
            on_elected=on_elected,
        )

    @property
    def _control_listener(self) -> str | None:
        settings = self._foundation.settings
        return settings.control_plane_listener or settings.listener_of_peers

    def _takeover_rules(self) -> TakeoverRules:
        foundation = self._foundation
        cluster = foundation.cluster
        return TakeoverRules(
            clock=foundation.seams.clock,
            wait_ms=foundation.settings.takeover_wait_ms,
            is_forced=foundation.settings.unclean_takeover_enable,
            new_topic_id=lambda: new_topic_id(foundation.seams.randomness, cluster.image),
            internal_configs=lambda name, factor: internal_topic_configs(cluster.settings, name, factor),
        )

    def _make_acls(self) -> tuple[Authorizer | None, Acls | None]:
        settings = self._foundation.settings
        if not settings.authorizer_class_name:
            return None, None
        authorizer = Authorizer(
            parse_super_users(settings.super_users),
            allow_everyone_if_no_acl_found=settings.allow_everyone_if_no_acl_found,
            asks_like_zookeeper_mode=settings.authorizer_class_name == ACL_AUTHORIZER,
        )
        return authorizer, Acls(authorizer, lambda: self.membership.store)

    def _make_services(self) -> Services:
        foundation = self._foundation
        authorizer, acls = self._make_acls()
        seams, cluster = foundation.seams, foundation.cluster
        internal_topics = InternalTopics(cluster, lambda request: create_topics_of_brokers(request, self.services))
        return Services(
            seams=seams,
            turns=foundation.turns,
            logs=foundation.logs,
            replicas=self.replicas,
            quotas=self._quotas,
            cluster=cluster,
            membership=self.membership,
            purgatory=self._purgatory,
            control_plane=ControlPlane(cluster, self.replicas, self._config_changes, self.membership),
            controller_link=ControllerLink(seams.network, seams.clock, cluster, self.broker_id),
            config_changes=self._config_changes,
            user_configs=self._user_configs,
            internal_topics=internal_topics,
            coordinators=self._make_coordinators(internal_topics),
            credentials=foundation.acceptor.credentials,
            authorizer=authorizer,
            acls=acls,
            client_quotas=self._client_quotas,
            quota_configs=QuotaConfigs(
                self._client_quotas.table,
                lambda: self.membership.store,
                lambda: foundation.acceptor.dispatcher.on_quotas_changed(),
            ),
        )

    def _make_coordinators(self, internal_topics: InternalTopics) -> Coordinators:
        seams, cluster = self._foundation.seams, self._foundation.cluster
        links = BrokerLinks(
            seams.network,
            f"broker-{self.broker_id}",
            lambda: cluster.image,
            self._foundation.settings.listener_of_peers,
        )
        return Coordinators(
            seams=seams,
            cluster=cluster,
            replicas=self.replicas,
            purgatory=self._purgatory,
            membership=self.membership,
            internal_topics=internal_topics,
            links=links,
        )
