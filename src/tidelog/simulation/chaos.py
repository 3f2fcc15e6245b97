"""One seed, one story: clients that write and read, accidents, repair, and the verdict whether all held."""

import asyncio
import hashlib
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidelog.client.admin import Admin
from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.accidents import Accidents
from tidelog.simulation.clients import ClientErrors, Reader, Writer, client_cluster, start
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.history import History
from tidelog.simulation.invariants import Invariants, InvariantViolated
from tidelog.simulation.looking import content, replica
from tidelog.simulation.processes import run_simulation
from tidelog.types import TopicPartition

T = TypeVar("T")

TOPIC = "orders"
PARTITIONS = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
WRITERS = (-1, -1, 1)
"""Their acks. What the last one writes may be lost, and is what logs differ by."""
TROUBLED_S = 40.0
PATIENCE_S = 180.0
"""After the repair: sessions, back-offs and timeouts of the clients end one after the other."""
CHECK_S = 0.1
LONGEST_PAUSES_MS = (20, 300, 2000, 2000)
"""Accidents come alone, or one upon the other."""
CREATE_ONE_IN = 15
LATENCIES_S = (0.0005, 0.005, 0.02)
STORE_LATENCIES_S = (0.0, 0.005, 0.05)
LAG_LIMITS_MS = (1000, 3000)
SEGMENTS_MS = (3000, 604_800_000)


@dataclass(slots=True)
class Verdict:
    seed: int
    violations: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    acknowledged: int = 0
    reads: int = 0
    checks: int = 0
    fingerprint: str = ""
    """Of the story and of all records: equal if two runs were equal."""

    @property
    def is_good(self) -> bool:
        return not self.violations

    @property
    def summary(self) -> str:
        told = f"acknowledged={self.acknowledged} reads={self.reads} checks={self.checks}"
        return f"seed={self.seed} {told} fingerprint={self.fingerprint} {'held' if self.is_good else 'VIOLATED'}"


async def until_violated(checking: Coroutine[Any, Any, None], living: Coroutine[Any, Any, None]) -> list[Exception]:
    """Until the story has ended, or a check; whatever else than a violated invariant ends them is raised."""
    tasks = [start(checking), start(living)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    violations: list[Exception] = []
    for task in tasks:
        if task.done() and (error := task.exception()) is not None:
            if not isinstance(error, InvariantViolated):
                raise error
            violations.append(error)
    return violations


class Chaos:
    def __init__(self, seed: int) -> None:
        self.verdict = Verdict(seed)
        self._seed = seed
        self._randomness = SeededRandomness(seed)
        self._cluster = SimulatedCluster(3, seed=seed, replica_lag_time_max_ms=self._one_of(LAG_LIMITS_MS))
        self._cluster.network.latency_s = self._one_of(LATENCIES_S)
        self._cluster.store_state.latency_s = self._one_of(STORE_LATENCIES_S)
        self._history = History()
        self._invariants = Invariants(self._cluster, self._history)
        self._accidents = Accidents(self._cluster, self._randomness, self._tell)
        self._writers = [
            Writer(self._cluster, self._history, f"w{number}", seed * 100 + number, acks)
            for number, acks in enumerate(WRITERS)
        ]
        self._reader = Reader(self._cluster, self._history, "reader", seed * 100 + 50)
        self._admin = Admin(client_cluster(self._cluster, seed * 100 + 60, "admin"))
        self._is_over = False
        self._topics = 0
        self._tasks: dict[asyncio.Task[None], None] = {}

    def _one_of(self, choices: Sequence[T]) -> T:
        return choices[self._randomness.below(len(choices))]

    def _tell(self, line: str) -> None:
        self.verdict.story.append(f"{self._cluster.clock.monotonic():8.3f} {line}")

    async def run(self) -> Verdict:
        with self._invariants.watching():
            for violation in await until_violated(self._check_on_and_on(), self._live()):
                self._tell("an invariant is violated")
                self.verdict.violations += str(violation).splitlines()
        self._close()
        return self.verdict

    def _close(self) -> None:
        verdict = self.verdict
        verdict.acknowledged = sum(map(len, self._history.acknowledged.values()))
        verdict.reads, verdict.checks = self._history.reads, self._invariants.checks
        digest = hashlib.sha256("\n".join(verdict.story).encode())
        for topic_partition in PARTITIONS:
            for broker_id in self._cluster.machines:
                found = replica(self._cluster, broker_id, topic_partition)
                if found is not None:
                    digest.update(content(found.log, found.log.log_start_offset, found.log.log_end_offset))
        verdict.fingerprint = digest.hexdigest()[:16]

    async def _check_on_and_on(self) -> None:
        while True:
            self._check()
            await asyncio.sleep(CHECK_S)

    def _check(self) -> None:
        self._invariants.check()
        failures = [line for writer in self._writers for line in writer.failures] + self._accidents.failures
        if failures:
            raise InvariantViolated("\n".join(failures))

    # -- the story

    async def _live(self) -> None:
        self._tell(f"network {self._cluster.network.latency_s} s, store {self._cluster.store_state.latency_s} s")
        await self._cluster.start_all()
        await self._admin.create_topic(
            TOPIC,
            partitions=len(PARTITIONS),
            replication_factor=3,
            settings={"min.insync.replicas": "2", "segment.ms": str(self._one_of(SEGMENTS_MS))},
        )
        writing = [start(writer.run(PARTITIONS, lambda: self._is_over)) for writer in self._writers]
        reading = start(self._reader.run(PARTITIONS))
        await self._suffer()
        self._accidents.repair_all()
        self._is_over = True
        await self._settle(writing)
        self._invariants.check_settled()
        reading.cancel()

    async def _suffer(self) -> None:
        now = self._cluster.clock.monotonic
        end = now() + TROUBLED_S
        while now() < end:
            await asyncio.sleep(self._randomness.below(self._one_of(LONGEST_PAUSES_MS)) / 1000)
            if self._randomness.below(CREATE_ONE_IN) == 0:
                self._tasks[start(self._create_topic(is_to_go=self._randomness.below(2) == 0))] = None
            await self._accidents.next()

    async def _create_topic(self, *, is_to_go: bool) -> None:
        self._topics += 1
        name = f"extra-{self._topics}"
        self._tell(f"create topic {name}")
        try:
            await self._admin.create_topic(
                name, partitions=1, replication_factor=3, settings={"min.insync.replicas": "2"}
            )
            if is_to_go:
                self._tell(f"delete topic {name}")
                await self._admin.delete_topic(name)
                self._tell(f"topic {name} is deleted")
        except ClientErrors as error:
            self._tell(f"topic {name} could not be created or deleted in time: {error}")

    async def _settle(self, writing: list["asyncio.Task[None]"]) -> None:
        now = self._cluster.clock.monotonic
        deadline = now() + PATIENCE_S
        while not self._is_settled(writing):
            if now() > deadline:
                self._report_unsettled(writing)
            await asyncio.sleep(CHECK_S)
            self._accidents.repair_late()
        self._tell("settled")

    def _is_settled(self, writing: list["asyncio.Task[None]"]) -> bool:
        return (
            self._accidents.is_all_well
            and all(task.done() for task in writing)
            and self._invariants.is_settled()
            and self._has_read_all()
        )

    def _has_read_all(self) -> bool:
        return all(self._reader.positions.get(each, 0) >= self._history.ends[each] for each in PARTITIONS)

    def _report_unsettled(self, writing: list["asyncio.Task[None]"]) -> None:
        self._invariants.check_settled()
        waiting = [f"I7 a writer still waits: {task}" for task in writing if not task.done()]
        if not self._has_read_all():
            waiting.append(f"I7 the reader stands at {self._reader.positions} of {dict(self._history.ends)}")
        raise InvariantViolated("\n".join(waiting or [f"I7 troubles last: {self._accidents.troubles}"]))


def run_seed(seed: int) -> Verdict:
    async def main() -> Verdict:
        return await Chaos(seed).run()

    return run_simulation(main())
