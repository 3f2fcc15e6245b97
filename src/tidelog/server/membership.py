"""Membership of this broker in its cluster: registration, session with the store, rejoin after an expired session."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import replace
from typing import Any, NamedTuple

from tidelog.cluster import znodes
from tidelog.cluster.image import BrokerRegistration, ClusterImage
from tidelog.cluster.znodes import ProducerIdBlock
from tidelog.controller.configs import ConfigAdministration, never_yield
from tidelog.controller.controller import Controller
from tidelog.controller.members import absent_members, unregister_member
from tidelog.controller.producer_ids import ProducerIds
from tidelog.controller.registration import BrokerIdInUse, ControllerFence, prepare_store, register_broker
from tidelog.controller.store_errors import store_errors_for_clients
from tidelog.controller.topics import TopicAdministration
from tidelog.errors import NotController, StaleBrokerEpoch
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.runtime.clock import Clock
from tidelog.runtime.randomness import Randomness
from tidelog.server.cluster_state import ClusterState
from tidelog.server.takeover import StoreEntry
from tidelog.store.interface import SessionExpired, Store, StoreError
from tidelog.types import BrokerId

logger = logging.getLogger(__name__)

REJOIN_PAUSE_S = 0.5
NOT_REGISTERED = (1 << 63) - 1
"""Broker epoch of an unregistered broker. It is higher than any real one: all controller requests are stale."""
UNKNOWN_EPOCH = -1


class MembershipContext(NamedTuple):
    """The parts of a broker that its membership uses."""

    clock: Clock
    randomness: Randomness
    open_store: Callable[[], Awaitable[Store]]
    """Opens a new session. The owner of the function keeps it alive."""
    make_controller: Callable[[Store], Controller]
    cluster: ClusterState
    replicas: ReplicaManager
    directory_ids: Callable[[], tuple[str, ...]]
    """Ids of the online log directories."""
    spawn: Callable[[Coroutine[Any, Any, object]], "asyncio.Task[object]"]
    entry: StoreEntry
    persist_last_producer_id: Callable[[int], Awaitable[None]]
    yield_turn: Callable[[], Awaitable[None]] = never_yield
    """Yields to clients between parts of a long request."""


class Membership:
    """One object for all sessions of a broker; `store` and `controller` belong to the current session."""

    def __init__(self, store: Store, broker: BrokerRegistration, context: MembershipContext) -> None:
        self.store = store
        self.broker = broker
        self._context = context
        self._registered = asyncio.Event()
        self._is_leaving = False
        self._tasks: list[asyncio.Task[object]] = []
        self._use(store)

    def _use(self, store: Store) -> None:
        context, broker_id = self._context, self.broker.id
        self.store = store
        self.controller = context.make_controller(store)
        self.producer_ids = ProducerIds(
            store, broker_id, is_allowed=lambda: context.entry.is_in_use, note=context.persist_last_producer_id
        )
        self.configs = ConfigAdministration(
            store, broker_id, lambda: context.cluster.settings, self._image, context.yield_turn
        )

    def _image(self) -> ClusterImage:
        return self._context.cluster.image

    # ---- state

    @property
    def is_fenced(self) -> bool:
        """The session may have expired: another broker may lead the partitions of this one."""
        return not self.store.is_session_alive

    @property
    def broker_epoch(self) -> int:
        """R39: requests for an earlier registration are refused."""
        return self.broker.epoch if self._registered.is_set() else NOT_REGISTERED

    async def wait_until_registered(self, timeout_s: float) -> None:
        """Wait until this broker knows its own epoch, or the timeout ends.

        Others see the registration before this broker has the response to it: a fast controller would be refused.
        """
        if not self._registered.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._registered.wait()

    @property
    def suspension(self) -> str:
        """Why this broker leads nothing now, as a sentence for operators; empty if it acts as a member."""
        if self.is_fenced:
            trouble = f" ({self.store.trouble})" if self.store.trouble else ""
            return (
                f"the coordination store cannot be reached{trouble}. Bring it back; if it is lost, stop all brokers and"
                " start them again: they rebuild it from their log directories"
            )
        if self._context.entry.obstacle:
            return self._context.entry.obstacle
        if not self._registered.is_set():
            return "its session with the coordination store has expired, and it has not rejoined yet"
        return ""

    @property
    def topics(self) -> TopicAdministration:
        """Only the controller changes topics. Raises NotController."""
        return TopicAdministration(
            self.store,
            self._context.randomness,
            lambda: self._context.cluster.settings,
            self._image,
            self._controller_fence(),
            self._context.yield_turn,
        )

    async def absent_members(self) -> list[BrokerId]:
        """Members that are down, by id."""
        with store_errors_for_clients():
            return await absent_members(self.store, self._image())

    async def unregister_broker(self, broker_id: BrokerId) -> None:
        """Remove a dead broker from the members. Raises NotController, InvalidRequest, BrokerIdNotRegistered."""
        with store_errors_for_clients():
            await unregister_member(self.store, self._controller_fence(), self._image(), broker_id)

    async def allocate_producer_ids(self, broker_id: BrokerId, broker_epoch: int) -> ProducerIdBlock:
        """A block for another broker, which proves itself by its epoch. Raises NotController, StaleBrokerEpoch."""
        self._controller_fence()
        registered = self.controller.context.brokers.get(broker_id)
        if registered is None or registered.epoch != broker_epoch:
            raise StaleBrokerEpoch(f"broker {broker_id} is not registered with epoch {broker_epoch}")
        return await self.producer_ids.allocate(broker_id)

    def _controller_fence(self) -> ControllerFence:
        fence = self.controller.fence
        if not self.controller.is_active or fence is None or self.is_fenced:
            raise NotController("this broker is not the controller")
        return fence

    # ---- joining and leaving

    async def join(self) -> None:
        """Register: other brokers see this one from now on. Raises BrokerIdInUse, StoreError.

        A broker that rejoins names its previous epoch: it has lost nothing since then (R42).
        """
        previous_epoch = self.broker.previous_epoch if self.broker.epoch == UNKNOWN_EPOCH else self.broker.epoch
        registration = replace(self.broker, previous_epoch=previous_epoch, directory_ids=self._context.directory_ids())
        self.broker = await register_broker(self.store, registration, self._context.clock)
        self._registered.set()
        self.store.on_suspended(self._on_suspended)
        self.store.on_resumed(self._on_resumed)
        self.store.on_session_end(self._on_session_end)
        logger.info("registered broker_id=%d broker_epoch=%d", self.broker.id, self.broker.epoch)

    def begin(self, register: Callable[[], Awaitable[None]] | None = None) -> None:
        """Run for controller. `register` runs first where the broker still has to register (R32)."""
        self._tasks = [self._context.spawn(self.controller.run(register))]

    async def leave(self) -> None:
        """Stop acting as a member. The session ends when the store is closed."""
        self._is_leaving = True
        await self._cancel_tasks()

    async def _cancel_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def on_settings_changed(self, topics: Collection[str]) -> None:
        """Settings of the cluster or of these topics changed."""
        if self.controller.is_active:
            self.controller.on_settings_changed(topics)

    async def report_log_directory_failure(self) -> None:
        """R5: the controller then elects other leaders for the partitions in it."""
        event = znodes.encode_log_directory_event(self.broker.id)
        while not self._is_leaving:
            try:
                await self.store.create(znodes.LOG_DIRECTORY_EVENT_PREFIX, event, sequential=True)
                return
            except StoreError as error:
                logger.warning("cannot report failed log directory to the controller, retrying reason=%s", error)
                await asyncio.sleep(REJOIN_PAUSE_S)

    # ---- events of the session

    def _on_suspended(self) -> None:
        logger.warning("coordination store unreachable, session may have expired: leadership suspended")
        self._context.replicas.suspend()
        self.controller.resign()

    def _on_resumed(self) -> None:
        logger.info("coordination store reachable again in the same session: leadership resumed")
        self._context.replicas.resume()

    def _on_session_end(self) -> None:
        if self._is_leaving:
            return
        logger.warning("session with coordination store expired, rejoining")
        self._registered.clear()
        self._context.replicas.resign_all()
        self._context.spawn(self._rejoin())

    async def _rejoin(self) -> None:
        """After an expired session (suspended machine, stopped process) the broker registers again."""
        await self._cancel_tasks()
        while not self._is_leaving:
            try:
                store = await self._context.open_store()
            except (StoreError, OSError) as error:
                logger.warning("cannot rejoin, retrying reason=%s", error)
                await asyncio.sleep(REJOIN_PAUSE_S)
                continue
            self._use(store)
            self.begin(self._register_again)
            return

    async def _register_again(self) -> None:
        last_logged = ""
        while not self._is_leaving:
            try:
                await prepare_store(self.store)
                await self._context.entry.enter(self.store)
                await self.join()
                self._context.spawn(self._context.entry.watch(self.store))
                return
            except SessionExpired:
                self._context.spawn(self._rejoin())
                return
            except (StoreError, BrokerIdInUse, znodes.MalformedNode) as error:
                if str(error) != last_logged:
                    logger.warning("cannot rejoin, retrying reason=%s", error)
                last_logged = str(error)
                await asyncio.sleep(REJOIN_PAUSE_S)
