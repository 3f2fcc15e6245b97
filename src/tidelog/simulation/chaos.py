"""Simulated run of one seed: client work, fault injection, repair, and the verdict on all invariants."""

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
from tidelog.simulation.event_log import EventLog
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

SETTLE_TIMEOUT_S = 180.0
"""Time in which the cluster settles after the repair: sessions, backoffs and client timeouts may follow each other."""
CHECK_S = 0.1
LEADER_CHECK_S = 5
WHOLE_CHECK_ROUNDS = 50
"""Rounds between two checks of the whole cluster. Changes are checked when they happen."""


@dataclass(slots=True)
class Verdict:
    seed: int
    violations: list[str] = field(default_factory=list)
    event_log: list[str] = field(default_factory=list)
    applied: list[int] = field(default_factory=list)
    """Numbers of the applied faults."""
    acknowledged: int = 0
    reads: int = 0
    checks: int = 0
    simulated_s: float = 0.0
    fingerprint: str = ""
    """Hash of the event log and of all records: equal for equal runs."""
    digest: str = ""
    """Text of `RunDigest`; empty if it was not requested."""

    @property
    def is_good(self) -> bool:
        return not self.violations

    @property
    def summary(self) -> str:
        figures = f"faults={len(self.applied)} acknowledged={self.acknowledged} reads={self.reads} checks={self.checks}"
        return f"seed={self.seed} {figures} fingerprint={self.fingerprint} {'held' if self.is_good else 'VIOLATED'}"


async def until_violated(checks: Coroutine[Any, Any, None], run: Coroutine[Any, Any, None]) -> list[Exception]:
    """Run both until one ends. Returns violated invariants; any other exception is raised."""
    tasks = [start(checks), start(run)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    violations: list[Exception] = []
    for task in tasks:
        if task.done() and (error := task.exception()) is not None:
            if not isinstance(error, InvariantViolated):
                raise error
            violations.append(error)
    return violations


class Chaos:
    """One run: work and faults for some time, then repair, until the cluster is settled or an invariant violated."""

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
        self._event_log = EventLog(self._cluster, self.verdict.event_log)
        self._supervisor = Supervisor(self._cluster, self._event_log.log_event)
        self._faults = FaultInjector(
            self._cluster, self._supervisor, config, self._latencies, self._event_log.log_event
        )
        self._work = Workload(
            self._cluster,
            self._history,
            SeededRandomness(config.seed * 7919 + 5),
            kinds_of(config),
            self._event_log.log_event,
            topic_settings=_topic_settings(config),
            longest_pause_ms=config.write_pause_ms,
            run_s=config.fault_duration_s,
        )
        self._is_over = False

    async def run(self) -> Verdict:
        with self._invariants.watching():
            for violation in await until_violated(self._check_repeatedly(), self._run_and_settle()):
                self.verdict.violations += str(violation).splitlines()
                self._event_log.log_violations(self.verdict.violations)
        self._complete_verdict()
        return self.verdict

    def _complete_verdict(self) -> None:
        verdict = self.verdict
        verdict.acknowledged = sum(map(len, self._history.acknowledged.values()))
        verdict.reads, verdict.checks = self._history.reads, self._invariants.replicas.events
        verdict.applied = self._faults.applied
        verdict.simulated_s = self._cluster.clock.monotonic()
        verdict.digest = "" if self._digest is None else self._digest.text()
        digest = hashlib.sha256("\n".join(verdict.event_log).encode())
        for topic_partition, _ in stored_partitions(self._cluster.store_state):
            for broker_id in self._cluster.machines:
                found = replica(self._cluster, broker_id, topic_partition)
                if found is not None:
                    digest.update(content(found.log, found.log.log_start_offset, found.log.log_end_offset))
        verdict.fingerprint = digest.hexdigest()[:16]

    async def _check_repeatedly(self) -> None:
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

    async def _run_and_settle(self) -> None:
        self._event_log.log_event(self._config.summary)
        await self._supervisor.start_all()
        await self._work.prepare()
        working = start(self._work.run(lambda: self._is_over))
        await self._inject_faults()
        self._faults.repair_all()
        self._is_over = True
        settling = start(self._work.settle())
        await self._settle()
        self._invariants.check_settled()
        self._check(is_whole=False)
        await asyncio.wait([working, settling])

    async def _inject_faults(self) -> None:
        begin = self._cluster.clock.monotonic()
        for event in self._schedule:
            await asyncio.sleep(begin + event.at_s - self._cluster.clock.monotonic())
            self._faults.apply(event)
        await asyncio.sleep(begin + self._config.fault_duration_s - self._cluster.clock.monotonic())

    async def _settle(self) -> None:
        now = self._cluster.clock.monotonic
        deadline = now() + SETTLE_TIMEOUT_S
        while not self._is_settled():
            if now() > deadline:
                self._report_unsettled()
            await asyncio.sleep(CHECK_S)
            self._supervisor.recover_all()
        self._event_log.log_event("settled")

    def _is_settled(self) -> bool:
        return self._supervisor.is_all_healthy and self._work.is_settled() and self._invariants.is_settled()

    def _report_unsettled(self) -> None:
        unsettled = self._work.unsettled()
        if not unsettled:
            self._invariants.check_settled()
        raise InvariantViolated("\n".join(unsettled or [f"I7 brokers do not recover: {self._supervisor.states}"]))


def kinds_of(config: SwarmConfig) -> frozenset[str]:
    """Kinds of work of the run; only writing if the configuration has none."""
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
        has_racks=config.reads_followers,
        replica_lag_time_max_ms=config.lag_limit_ms,
        replica_fetch_wait_max_ms=config.lag_limit_ms // 2,  # idle followers fetch as rarely as possible
        log_dirs=LOG_DIRECTORIES[: config.log_directories],
        auto_leader_rebalance_enable=config.balances_leaders,
        leader_imbalance_check_interval_seconds=LEADER_CHECK_S,
        leader_imbalance_per_broker_percentage=0,
        **config.storage.broker_settings() | broker_settings(kinds_of(config)),
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
    """Run a seed with the kinds of work that it draws, or with these."""
    config = draw_config(seed)
    if work is not None:
        config = replace(config, work=work)
    return run_config(config, draw_schedule(config))


def run_config(config: SwarmConfig, schedule: Sequence[FaultEvent], *, with_digest: bool = False) -> Verdict:
    async def main() -> Verdict:
        return await Chaos(config, schedule, with_digest=with_digest).run()

    was_collecting = gc.isenabled()
    gc.disable()  # a run is short; its garbage is collected at the end
    try:
        return run_simulation(main())
    finally:
        if was_collecting:
            gc.enable()


def run_events(
    seed: int, only: Collection[int] | None = None, duration_s: float | None = None, *, with_digest: bool = False
) -> Verdict:
    """Run a seed, optionally with a subset of its faults or a shorter duration."""
    config = draw_config(seed)
    schedule = [event for event in draw_schedule(config) if only is None or event.number in only]
    if duration_s is not None:
        schedule = [event for event in schedule if event.at_s < duration_s]
        config = replace(config, fault_duration_s=duration_s)
    return run_config(config, schedule, with_digest=with_digest)
