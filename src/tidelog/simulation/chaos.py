"""One seed, one story: clients that write and read, accidents, repair, and the verdict whether all held."""

import asyncio
import hashlib
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.accidents import Accidents
from tidelog.simulation.clients import start
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.history import History
from tidelog.simulation.invariants import Invariants, InvariantViolated
from tidelog.simulation.looking import content, replica, stored_partitions
from tidelog.simulation.processes import run_simulation
from tidelog.simulation.workload import KINDS, Workload, broker_settings

T = TypeVar("T")

ALWAYS = ("writes", "rewinding_reads")
TROUBLED_S = 40.0
PATIENCE_S = 180.0
"""After the repair: sessions, back-offs and timeouts of the clients end one after the other."""
CHECK_S = 0.1
WHOLE_CHECK_ROUNDS = 20
"""Every change is checked when it happens; so many rounds later, everything as a whole."""
LONGEST_PAUSES_MS = (20, 300, 2000, 2000)
"""Accidents come alone, or one upon the other."""
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
    def __init__(self, seed: int, kinds: frozenset[str] | None = None) -> None:
        self.verdict = Verdict(seed)
        self._seed = seed
        self._randomness = SeededRandomness(seed)
        self.kinds = self._some_kinds() if kinds is None else kinds
        self._cluster = SimulatedCluster(
            3, seed=seed, replica_lag_time_max_ms=self._one_of(LAG_LIMITS_MS), **broker_settings(self.kinds)
        )
        self._cluster.network.latency_s = self._one_of(LATENCIES_S)
        self._cluster.store_state.latency_s = self._one_of(STORE_LATENCIES_S)
        self._history = History()
        self._invariants = Invariants(self._cluster, self._history)
        self._accidents = Accidents(self._cluster, self._randomness, self._tell)
        randomness = SeededRandomness(self._randomness.below(1 << 30))
        self._workload = Workload(self._cluster, self._history, randomness, self.kinds, self._tell)
        self._is_over = False

    def _some_kinds(self) -> frozenset[str]:
        """Each seed switches others on, so that rare combinations meet."""
        return frozenset(kind for kind in KINDS if kind in ALWAYS or self._randomness.below(3) == 0)

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
        verdict.reads, verdict.checks = self._history.reads, self._invariants.replicas.events
        digest = hashlib.sha256("\n".join(verdict.story).encode())
        for topic_partition, _ in stored_partitions(self._cluster.store_state):
            for broker_id in self._cluster.machines:
                found = replica(self._cluster, broker_id, topic_partition)
                if found is not None:
                    digest.update(content(found.log, found.log.log_start_offset, found.log.log_end_offset))
        verdict.fingerprint = digest.hexdigest()[:16]

    async def _check_on_and_on(self) -> None:
        rounds = 0
        while True:
            self._check(is_whole=rounds % WHOLE_CHECK_ROUNDS == 0)
            rounds += 1
            await asyncio.sleep(CHECK_S)

    def _check(self, *, is_whole: bool) -> None:
        if is_whole:
            self._invariants.check()
        else:
            self._invariants.check_noted()
        failures = self._workload.violations() + self._accidents.failures
        if failures:
            raise InvariantViolated("\n".join(failures))

    # -- the story

    async def _live(self) -> None:
        self._tell(f"network {self._cluster.network.latency_s} s, store {self._cluster.store_state.latency_s} s")
        self._tell(f"work {sorted(self.kinds)}")
        await self._cluster.start_all()
        await self._workload.prepare()
        start(self._workload.run(lambda: self._is_over))
        await self._suffer()
        self._accidents.repair_all()
        self._is_over = True
        start(self._workload.settle())
        await self._settle()
        self._invariants.check_settled()
        self._check(is_whole=False)

    async def _suffer(self) -> None:
        now = self._cluster.clock.monotonic
        end = now() + TROUBLED_S
        while now() < end:
            await asyncio.sleep(self._randomness.below(self._one_of(LONGEST_PAUSES_MS)) / 1000)
            await self._accidents.next()

    async def _settle(self) -> None:
        now = self._cluster.clock.monotonic
        deadline = now() + PATIENCE_S
        while not self._is_settled():
            if now() > deadline:
                self._report_unsettled()
            await asyncio.sleep(CHECK_S)
            self._accidents.repair_late()
        self._tell("settled")

    def _is_settled(self) -> bool:
        return self._accidents.is_all_well and self._workload.is_settled() and self._invariants.is_settled()

    def _report_unsettled(self) -> None:
        unsettled = self._workload.unsettled()
        if not unsettled:
            self._invariants.check_settled()
        raise InvariantViolated("\n".join(unsettled or [f"I7 troubles last: {self._accidents.troubles}"]))


def run_seed(seed: int, kinds: frozenset[str] | None = None) -> Verdict:
    async def main() -> Verdict:
        return await Chaos(seed, kinds).run()

    return run_simulation(main())
