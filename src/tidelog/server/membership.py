"""The broker's place in its cluster: registered while its session with the store lives, joining anew after that."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import replace
from typing import Any, NamedTuple

from tidelog.cluster import znodes
from tidelog.cluster.image import Broker, ClusterImage
from tidelog.controller.configs import ConfigAdministration, no_pause
from tidelog.controller.controller import Controller
from tidelog.controller.members import unregister_member
from tidelog.controller.producer_ids import ProducerIds
from tidelog.controller.registration import BrokerIdInUse, ControllerFence, prepare_store, register_broker
from tidelog.controller.store_errors import store_errors_for_clients
from tidelog.controller.topics import TopicAdministration
from tidelog.errors import NotController
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
"""Instead of a broker epoch: every request of a controller is older than that."""
UNKNOWN_EPOCH = -1


class World(NamedTuple):
    """What a member of a cluster works with."""

    clock: Clock
    randomness: Randomness
    open_store: Callable[[], Awaitable[Store]]
    """A new session, kept alive by whoever gives it."""
    make_controller: Callable[[Store], Controller]
    cluster: ClusterState
    replicas: ReplicaManager
    directory_ids: Callable[[], tuple[str, ...]]
    """Of the log directories that are online."""
    spawn: Callable[[Coroutine[Any, Any, object]], "asyncio.Task[object]"]
    entry: StoreEntry
    note_producer_ids: Callable[[int], Awaitable[None]]
    breathe: Callable[[], Awaitable[None]] = no_pause
    """Lets clients have their turn, between parts of a long request."""


class Membership:
    """The same object through all sessions of a broker; `store` and `controller` are those of now."""

    def __init__(self, store: Store, broker: Broker, world: World) -> None:
        self.store = store
        self.broker = broker
        self._world = world
        self._registered = asyncio.Event()
        self._is_leaving = False
        self._tasks: list[asyncio.Task[object]] = []
        self._use(store)

    def _use(self, store: Store) -> None:
        world, broker_id = self._world, self.broker.id
        self.store = store
        self.controller = world.make_controller(store)
        self.producer_ids = ProducerIds(
            store, broker_id, is_allowed=lambda: world.entry.is_in_use, note=world.note_producer_ids
        )
        self.configs = ConfigAdministration(
            store, broker_id, lambda: world.cluster.settings, self._image, world.breathe
        )

    def _image(self) -> ClusterImage:
        return self._world.cluster.image

    # -- what others ask

    @property
    def is_fenced(self) -> bool:
        """The store may have ended the session: somebody else may be leader of what this broker led."""
        return not self.store.is_session_alive

    @property
    def broker_epoch(self) -> int:
        """R39: what is meant for an earlier registration is refused."""
        return self.broker.epoch if self._registered.is_set() else NOT_REGISTERED

    async def wait_until_registered(self, timeout_s: float) -> None:
        """Until this broker knows its own epoch, but not for longer than that.

        Others see a registration before the broker has the answer to it: a controller that is quick would be refused.
        """
        if not self._registered.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._registered.wait()

    @property
    def suspension(self) -> str:
        """Why this broker leads nothing now: a sentence for people; empty if it acts as a member."""
        if self.is_fenced:
            trouble = f" ({self.store.trouble})" if self.store.trouble else ""
            return (
                f"the coordination store cannot be reached{trouble}. Bring it back; if it is lost, stop all brokers and"
                " start them again: they rebuild it from their log directories"
            )
        if self._world.entry.obstacle:
            return self._world.entry.obstacle
        if not self._registered.is_set():
            return "its session with the coordination store has ended, and it has not joined again yet"
        return ""

    @property
    def topics(self) -> TopicAdministration:
        """Only the controller's broker changes topics; raises NotController."""
        return TopicAdministration(
            self.store,
            self._world.randomness,
            lambda: self._world.cluster.settings,
            self._image,
            self._controller_fence(),
            self._world.breathe,
        )

    async def unregister_broker(self, broker_id: BrokerId) -> None:
        """Forget a member of the cluster that is gone for good: NotController, InvalidRequest, unknown id."""
        with store_errors_for_clients():
            await unregister_member(self.store, self._controller_fence(), self._image(), broker_id)

    def _controller_fence(self) -> ControllerFence:
        fence = self.controller.fence
        if not self.controller.is_active or fence is None or self.is_fenced:
            raise NotController("this broker is not the controller")
        return fence

    # -- joining and leaving

    async def join(self) -> None:
        """Raises BrokerIdInUse, StoreError. Others see the broker from now on.

        Who joins anew has lost nothing since the registration before, which it names (R42).
        """
        previous_epoch = self.broker.previous_epoch if self.broker.epoch == UNKNOWN_EPOCH else self.broker.epoch
        wanted = replace(self.broker, previous_epoch=previous_epoch, directory_ids=self._world.directory_ids())
        self.broker = await register_broker(self.store, wanted, self._world.clock)
        self._registered.set()
        self.store.on_suspended(self._on_suspended)
        self.store.on_resumed(self._on_resumed)
        self.store.on_session_end(self._on_session_end)
        logger.info("registered broker_id=%d broker_epoch=%d", self.broker.id, self.broker.epoch)

    def begin(self, register: Callable[[], Awaitable[None]] | None = None) -> None:
        """Stand for controller, after registering where that is still to be done (R32)."""
        self._tasks = [self._world.spawn(self.controller.run(register))]

    async def leave(self) -> None:
        """No longer act as a member; the session ends when the store is closed."""
        self._is_leaving = True
        await self._cancel_tasks()

    async def _cancel_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def on_settings_changed(self, topics: Collection[str]) -> None:
        """Of the cluster, and of these topics."""
        if self.controller.is_active:
            self.controller.on_settings_changed(topics)

    async def tell_log_directory_failed(self) -> None:
        """R5: the controller then finds others to lead what was there."""
        event = znodes.encode_log_directory_event(self.broker.id)
        while not self._is_leaving:
            try:
                await self.store.create(znodes.LOG_DIRECTORY_EVENT_PREFIX, event, sequential=True)
                return
            except StoreError as error:
                logger.warning("the controller cannot be told of a failed log dir yet reason=%s", error)
                await asyncio.sleep(REJOIN_PAUSE_S)

    # -- what happens to the session

    def _on_suspended(self) -> None:
        logger.warning("the store cannot be reached and may take this broker for dead: not acting as leader")
        self._world.replicas.suspend()
        self.controller.resign()

    def _on_resumed(self) -> None:
        logger.info("the store can be reached again within the same session: acting as leader again")
        self._world.replicas.resume()

    def _on_session_end(self) -> None:
        if self._is_leaving:
            return
        logger.warning("session with the coordination store ended, joining again")
        self._registered.clear()
        self._world.replicas.resign_all()
        self._world.spawn(self._rejoin())

    async def _rejoin(self) -> None:
        """A machine that slept, or a process that was stopped, comes back as a new member."""
        await self._cancel_tasks()
        while not self._is_leaving:
            try:
                store = await self._world.open_store()
            except (StoreError, OSError) as error:
                logger.warning("cannot join again yet reason=%s", error)
                await asyncio.sleep(REJOIN_PAUSE_S)
                continue
            self._use(store)
            self.begin(self._register_again)
            return

    async def _register_again(self) -> None:
        told = ""
        while not self._is_leaving:
            try:
                await prepare_store(self.store)
                await self._world.entry.enter(self.store)
                await self.join()
                self._world.spawn(self._world.entry.watch(self.store))
                return
            except SessionExpired:
                self._world.spawn(self._rejoin())
                return
            except (StoreError, BrokerIdInUse, znodes.MalformedNode) as error:
                if str(error) != told:
                    logger.warning("cannot join again yet reason=%s", error)
                told = str(error)
                await asyncio.sleep(REJOIN_PAUSE_S)
