"""Controller election and event loop (R31 to R33): one event at a time while this broker is the controller."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from tidelog.cluster import znodes
from tidelog.cluster.image import PartitionRegistration
from tidelog.config.broker import BrokerSettings
from tidelog.controller.alter_partition import ProposedIsr
from tidelog.controller.alter_partition_events import on_alter_partition
from tidelog.controller.broker_changes import on_broker_change
from tidelog.controller.context import ControllerContext
from tidelog.controller.event_queue import EventQueue
from tidelog.controller.events import (
    AlterPartition,
    AlterPartitionReassignments,
    AutoPreferredReplicaLeaderElection,
    BrokerChange,
    ControlledShutdown,
    ControllerRequest,
    DeleteRemovedReplicas,
    ElectLeaders,
    Event,
    Expire,
    IsrChangeNotification,
    LeaderAndIsrResponseReceived,
    LogDirEventNotification,
    LogEndsResponseReceived,
    PartitionModifications,
    PartitionReassignment,
    PreferredReplicaElection,
    Reelect,
    RegisterBrokerAndReelect,
    ResendLeaderAndIsr,
    RetryTopicDeletion,
    Startup,
    TopicChange,
    TopicDeletion,
    TopicDeletionStopReplicaResponseReceived,
    TopicSettingsChange,
    UncleanLeaderElectionEnable,
)
from tidelog.controller.failover import on_controller_failover
from tidelog.controller.fenced_store import RETRY_PAUSE_S, TermEnded
from tidelog.controller.leader_and_isr_retries import on_leader_and_isr_response_received, on_resend_leader_and_isr
from tidelog.controller.leader_rebalance import on_auto_preferred_replica_leader_election, schedule_checks
from tidelog.controller.notifications import (
    on_isr_change_notification,
    on_log_dir_event_notification,
    on_log_ends_response_received,
)
from tidelog.controller.reassignment_events import on_alter_partition_reassignments, on_partition_reassignment
from tidelog.controller.registration import ControllerFence, claim_controller
from tidelog.controller.removed_replicas import on_delete_removed_replicas, on_stop_replica_response_received
from tidelog.controller.requested_elections import (
    on_controlled_shutdown,
    on_elect_leaders,
    on_preferred_replica_election,
    on_topic_settings_change,
    on_unclean_leader_election_enable,
)
from tidelog.controller.statistics import ControllerStatistics
from tidelog.controller.term import ChannelsFactory, ControllerTerm
from tidelog.controller.topic_changes import on_partition_modifications, on_topic_change, on_topic_deletion
from tidelog.controller.topic_deletion import on_retry_topic_deletion
from tidelog.errors import KafkaError, NotController
from tidelog.runtime.clock import Clock
from tidelog.store.interface import (
    BadVersion,
    Check,
    Delete,
    NoNode,
    SessionExpired,
    Store,
    StoreUnavailable,
    WatchEvent,
)
from tidelog.types import NO_BROKER, BrokerId, TopicPartition

logger = logging.getLogger(__name__)

SETTLE_S = 1.0
"""Maximum time a controlled shutdown waits for the new leaders to answer LeaderAndIsr."""

PAUSE_AFTER_FAILURE_S = 1.0
"""Pause after a failed controller failover, so that another broker can win the next election."""

EventHandler: TypeAlias = Callable[[ControllerTerm, Any], Awaitable[str | None]]

EVENT_HANDLERS: Mapping[type[Event], EventHandler] = {
    BrokerChange: on_broker_change,
    TopicChange: on_topic_change,
    PartitionModifications: on_partition_modifications,
    TopicDeletion: on_topic_deletion,
    IsrChangeNotification: on_isr_change_notification,
    LogDirEventNotification: on_log_dir_event_notification,
    PreferredReplicaElection: on_preferred_replica_election,
    AutoPreferredReplicaLeaderElection: on_auto_preferred_replica_leader_election,
    PartitionReassignment: on_partition_reassignment,
    ControlledShutdown: on_controlled_shutdown,
    ElectLeaders: on_elect_leaders,
    AlterPartition: on_alter_partition,
    AlterPartitionReassignments: on_alter_partition_reassignments,
    UncleanLeaderElectionEnable: on_unclean_leader_election_enable,
    TopicSettingsChange: on_topic_settings_change,
    LogEndsResponseReceived: on_log_ends_response_received,
    LeaderAndIsrResponseReceived: on_leader_and_isr_response_received,
    ResendLeaderAndIsr: on_resend_leader_and_isr,
    TopicDeletionStopReplicaResponseReceived: on_stop_replica_response_received,
    RetryTopicDeletion: on_retry_topic_deletion,
    DeleteRemovedReplicas: on_delete_removed_replicas,
}
"""Handler of each event of a term. It returns the log line of the event, or None."""

T = TypeVar("T")


class Controller:
    """Controller of one broker during one store session. A broker that rejoins creates a new one."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        store: Store,
        clock: Clock,
        settings: Callable[[], BrokerSettings],
        channels: ChannelsFactory,
        on_elected: Callable[[ControllerFence], Awaitable[None]] | None = None,
    ) -> None:
        """`on_elected` is awaited between the election and controller failover, before any request is accepted."""
        self._broker_id = broker_id
        self._store = store
        self._clock = clock
        self._settings = settings
        self._make_channels = channels
        self._on_elected = on_elected
        self._queue = EventQueue()
        self._term: ControllerTerm | None = None
        self._has_expired = False
        self._other_controller = NO_BROKER
        self._event_done = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()
        self.statistics = ControllerStatistics(lambda: self._term.context if self._term is not None else None)

    @property
    def is_active(self) -> bool:
        return self._term is not None

    @property
    def fence(self) -> ControllerFence | None:
        return None if self._term is None else self._term.fence

    @property
    def context(self) -> ControllerContext:
        """The context of this term; empty while another broker is the controller."""
        return ControllerContext() if self._term is None else self._term.context

    @property
    def waiting_events(self) -> int:
        return len(self._queue)

    async def run(self, register: Callable[[], Awaitable[None]] | None = None) -> None:
        """Run elections and terms until the session ends. `register` is awaited before the first election."""
        self._store.on_session_end(self._on_session_end)
        self._queue.put(Startup() if register is None else RegisterBrokerAndReelect(register))
        try:
            while not self._has_expired:
                await self._process(await self._queue.next())
                self._event_done.set()
        finally:
            self._end_term("controller is stopping")
            await asyncio.gather(*self._closing, return_exceptions=True)

    def resign(self) -> None:
        """End the term at once: nothing it still does has any effect. The controller then runs for election again."""
        if self._term is not None:
            self._end_term("the session with the store may have ended")
            self._queue.put(Reelect())

    async def controlled_shutdown(self, broker_id: BrokerId, broker_epoch: int) -> set[TopicPartition]:
        """Move leaders away from the broker. Returns the partitions that it still leads.

        Raises NotController or StaleBrokerEpoch.
        """
        if not self.is_active:
            raise NotController
        remaining: set[TopicPartition] = await self._ask(
            lambda response: ControlledShutdown(broker_id, broker_epoch, response)
        )
        if self._term is not None and not remaining:
            # The new leaders should have LeaderAndIsr before the broker stops.
            await self._term.channels.settle(SETTLE_S)
        return remaining

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, *, is_unclean: bool
    ) -> dict[TopicPartition, KafkaError | None]:
        """Outcome for each named partition, or for all partitions. Raises NotController."""
        if not self.is_active:
            raise NotController
        named = None if partitions is None else tuple(partitions)
        return await self._ask(lambda response: ElectLeaders(named, is_unclean, response))

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[BrokerId] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Start, replace or (None) cancel reassignments; what became of each request. NotController."""
        if not self.is_active:
            raise NotController
        named = tuple((each, None if target is None else tuple(target)) for each, target in targets.items())
        return await self._ask(
            lambda response: AlterPartitionReassignments(named, allow_replication_factor_change, response)
        )

    async def alter_partition(
        self, broker_id: BrokerId, broker_epoch: int, proposals: Mapping[TopicPartition, ProposedIsr]
    ) -> dict[TopicPartition, PartitionRegistration | KafkaError]:
        """Write the ISR that the leader proposes; the state of each partition. NotController, StaleBrokerEpoch."""
        if not self.is_active:
            raise NotController
        named = tuple(proposals.items())
        return await self._ask(lambda response: AlterPartition(broker_id, broker_epoch, named, response))

    async def _ask(self, request_for: Callable[[asyncio.Future[T]], ControllerRequest]) -> T:
        """Queue the request, and wait for its answer."""
        response: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put(request_for(response))
        try:
            return await response
        finally:
            del response  # an error keeps this frame: without the frame keeping the error, both are freed at once

    async def wait_for_deletions(self, topics: Collection[str], timeout_s: float) -> None:
        """Wait until each topic is deleted, or its deletion waits for brokers that are down."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while any(map(self._is_deleting, topics)):
                    self._event_done.clear()
                    await self._event_done.wait()

    def _is_deleting(self, topic: str) -> bool:
        context = self.context
        return topic in context.topics_to_delete and topic not in context.topics_ineligible_for_deletion

    def on_settings_changed(self, topics: Collection[str]) -> None:
        """Settings of the cluster or these topics changed: unclean election or min.insync.replicas may differ."""
        self._queue.put(TopicSettingsChange(frozenset(topics)) if topics else UncleanLeaderElectionEnable())

    # ---- events

    async def _process(self, event: Event) -> None:
        match event:
            case Startup() | Reelect():
                await self._elect_or_retry()
            case RegisterBrokerAndReelect(register):
                await register()
                await self._elect_or_retry()
            case Expire():
                self._has_expired = True
            case _ if self._term is not None:
                await self._perform(self._term, event)
            case _:
                self._drop([event])

    async def _perform(self, term: ControllerTerm, event: Event) -> None:
        """Handle one event. If it fails, the requests enqueued so far are sent anyway: their states are written."""
        try:
            await self._timed(term, EVENT_HANDLERS[type(event)](term, event))
        except Exception:
            logger.exception("event failed event=%s", event.name)
            self.statistics.failed_events += 1
            term.send()
        finally:
            self._drop([event])

    async def _timed(self, term: ControllerTerm, handling: Awaitable[str | None]) -> None:
        started = self._clock.monotonic()
        elections_before = self.statistics.leader_elections
        try:
            summary = await handling
        except TermEnded as reason:
            self._finish_term(term, str(reason))
            return
        term.send()
        duration_ms = (self._clock.monotonic() - started) * 1000
        self.statistics.record_event(duration_ms, had_elections=self.statistics.leader_elections > elections_before)
        if summary is not None:
            logger.info("%s controller_epoch=%d duration_ms=%.1f", summary, term.fence.epoch, duration_ms)

    def _drop(self, events: list[Event]) -> None:
        """Fail the requests among events that will not be handled."""
        for event in events:
            if isinstance(event, ControllerRequest) and not event.answer.done():
                event.answer.set_exception(NotController("the controller resigned before it handled the request"))

    # ---- election and term

    async def _elect_or_retry(self) -> None:
        try:
            await self._elect()
            return
        except SessionExpired:
            self._queue.put(Expire())
            return
        except StoreUnavailable as error:
            logger.debug("store unreachable, election postponed reason=%s", error)
        except Exception:
            logger.exception("controller election failed")
            await asyncio.sleep(PAUSE_AFTER_FAILURE_S)
        await asyncio.sleep(RETRY_PAUSE_S)
        self._queue.put(Reelect())

    async def _elect(self) -> None:
        node = await self._store.exists(znodes.CONTROLLER, self._on_controller_changed)
        self._check_session()
        is_own = node is not None and node.ephemeral_owner == self._store.session_id
        if self._term is not None:
            if is_own:
                return
            self._end_term("the controller node was deleted" if node is None else "another broker is controller")
        if is_own:
            await self._delete_own_controller_node()
        elif node is not None:
            self._log_other_controller(znodes.decode_controller(node.data))
            return
        await self._claim()

    def _log_other_controller(self, controller: BrokerId) -> None:
        if controller != self._other_controller:
            logger.info("another broker is controller controller=%d", controller)
        self._other_controller = controller

    async def _delete_own_controller_node(self) -> None:
        """Delete a /controller node of this session that belongs to no current term.

        The epoch is read first and checked: a broker that claimed the role meanwhile keeps its node.
        """
        with contextlib.suppress(NoNode):
            while True:
                epoch = await self._store.get(znodes.CONTROLLER_EPOCH)
                node = await self._store.exists(znodes.CONTROLLER)
                if node is None or node.ephemeral_owner != self._store.session_id:
                    return
                try:
                    check = Check(znodes.CONTROLLER_EPOCH, epoch.version)
                    await self._store.multi([check, Delete(znodes.CONTROLLER)])
                    return
                except BadVersion:
                    continue

    async def _claim(self) -> None:
        fence = await claim_controller(self._store, self._broker_id, self._clock)
        if fence is None or self._has_expired:
            self._queue.put(Reelect())
            return
        self._other_controller = NO_BROKER
        term: ControllerTerm | None = None
        try:
            if self._on_elected is not None:
                await self._on_elected(fence)
                self._check_session()
            # The term starts only now: a topic created during a takeover could take the name of an existing one.
            term = self._term = self._start_term(fence)
            await self._timed(term, on_controller_failover(term))
            schedule_checks(term)
        except Exception as error:
            if term is not None:
                self._finish_term(term, f"controller failover failed: {error!r}")
            if not isinstance(error, SessionExpired):
                await self._delete_own_controller_node()
            raise

    def _check_session(self) -> None:
        if self._has_expired:
            raise SessionExpired
        if not self._store.is_session_alive:
            raise StoreUnavailable(reason="the session may have ended")

    def _start_term(self, fence: ControllerFence) -> ControllerTerm:
        return ControllerTerm(
            broker_id=self._broker_id,
            fence=fence,
            store=self._store,
            channels=self._make_channels(),
            settings=self._settings,
            statistics=self.statistics,
            put_event=self._queue.put,
        )

    def _finish_term(self, term: ControllerTerm, reason: str) -> None:
        if self._term is term:
            self._end_term(reason)
            self._queue.put(Reelect())

    def _end_term(self, reason: str) -> None:
        """Synchronous: a handler that is still running gets TermEnded at its next step."""
        term, self._term = self._term, None
        self._drop(self._queue.clear())
        if term is None:
            return
        term.close()
        logger.info("resigned as controller controller_epoch=%d reason=%s", term.fence.epoch, reason)
        task = asyncio.get_running_loop().create_task(term.close_channels())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _on_controller_changed(self, _: WatchEvent) -> None:
        self._queue.put(Reelect())

    def _on_session_end(self) -> None:
        """Drop queued events: they belong to the session that ended (R32)."""
        self._has_expired = True
        self._end_term("the session with the store has ended")
        self._drop(self._queue.clear_and_put(Expire()))
