"""Being a member of a group: what its coordinator wants us to read, heartbeat by heartbeat.

A membership runs beside whoever reads. It tells in `wanted` what is to be read, and is told by `own` what is read. What
is no longer wanted counts as given up, for the coordinator and for the next owner, when the reader has let go of it.
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
    """Members assign partitions among themselves (JoinGroup), instead of the coordinator (KIP-848)."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3000
    """Both for classic groups: others are told by their coordinator."""
    rebalance_timeout_ms: int = 60_000
    """How long the group waits for a member to let go of partitions, or to join again."""
    max_poll_interval_ms: int = 300_000
    """Whoever does not poll for so long leaves the group, and joins again when it does."""
    instance_id: str | None = None
    """A static member: when it is closed its partitions wait for the next of this name until its session ends."""
    start_at: int = END
    """BEGINNING or END, where the group has not committed anything."""
    timeout_s: float = 30.0
    """How long to try to commit, or to find out what is committed."""
    reading: ConsumerSettings = ConsumerSettings()


class Membership(ABC):
    def __init__(self, cluster: Cluster, group_id: str, topics: Sequence[str], settings: GroupConsumerSettings) -> None:
        self.group_id = group_id
        self.topics = sorted(set(topics))
        self.settings = settings
        self.cluster = cluster
        self.member_id = ""
        self.generation = NO_GENERATION
        """Or member epoch. Those of the past are kept until we have let go of all: they fence us."""
        self.wanted = NOTHING
        self.owned = NOTHING
        self.failure: Exception | None = None
        """Why this membership has ended."""
        self.changed = asyncio.Event()
        """Set when there is something new in `wanted` or `failure`."""
        self._told = asyncio.Event()
        self._polled = asyncio.Event()
        self._idle_since: float | None = None
        """When the last poll ended; None while one is under way."""
        self._connections = cluster.new_connections()
        self._coordinators = Coordinators(cluster, self._connections)
        self._task: asyncio.Task[None] | None = None

    @property
    def member(self) -> GroupMember:
        return GroupMember(self.group_id, self.generation, self.member_id, self.settings.instance_id)

    def own(self, partitions: frozenset[TopicPartition]) -> None:
        """So much is read from now on, and nothing else."""
        self.owned = partitions
        self._told.set()

    def hurry(self) -> None:
        """Ask the coordinator now."""
        self._told.set()

    @contextlib.contextmanager
    def polling(self) -> Iterator[None]:
        """Whoever reads waits for records, or for what the group wants."""
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
        """Leaves the group, if that is possible within a moment."""
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
            self._told.clear()
            if self._remaining_idle_s() <= 0:
                await self._stay_away()
            try:
                pause_s = min(await self._beat(), self._remaining_idle_s())
                backoff.reset()
            except Exception as error:  # noqa: BLE001 - whoever reads is told
                self._coordinators.forget(KeyType.GROUP, self.group_id)
                self._on_unanswered()
                pause_s = backoff.next_s()
                if not is_retriable(error):
                    logger.warning("left by the group: group=%s reason=%s", self.group_id, error)
                    self.failure = error
                    self._want(NOTHING)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._told.wait()

    def _remaining_idle_s(self) -> float:
        if self._idle_since is None:
            return math.inf
        return self._idle_since + self.settings.max_poll_interval_ms / 1000 - asyncio.get_running_loop().time()

    async def _stay_away(self) -> None:
        """Others read our partitions until somebody polls here."""
        logger.warning(
            "not polled for too long: group=%s limit_ms=%d", self.group_id, self.settings.max_poll_interval_ms
        )
        self._polled.clear()
        await self._try_to_leave()
        self._on_left()
        self._want(NOTHING)
        await self._polled.wait()

    def _want(self, partitions: frozenset[TopicPartition]) -> None:
        self.wanted = partitions
        self.changed.set()

    async def _ask(self, request: Request, answer_type: type[R], timeout_s: float | None = None) -> R:
        """One attempt: the next one may have something else to say."""
        connection = await self._coordinators.connection(KeyType.GROUP, self.group_id)
        return await connection.ask(request, answer_type, timeout_s=timeout_s or self.cluster.request_timeout_s)

    @abstractmethod
    async def _beat(self) -> float:
        """One exchange with the coordinator; the seconds until the next, unless there is something to tell."""

    @abstractmethod
    def _on_unanswered(self) -> None:
        """Nobody knows whether the coordinator has heard us."""

    @abstractmethod
    async def _leave(self) -> None: ...

    @abstractmethod
    def _on_left(self) -> None:
        """The next beat joins, as soon as we have let go of all."""
