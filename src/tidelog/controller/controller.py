"""The controller: tries to be elected, and while in office works off one event after another (R31 to R33)."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from tidelog.cluster import znodes
from tidelog.config.broker import BrokerSettings
from tidelog.controller.broker_changes import on_broker_change
from tidelog.controller.context import ControllerContext
from tidelog.controller.event_queue import EventQueue
from tidelog.controller.events import (
    BrokerChange,
    ControlledShutdown,
    DeleteAgain,
    ElectLeaders,
    Event,
    Expire,
    InSyncChange,
    LeaderAndIsrAnswered,
    LeaderImbalanceCheck,
    LogDirectoryEvent,
    LogEndsAnswered,
    OfflinePartitions,
    PartitionModification,
    PreferredElection,
    Question,
    Reassignment,
    Reelect,
    RegisterBrokerAndReelect,
    ReplicasDeleted,
    ResendLeaderAndIsr,
    Startup,
    TopicChange,
    TopicDeletion,
    TopicSettingsChange,
)
from tidelog.controller.failover import on_controller_failover
from tidelog.controller.fenced_store import RETRY_PAUSE_S, TermOver
from tidelog.controller.leader_and_isr_retries import on_leader_and_isr_answered, on_resend_leader_and_isr
from tidelog.controller.leader_rebalance import on_leader_imbalance_check, schedule_checks
from tidelog.controller.notifications import on_in_sync_change, on_log_directory_event, on_log_ends_answered
from tidelog.controller.registration import ControllerFence, claim_controller
from tidelog.controller.requested_elections import (
    on_controlled_shutdown,
    on_elect_leaders,
    on_offline_partitions,
    on_preferred_election,
    on_reassignment,
    on_topic_settings_change,
)
from tidelog.controller.statistics import ControllerStatistics
from tidelog.controller.term import ChannelsFactory, ControllerTerm
from tidelog.controller.topic_changes import on_partition_modification, on_topic_change, on_topic_deletion
from tidelog.controller.topic_deletion import on_delete_again, on_replicas_deleted
from tidelog.errors import KafkaError, NotController
from tidelog.runtime.clock import Clock
from tidelog.store.interface import NoNode, SessionExpired, Store, StoreUnavailable, WatchEvent
from tidelog.types import NO_BROKER, BrokerId, TopicPartition

logger = logging.getLogger(__name__)

SETTLE_S = 1.0
"""How long a broker that leaves is held up until the new leaders have taken office."""

PAUSE_AFTER_FAILURE_S = 1.0
"""Before a controller that could not take office tries again: another broker may do better."""

Duty: TypeAlias = Callable[[ControllerTerm, Any], Awaitable[str | None]]

DUTIES: Mapping[type[Event], Duty] = {
    BrokerChange: on_broker_change,
    TopicChange: on_topic_change,
    PartitionModification: on_partition_modification,
    TopicDeletion: on_topic_deletion,
    InSyncChange: on_in_sync_change,
    LogDirectoryEvent: on_log_directory_event,
    PreferredElection: on_preferred_election,
    LeaderImbalanceCheck: on_leader_imbalance_check,
    Reassignment: on_reassignment,
    ControlledShutdown: on_controlled_shutdown,
    ElectLeaders: on_elect_leaders,
    OfflinePartitions: on_offline_partitions,
    TopicSettingsChange: on_topic_settings_change,
    LogEndsAnswered: on_log_ends_answered,
    LeaderAndIsrAnswered: on_leader_and_isr_answered,
    ResendLeaderAndIsr: on_resend_leader_and_isr,
    ReplicasDeleted: on_replicas_deleted,
    DeleteAgain: on_delete_again,
}
"""What a controller in office does about each event; the answer is its line in the log."""


class Controller:
    """Of one broker and one session with the store; a broker that joins anew makes a new one."""

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
        """`on_elected` is awaited between the election and the office: nobody can ask for anything before."""
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
        """Empty while another broker is controller."""
        return ControllerContext() if self._term is None else self._term.context

    @property
    def waiting_events(self) -> int:
        return len(self._queue)

    async def run(self, register: Callable[[], Awaitable[None]] | None = None) -> None:
        """Elect, work, elect again, until the session ends. `register` comes before the first election."""
        self._store.on_session_end(self._on_session_end)
        self._queue.put(Startup() if register is None else RegisterBrokerAndReelect(register))
        try:
            while not self._has_expired:
                await self._process(await self._queue.next())
                self._event_done.set()
        finally:
            self._end_term("the controller stops")
            await asyncio.gather(*self._closing, return_exceptions=True)

    def resign(self) -> None:
        """From now on nothing this controller does has effect. It will try to be elected again."""
        if self._term is not None:
            self._end_term("its broker may have lost its session")
            self._queue.put(Reelect())

    async def controlled_shutdown(self, broker_id: BrokerId, broker_epoch: int) -> set[TopicPartition]:
        """Move leaders away from the broker; the partitions that it still leads. NotController, StaleBrokerEpoch."""
        if not self.is_active:
            raise NotController
        event = ControlledShutdown(broker_id, broker_epoch, asyncio.get_running_loop().create_future())
        self._queue.put(event)
        remaining = await event.answer
        if self._term is not None and not remaining:
            # Whoever is to lead now should know it before the broker is gone.
            await self._term.channels.settle(SETTLE_S)
        return remaining

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, *, is_unclean: bool
    ) -> dict[TopicPartition, KafkaError | None]:
        """What became of each partition that is named, or of all there are. NotController."""
        if not self.is_active:
            raise NotController
        named = None if partitions is None else tuple(partitions)
        event = ElectLeaders(named, is_unclean, asyncio.get_running_loop().create_future())
        self._queue.put(event)
        return await event.answer

    async def settle_deletions(self, topics: Collection[str], timeout_s: float) -> None:
        """Wait until none of them is under way any more: gone, or held up by brokers that are away."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while any(map(self._is_deleting, topics)):
                    self._event_done.clear()
                    await self._event_done.wait()

    def _is_deleting(self, topic: str) -> bool:
        context = self.context
        return topic in context.topics_to_delete and topic not in context.suspended_deletions

    def on_settings_changed(self, topics: Collection[str]) -> None:
        """Of the cluster, and of these topics: unclean elections may be allowed now, or min.insync.replicas another."""
        self._queue.put(TopicSettingsChange(frozenset(topics)) if topics else OfflinePartitions())

    # -- the queue

    async def _process(self, event: Event) -> None:
        match event:
            case Startup() | Reelect():
                await self._elect_or_try_again()
            case RegisterBrokerAndReelect(register):
                await register()
                await self._elect_or_try_again()
            case Expire():
                self._has_expired = True
            case _ if self._term is not None:
                await self._perform(self._term, event)
            case _:
                self._drop([event])

    async def _perform(self, term: ControllerTerm, event: Event) -> None:
        """One event of the term. If it fails, what it has decided until then is sent nevertheless."""
        try:
            await self._timed(term, DUTIES[type(event)](term, event))
        except Exception:
            logger.exception("event failed event=%s", event.name)
            self.statistics.failed_events += 1
            term.send()
        finally:
            self._drop([event])

    async def _timed(self, term: ControllerTerm, duty: Awaitable[str | None]) -> None:
        started = self._clock.monotonic()
        elections_before = self.statistics.leader_elections
        try:
            story = await duty
        except TermOver as reason:
            self._over(term, str(reason))
            return
        term.send()
        duration_ms = (self._clock.monotonic() - started) * 1000
        self.statistics.count_event(duration_ms, had_elections=self.statistics.leader_elections > elections_before)
        if story is not None:
            logger.info("%s controller_epoch=%d duration_ms=%.1f", story, term.fence.epoch, duration_ms)

    def _drop(self, events: list[Event]) -> None:
        """Nobody will answer these any more."""
        for event in events:
            if isinstance(event, Question) and not event.answer.done():
                event.answer.set_exception(NotController("the controller did not get to it"))

    # -- the office

    async def _elect_or_try_again(self) -> None:
        try:
            await self._elect()
            return
        except SessionExpired:
            self._queue.put(Expire())
            return
        except StoreUnavailable as error:
            logger.debug("no election while the store cannot be reached reason=%s", error)
        except Exception:
            logger.exception("the election failed")
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
            self._end_term("the office was taken away" if node is None else "another broker is controller")
        if is_own:
            await self._give_up_claim()
        elif node is not None:
            self._tell_other(znodes.decode_controller(node.data))
            return
        await self._claim()

    def _tell_other(self, controller: BrokerId) -> None:
        if controller != self._other_controller:
            logger.info("another broker is controller controller=%d", controller)
        self._other_controller = controller

    async def _give_up_claim(self) -> None:
        """The office is this broker's by a term that it has left, or does not know of."""
        with contextlib.suppress(NoNode):
            await self._store.delete(znodes.CONTROLLER)

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
            # Not before: topics that are made while old ones are still looked for might take their names.
            term = self._term = self._begin_term(fence)
            await self._timed(term, on_controller_failover(term))
            schedule_checks(term)
        except Exception as error:
            if term is not None:
                self._over(term, f"could not take office: {error!r}")
            if not isinstance(error, SessionExpired):
                await self._give_up_claim()
            raise

    def _check_session(self) -> None:
        if self._has_expired:
            raise SessionExpired
        if not self._store.is_session_alive:
            raise StoreUnavailable(reason="the session may have ended")

    def _begin_term(self, fence: ControllerFence) -> ControllerTerm:
        return ControllerTerm(
            broker_id=self._broker_id,
            fence=fence,
            store=self._store,
            channels=self._make_channels(),
            settings=self._settings,
            statistics=self.statistics,
            put_event=self._queue.put,
        )

    def _over(self, term: ControllerTerm, reason: str) -> None:
        if self._term is term:
            self._end_term(reason)
            self._queue.put(Reelect())

    def _end_term(self, reason: str) -> None:
        """Synchronous: whatever still runs finds the term over at its next step."""
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
        """What waits belongs to a session that is gone (R32)."""
        self._has_expired = True
        self._end_term("the session with the store has ended")
        self._drop(self._queue.clear_and_put(Expire()))
