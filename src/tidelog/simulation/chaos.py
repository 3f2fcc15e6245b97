"""One simulated run of a seed: clients that work, faults, repair, and the verdict whether all invariants held."""

import asyncio
import gc
import hashlib
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.workers import SimulatedWorkers
from tidelog.simulation.clients import start
from tidelog.simulation.cluster import LOG_DIRECTORIES, SimulatedCluster
from tidelog.simulation.digest import RunDigest
from tidelog.simulation.event_log import Story
from tidelog.simulation.fault_schedule import FaultEvent, draw_schedule
from tidelog.simulation.faults import FaultInjector
from tidelog.simulation.history import History
from tidelog.simulation.inspection import content, replica, stored_partitions
from tidelog.simulation.invariants import Invariants, InvariantViolated
from tidelog.simulation.latency import Latencies
from tidelog.simulation.processes import run_simulation
from tidelog.simulation.supervisor import Supervisor
from tidelog.simulation.swarm import SwarmConfig, draw_config
from tidelog.simulation.work.writing import PatientWrites
from tidelog.simulation.workload import Workload, broker_settings

T = TypeVar("T")

PATIENCE_S = 180.0
"""After the repair: sessions, back-offs and timeouts of the clients end one after the other."""
CHECK_S = 0.1
LEADER_CHECK_S = 5
WHOLE_CHECK_ROUNDS = 50
"""Every change is checked when it happens; so many rounds later, everything as a whole."""


@dataclass(slots=True)
class Verdict:
    seed: int
    violations: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    applied: list[int] = field(default_factory=list)
    """The numbers of the faults that struck."""
    acknowledged: int = 0
    reads: int = 0
    checks: int = 0
    simulated_s: float = 0.0
    fingerprint: str = ""
    """Of the story and of all records: equal if two runs were equal."""
    digest: str = ""
    """What `RunDigest` tells, where it was asked for."""

    @property
    def is_good(self) -> bool:
        return not self.violations

    @property
    def summary(self) -> str:
        told = f"faults={len(self.applied)} acknowledged={self.acknowledged} reads={self.reads} checks={self.checks}"
        return f"seed={self.seed} {told} fingerprint={self.fingerprint} {'held' if self.is_good else 'VIOLATED'}"


async def until_violated(checking: Coroutine[Any, Any, None], living: Coroutine[Any, Any, None]) -> list[Exception]:
    """Until the run has ended, or a check; whatever else than a violated invariant ends them is raised."""
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
    def __init__(self, config: SwarmConfig, schedule: Sequence[FaultEvent], *, with_digest: bool = False) -> None:
        self.verdict = Verdict(config.seed)
        self._config = config
        self._schedule = schedule
        self._cluster = _cluster_of(config)
        self._digest = RunDigest(self._cluster) if with_digest else None
        self._latencies = Latencies(SeededRandomness(config.seed * 7919 + 3), config.latency_s, config.store_latency_s)
        if "latency" in config.conditions or "slow_store" in config.faults:
            self._cluster.network.draw_latencies(self._latencies.of_link)
            self._cluster.store_state.draw_latency_s = self._latencies.of_store
        self._history = History()
        self._invariants = Invariants(self._cluster, self._history)
        self._story = Story(self._cluster, self.verdict.story)
        self._supervisor = Supervisor(self._cluster, self._story.tell)
        self._faults = FaultInjector(self._cluster, self._supervisor, config, self._latencies, self._story.tell)
        self._work = Workload(
            self._cluster,
            self._history,
            SeededRandomness(config.seed * 7919 + 5),
            kinds_of(config),
            self._story.tell,
            topic_settings=_topic_settings(config),
            longest_pause_ms=config.write_pause_ms,
            run_s=config.troubled_s,
        )
        self._is_over = False

    async def run(self) -> Verdict:
        with self._invariants.watching():
            for violation in await until_violated(self._check_on_and_on(), self._live()):
                self.verdict.violations += str(violation).splitlines()
                self._story.tell_violation(self.verdict.violations)
        self._close()
        return self.verdict

    def _close(self) -> None:
        verdict = self.verdict
        verdict.acknowledged = sum(map(len, self._history.acknowledged.values()))
        verdict.reads, verdict.checks = self._history.reads, self._invariants.replicas.events
        verdict.applied = self._faults.applied
        verdict.simulated_s = self._cluster.clock.monotonic()
        verdict.digest = "" if self._digest is None else self._digest.told()
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
        failures = self._work.violations() + self._supervisor.failures
        if failures:
            raise InvariantViolated("\n".join(failures))

    async def _live(self) -> None:
        self._story.tell(self._config.told)
        await self._supervisor.start_all()
        await self._work.prepare()
        working = start(self._work.run(lambda: self._is_over))
        await self._suffer()
        self._faults.repair_all()
        self._is_over = True
        settling = start(self._work.settle())
        await self._settle()
        self._invariants.check_settled()
        self._check(is_whole=False)
        await asyncio.wait([working, settling])

    async def _suffer(self) -> None:
        begin = self._cluster.clock.monotonic()
        for event in self._schedule:
            await asyncio.sleep(begin + event.at_s - self._cluster.clock.monotonic())
            self._faults.apply(event)
        await asyncio.sleep(begin + self._config.troubled_s - self._cluster.clock.monotonic())

    async def _settle(self) -> None:
        now = self._cluster.clock.monotonic
        deadline = now() + PATIENCE_S
        while not self._is_settled():
            if now() > deadline:
                self._report_unsettled()
            await asyncio.sleep(CHECK_S)
            self._supervisor.bring_all_up()
        self._story.tell("settled")

    def _is_settled(self) -> bool:
        return self._supervisor.is_all_well and self._work.is_settled() and self._invariants.is_settled()

    def _report_unsettled(self) -> None:
        unsettled = self._work.unsettled()
        if not unsettled:
            self._invariants.check_settled()
        raise InvariantViolated("\n".join(unsettled or [f"I7 brokers do not recover: {self._supervisor.states}"]))


def kinds_of(config: SwarmConfig) -> frozenset[str]:
    """Somebody writes in any case."""
    return config.work or frozenset({PatientWrites.name})


def _topic_settings(config: SwarmConfig) -> dict[str, str]:
    settings = {"segment.ms": str(config.segment_ms)}
    if config.flush_messages is not None:
        settings["flush.messages"] = str(config.flush_messages)
    return settings


def _cluster_of(config: SwarmConfig) -> SimulatedCluster:
    cluster = SimulatedCluster(
        config.brokers,
        seed=config.seed,
        replica_lag_time_max_ms=config.lag_limit_ms,
        replica_fetch_wait_max_ms=config.lag_limit_ms // 2,  # idle followers ask no more often than they must
        log_dirs=LOG_DIRECTORIES[: config.log_directories],
        auto_leader_rebalance_enable=config.balances_leaders,
        leader_imbalance_check_interval_seconds=LEADER_CHECK_S,
        leader_imbalance_per_broker_percentage=0,
        **broker_settings(kinds_of(config)),
    )
    cluster.network.latency_s = config.latency_s
    cluster.store_state.latency_s = config.store_latency_s
    for machine, offset_ms in zip(cluster.machines.values(), config.clock_offsets_ms, strict=True):
        machine.clock.offset_ms = offset_ms
        if config.longest_worker_delay_s:
            randomness = SeededRandomness(config.seed * 7919 + 100 + machine.broker_id)
            machine.workers = SimulatedWorkers(randomness, config.longest_worker_delay_s)
    return cluster


def run_seed(seed: int, work: frozenset[str] | None = None) -> Verdict:
    """With the kinds of work that the seed draws, or with these."""
    config = draw_config(seed)
    if work is not None:
        config = replace(config, work=work)
    return run_config(config, draw_schedule(config))


def run_config(config: SwarmConfig, schedule: Sequence[FaultEvent], *, with_digest: bool = False) -> Verdict:
    async def main() -> Verdict:
        return await Chaos(config, schedule, with_digest=with_digest).run()

    was_collecting = gc.isenabled()
    gc.disable()  # a run is short, and what it leaves is collected at once in the end
    try:
        return run_simulation(main())
    finally:
        if was_collecting:
            gc.enable()


def run_events(
    seed: int, only: Collection[int] | None = None, duration_s: float | None = None, *, with_digest: bool = False
) -> Verdict:
    """A seed, perhaps with only some of its faults, or for a shorter time."""
    config = draw_config(seed)
    schedule = [event for event in draw_schedule(config) if only is None or event.number in only]
    if duration_s is not None:
        schedule = [event for event in schedule if event.at_s < duration_s]
        config = replace(config, troubled_s=duration_s)
    return run_config(config, schedule, with_digest=with_digest)
