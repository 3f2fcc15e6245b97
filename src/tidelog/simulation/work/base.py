"""The frame of a kind of work: what it shares with the others, and when it prepares, runs, settles and is judged."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from tidelog.client.admin.admin import Admin
from tidelog.client.routing.cluster import Cluster
from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.clients import LONGEST_PAUSE_MS, ClientErrors, client_cluster
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
"""At least so often, on average twice that, what is rare happens in a short run."""


class Bench:
    """What all kinds of work of one simulation share: cluster, history, chance, and the topics they write to."""

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
        """Of a writer, between two bursts."""
        self.run_s = run_s
        """How long there is work to do: as long as faults strike."""
        self._randomness = randomness
        self.partitions: dict[str, list[TopicPartition]] = {}
        """Of the topics that are read and judged by the history; a list grows with its topic."""
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
        """Made when somebody first asks for it."""
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
    """Made anew for each simulation. `run` ends soon after it is over, `settle` when all that was begun is done."""

    name: ClassVar[str]
    broker_settings: ClassVar[Mapping[str, object]] = {}
    """What brokers must be started with, so that something happens within the minute of a simulation."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.history = bench.history
        self.randomness = bench.new_randomness()
        self.noted: list[str] = []
        """Violations found on the way."""

    async def prepare(self) -> None:  # noqa: B027 - most have nothing to do
        """Make the topics; before any fault."""

    @abstractmethod
    async def run(self, is_over: Callable[[], bool]) -> None: ...

    async def settle(self) -> None:  # noqa: B027
        """After `run`, with the cluster repaired, or about to be."""

    def unsettled(self) -> Iterator[str]:
        """What is not done yet, and why."""
        yield from ()

    def violations(self) -> Iterator[str]:
        """Asked all the time: what was noted. In the end: what the judge of this work says too."""
        yield from self.noted

    # ---- for those who work

    def tell(self, line: str) -> None:
        self.bench.log(f"{self.name}: {line}")

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[self.randomness.below(len(choices))]

    def is_one_in(self, number: int) -> bool:
        return self.randomness.below(number) == 0

    async def pause(self, longest_ms: int) -> None:
        await asyncio.sleep(self.randomness.below(longest_ms) / 1000)

    async def pace(self, longest_ms: int) -> None:
        """Between two requests of a client: like all writers, it writes much in some runs and little in others."""
        await self.pause(longest_ms * self.bench.longest_pause_ms // LONGEST_PAUSE_MS)

    async def rest(self, longest_ms: int) -> None:
        """Between two operations that are rare, but happen a few times in every run, be it short."""
        await self.pause(self.within_run_ms(longest_ms))

    def within_run_ms(self, longest_ms: int) -> int:
        return min(longest_ms, int(self.bench.run_s * 1000) // TIMES_IN_A_RUN)

    async def until_done(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Errors of the cluster pass when it is repaired: whoever must get something done tries on."""
        while True:
            try:
                return await attempt()
            except ClientErrors:
                await asyncio.sleep(RETRY_S)


async def together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(work)
