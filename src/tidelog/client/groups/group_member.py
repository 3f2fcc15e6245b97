"""Group membership of a consumer: heartbeats, assigned and owned partitions.

A membership runs beside the reader. `assigned` are the partitions to read, `own` sets the partitions that are read now.
A revoked partition is reported to the coordinator, and goes to its next owner, when the reader no longer owns it.
"""

import asyncio
import contextlib
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from tidelog.client.consumer.consumer_settings import ConsumerSettings
from tidelog.client.consumer.offsets import END
from tidelog.client.groups.group_offsets import GroupMember
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import Backoff, is_retriable
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.coordinators import Coordinators, KeyType
from tidelog.errors import KafkaError
from tidelog.protocol.structs import Request, Response
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)

NOTHING: frozenset[TopicPartition] = frozenset()
NO_GENERATION = -1
LEAVE_TIMEOUT_S = 5.0


class GroupConsumerSettings(NamedTuple):
    is_classic: bool = False
    """The classic protocol (JoinGroup), instead of the consumer protocol (KIP-848)."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3000
    """Both for classic groups; the coordinator of a consumer group sets them itself."""
    rebalance_timeout_ms: int = 60_000
    """Maximum time for a member to give up revoked partitions, or to rejoin."""
    max_poll_interval_ms: int = 300_000
    """A member that does not poll for this long leaves the group, and rejoins with the next poll."""
    instance_id: str | None = None
    """Static membership: after `close`, partitions wait for this instance until its session expires."""
    start_at: int = END
    """BEGINNING or END, for partitions without a committed offset."""
    timeout_s: float = 30.0
    """Timeout of committing and fetching offsets."""
    reading: ConsumerSettings = ConsumerSettings()


class Membership(ABC):
    def __init__(self, cluster: Cluster, group_id: str, topics: Sequence[str], settings: GroupConsumerSettings) -> None:
        self.group_id = group_id
        self.topics = sorted(set(topics))
        self.settings = settings
        self.cluster = cluster
        self.member_id = ""
        self.generation = NO_GENERATION
        """Generation id or member epoch. Kept after fencing until all partitions are given up: it fences commits."""
        self.assigned = NOTHING
        self.owned = NOTHING
        self.failure: Exception | None = None
        """Fatal error that ended this membership."""
        self.changed = asyncio.Event()
        """Set when `assigned` or `failure` has changed."""
        self._wake_up = asyncio.Event()
        self._polled = asyncio.Event()
        self._idle_since: float | None = None
        """End of the last poll; None during a poll."""
        self._connections = cluster.new_connections()
        self._coordinators = Coordinators(cluster, self._connections)
        self._task: asyncio.Task[None] | None = None

    @property
    def member(self) -> GroupMember:
        return GroupMember(self.group_id, self.generation, self.member_id, self.settings.instance_id)

    def own(self, partitions: frozenset[TopicPartition]) -> None:
        """Exactly these partitions are read from now on, except those that are no longer assigned."""
        self.owned = partitions & self.assigned
        self._wake_up.set()

    def heartbeat_now(self) -> None:
        """Send a heartbeat now."""
        self._wake_up.set()

    @contextlib.contextmanager
    def polling(self) -> Iterator[None]:
        """The reader polls: max_poll_interval_ms does not run."""
        self._idle_since = None
        self._polled.set()
        try:
            yield
        finally:
            self._idle_since = asyncio.get_running_loop().time()

    def start(self) -> None:
        self._idle_since = asyncio.get_running_loop().time()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Leave the group, within LEAVE_TIMEOUT_S at most."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            await self._try_to_leave()
        finally:
            self._connections.close()

    async def _try_to_leave(self) -> None:
        with contextlib.suppress(KafkaError, ConnectionLost, TimeoutError):
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._leave()

    async def _run(self) -> None:
        backoff = Backoff(self.cluster.randomness)
        while self.failure is None:
            self._wake_up.clear()
            if self._remaining_idle_s() <= 0:
                await self._leave_until_polled()
            try:
                pause_s = min(await self._heartbeat(), self._remaining_idle_s())
                backoff.reset()
            except Exception as error:  # noqa: BLE001 - raised by the next poll
                self._coordinators.forget(KeyType.GROUP, self.group_id)
                self._on_no_response()
                pause_s = backoff.next_s()
                if not is_retriable(error):
                    logger.warning("group membership failed group=%s reason=%s", self.group_id, error)
                    self.failure = error
                    self._set_assigned(NOTHING)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake_up.wait()

    def _remaining_idle_s(self) -> float:
        if self._idle_since is None:
            return math.inf
        return self._idle_since + self.settings.max_poll_interval_ms / 1000 - asyncio.get_running_loop().time()

    async def _leave_until_polled(self) -> None:
        """Leave the group until the next poll, so that other members read these partitions."""
        logger.warning(
            "left group: poll interval exceeded group=%s limit_ms=%d",
            self.group_id,
            self.settings.max_poll_interval_ms,
        )
        self._polled.clear()
        await self._try_to_leave()
        self._on_left()
        self._set_assigned(NOTHING)
        await self._polled.wait()

    def _set_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.assigned = partitions
        self.changed.set()

    async def _ask(self, request: Request, response_type: type[R], timeout_s: float | None = None) -> R:
        """One attempt: a retry may need other content."""
        connection = await self._coordinators.connection(KeyType.GROUP, self.group_id)
        return await connection.ask(request, response_type, timeout_s=timeout_s or self.cluster.request_timeout_s)

    @abstractmethod
    async def _heartbeat(self) -> float:
        """One exchange with the coordinator. Returns the seconds until the next one."""

    @abstractmethod
    def _on_no_response(self) -> None:
        """It is unknown whether the coordinator has received the request."""

    @abstractmethod
    async def _leave(self) -> None: ...

    @abstractmethod
    def _on_left(self) -> None:
        """The next heartbeat joins, once all partitions are given up."""
