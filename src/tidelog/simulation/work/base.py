"""Base class of client work: shared context, and the phases prepare, run, settle and check."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from tidelog.client.admin.admin import Admin
from tidelog.client.routing.cluster import Cluster
from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.clients import MAX_PAUSE_MS, ClientErrors, client_cluster
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.history import History
from tidelog.types import TopicPartition

T = TypeVar("T")

REPLICAS = 3
MIN_IN_SYNC = "2"
SEEDS = 1 << 30
ADMIN_TIMEOUT_S = 60.0
RETRY_S = 1.0
TIMES_IN_A_RUN = 3
"""Minimum number of rare operations in a short run; the average is twice this."""


class WorkContext:
    """Shared by all kinds of work of a simulation: cluster, history, random source and topics."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        history: History,
        randomness: SeededRandomness,
        log: Callable[[str], None],
        topic_settings: Mapping[str, str],
        longest_pause_ms: int,
        run_s: float,
    ) -> None:
        self.cluster = cluster
        self.history = history
        self.log = log
        self.topic_settings = topic_settings
        self.longest_pause_ms = longest_pause_ms
        """Maximum pause of a writer between two bursts."""
        self.run_s = run_s
        """Duration of the work: the same as that of the faults."""
        self._randomness = randomness
        self.partitions: dict[str, list[TopicPartition]] = {}
        """Partitions of topics that are checked by the history; a list grows with its topic."""
        self._making: dict[str, asyncio.Task[None]] = {}

    @property
    def now(self) -> float:
        return self.cluster.clock.monotonic()

    def new_randomness(self) -> SeededRandomness:
        return SeededRandomness(self._randomness.below(SEEDS))

    def client(self, name: str) -> Cluster:
        return client_cluster(self.cluster, self._randomness.below(SEEDS), name)

    def admin(self, name: str) -> Admin:
        return Admin(self.client(name), timeout_s=ADMIN_TIMEOUT_S)

    async def topic(self, name: str, partitions: int = 2, **settings: str) -> list[TopicPartition]:
        """Partitions of the topic, which is created at the first call."""
        if name not in self._making:
            self.partitions[name] = []
            self._making[name] = asyncio.get_running_loop().create_task(self._make(name, partitions, settings))
        await self._making[name]
        return self.partitions[name]

    async def _make(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        own = {key.replace("_", "."): value for key, value in settings.items()} or self.topic_settings
        configs = {"min.insync.replicas": MIN_IN_SYNC, **own}
        await self.admin(f"{name}-maker").create_topic(
            name,
            partitions=partitions,
            replication_factor=min(REPLICAS, len(self.cluster.machines)),
            settings=configs,
        )
        self.partitions[name] += [TopicPartition(name, index) for index in range(partitions)]


class Work(ABC):
    """One instance per simulation. `run` ends soon after `is_over`, `settle` when all started operations are done."""

    name: ClassVar[str]
    broker_settings: ClassVar[Mapping[str, object]] = {}
    """Broker settings that make events happen within the minute of a simulation."""

    def __init__(self, context: WorkContext) -> None:
        self.context = context
        self.history = context.history
        self.randomness = context.new_randomness()
        self.noted: list[str] = []
        """Violations found so far."""

    async def prepare(self) -> None:  # noqa: B027 - most have nothing to do
        """Create the topics, before any fault."""

    @abstractmethod
    async def run(self, is_over: Callable[[], bool]) -> None: ...

    async def settle(self) -> None:  # noqa: B027
        """Finish after `run`, when the cluster is repaired or about to be."""

    def unsettled(self) -> Iterator[str]:
        """Operations that are not done yet, with the reason."""
        yield from ()

    def violations(self) -> Iterator[str]:
        """Recorded violations, called often; at the end also those of the final check."""
        yield from self.noted

    # ---- helpers of subclasses

    def log_event(self, line: str) -> None:
        self.context.log(f"{self.name}: {line}")

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[self.randomness.below(len(choices))]

    def is_one_in(self, number: int) -> bool:
        return self.randomness.below(number) == 0

    async def pause(self, longest_ms: int) -> None:
        await asyncio.sleep(self.randomness.below(longest_ms) / 1000)

    async def pace(self, longest_ms: int) -> None:
        """Pause between two requests, scaled by the run's write rate."""
        await self.pause(longest_ms * self.context.longest_pause_ms // MAX_PAUSE_MS)

    async def rest(self, longest_ms: int) -> None:
        """Pause between two rare operations, so that a few of them happen even in a short run."""
        await self.pause(self.within_run_ms(longest_ms))

    def within_run_ms(self, longest_ms: int) -> int:
        return min(longest_ms, int(self.context.run_s * 1000) // TIMES_IN_A_RUN)

    async def until_done(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Retry until it succeeds: errors of the cluster end when it is repaired."""
        while True:
            try:
                return await attempt()
            except ClientErrors:
                await asyncio.sleep(RETRY_S)


async def together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(work)
