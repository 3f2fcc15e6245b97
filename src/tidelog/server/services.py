"""Services for request handlers: the parts of one broker, wired once in `server/broker_parts.py`."""

import contextlib
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any

from tidelog.authorization.authorizer import Authorizer
from tidelog.config.broker import BrokerSettings
from tidelog.controller.configs import ConfigChange, ConfigOutcome
from tidelog.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from tidelog.groups.coordinator import GroupCoordinator
from tidelog.quotas.client_quotas import ClientQuotas
from tidelog.replication.alter_log_dirs import AlterLogDirsManager
from tidelog.replication.partition import Partition
from tidelog.replication.quota import ReplicationQuotas
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.runtime.clock import Clock
from tidelog.runtime.purgatory import Purgatory
from tidelog.runtime.side_tasks import SideTasks
from tidelog.runtime.turns import Turns
from tidelog.runtime.workers import Workers
from tidelog.server.acls import Acls
from tidelog.server.cluster_state import ClusterState
from tidelog.server.config_changes import ConfigChanges
from tidelog.server.control_plane import ControlPlane
from tidelog.server.controller_link import ControllerLink
from tidelog.server.coordinators import Coordinators
from tidelog.server.denial_log import DenialLog
from tidelog.server.departed_brokers import DepartedBrokers
from tidelog.server.fetch_sessions import FetchSessionCache
from tidelog.server.internal_topics import InternalTopics
from tidelog.server.log_levels import BROKER_LOGGER, alter_log_levels
from tidelog.server.membership import Membership
from tidelog.server.quota_configs import QuotaConfigs
from tidelog.server.request_times import RequestTimesTable
from tidelog.server.seams import Seams
from tidelog.server.sliced_checks import LongChecks
from tidelog.server.tracing import Tracing
from tidelog.server.user_configs import UserConfigs
from tidelog.server.user_credentials import UserCredentials
from tidelog.storage.log_manager import LogManager
from tidelog.store.interface import StoreError
from tidelog.transactions.coordinator import TransactionCoordinator
from tidelog.transactions.markers import MarkerSender
from tidelog.transactions.verifier import TransactionVerifier
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class Services:
    seams: InitVar[Seams]
    turns: Turns
    logs: LogManager
    replicas: ReplicaManager
    quotas: ReplicationQuotas
    cluster: ClusterState
    membership: Membership
    purgatory: Purgatory
    control_plane: ControlPlane
    controller_link: ControllerLink
    config_changes: ConfigChanges
    user_configs: UserConfigs
    internal_topics: InternalTopics
    coordinators: Coordinators
    credentials: UserCredentials
    authorizer: Authorizer | None = None
    """None: everybody may do everything."""
    acls: Acls | None = None
    """The rules of the authorizer."""
    audit: DenialLog = field(default_factory=DenialLog)
    request_times: RequestTimesTable = field(default_factory=RequestTimesTable)
    client_quotas: ClientQuotas
    quota_configs: QuotaConfigs
    tracing: Tracing | None = field(init=False)
    """None: requests are not traced."""
    clock: Clock = field(init=False)
    workers: Workers = field(init=False)
    large_messages: Workers = field(init=False)
    """Decodes and encodes messages that would block the event loop: one thread for all clients."""
    long_checks: LongChecks = field(init=False)
    fetch_sessions: FetchSessionCache = field(init=False)
    departed_brokers: DepartedBrokers = field(init=False)
    alter_log_dirs: AlterLogDirsManager = field(init=False)
    _tasks: SideTasks = field(init=False)

    def __post_init__(self, seams: Seams) -> None:
        cluster = self.cluster
        self.tracing = seams.tracing
        self.clock = seams.clock
        self.workers = seams.workers
        self.large_messages = seams.large_messages or seams.workers
        self.long_checks = LongChecks(seams.workers)
        self.fetch_sessions = FetchSessionCache(
            self.purgatory,
            seams.randomness,
            seams.clock,
            lambda: cluster.settings.max_incremental_fetch_session_cache_slots,
        )
        self.departed_brokers = DepartedBrokers(seams.clock, cluster.image)
        cluster.on_image.append(self.departed_brokers.on_image)
        self.alter_log_dirs = AlterLogDirsManager(
            self.logs, self.replicas.get, seams.clock, seams.workers, self.quotas.alter_log_dirs
        )
        self.replicas.on_leadership_change.append(self.alter_log_dirs.on_leadership_change)
        self._tasks = SideTasks(_on_failure)

    @property
    def settings(self) -> BrokerSettings:
        """The current settings: dynamic ones change while the broker runs."""
        return self.cluster.settings

    @property
    def groups(self) -> GroupCoordinator:
        return self.coordinators.groups

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.coordinators.transactions

    @property
    def markers(self) -> MarkerSender:
        return self.coordinators.markers

    @property
    def verifier(self) -> TransactionVerifier:
        return self.coordinators.verifier

    @property
    def is_fenced(self) -> bool:
        """Another broker may lead the partitions of this one: it must not act as leader."""
        return self.membership.is_fenced

    @property
    def is_controller(self) -> bool:
        return self.membership.controller.is_active and not self.membership.is_fenced

    def partition(self, topic: str, index: int) -> Partition:
        """The replica on this broker. Raises NotLeaderOrFollower if it exists elsewhere: clients refresh metadata."""
        try:
            return self.replicas.get(topic, index)
        except UnknownTopicOrPartition:
            if self.cluster.image.partition(TopicPartition(topic, index)) is None:
                raise
            raise NotLeaderOrFollower(f"{topic}-{index} has no replica on this broker") from None

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[ConfigOutcome]:
        """The new configs are in effect on this broker on return; other brokers read them from the store."""
        stored = [change for change in changes if change.resource_type != BROKER_LOGGER]
        outcomes = await self.membership.configs.alter(stored, validate_only=validate_only)
        if not validate_only and any(outcome.error is None for outcome in outcomes):
            with contextlib.suppress(StoreError):
                await self.config_changes.catch_up()
        if len(stored) == len(changes):
            return outcomes
        others = iter(outcomes)
        broker_id = self.membership.broker.id
        return [
            alter_log_levels(change, broker_id, validate_only=validate_only)
            if change.resource_type == BROKER_LOGGER
            else next(others)
            for change in changes
        ]

    # ---- work that outlives its request

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` until it ends or the broker stops."""
        self._tasks.start(work)

    async def close(self) -> None:
        self.controller_link.close()
        await self.coordinators.close()
        await self._tasks.cancel()


def _on_failure(error: BaseException) -> None:
    logger.error("background work of a request failed", exc_info=error)
