"""Workload of one simulation: all enabled kinds of client work, run concurrently, settled and checked."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.clients import MAX_PAUSE_MS
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.coordinator_audit import differences
from tidelog.simulation.history import History
from tidelog.simulation.judges import judge
from tidelog.simulation.work.base import Work, WorkContext
from tidelog.simulation.work.cleaning import Compaction, Retention
from tidelog.simulation.work.copying import Copying
from tidelog.simulation.work.deleting import RecreatedTopic
from tidelog.simulation.work.disk_moves import DiskMoves
from tidelog.simulation.work.groups import ClassicGroup, ConsumerGroup
from tidelog.simulation.work.operating import (
    AddedPartitions,
    ChangedSettings,
    DeletedRecords,
    PreferredElections,
    UncleanElections,
)
from tidelog.simulation.work.pipelining import PipelinedTransactions, PipelinedWrites
from tidelog.simulation.work.reading import FinalReads, RewindingReads
from tidelog.simulation.work.reassigning import Reassignments
from tidelog.simulation.work.throttling import Throttles
from tidelog.simulation.work.transacting import Transactions
from tidelog.simulation.work.writing import ImpatientWrites, OneShotWrites, PatientWrites

WORKS: Mapping[str, type[Work]] = {
    work.name: work
    for work in (
        PatientWrites,
        ImpatientWrites,
        OneShotWrites,
        RewindingReads,
        Transactions,
        RecreatedTopic,
        AddedPartitions,
        ChangedSettings,
        DeletedRecords,
        PreferredElections,
        UncleanElections,
        Compaction,
        Retention,
        ClassicGroup,
        ConsumerGroup,
        Copying,
        Reassignments,
        Throttles,
        DiskMoves,
        PipelinedWrites,
        PipelinedTransactions,
    )
}
LONG_RUN_S = 60.0
KINDS = tuple(WORKS)
"""All kinds of work by name."""


def broker_settings(kinds: Iterable[str]) -> dict[str, object]:
    """Broker settings required by these kinds of work."""
    settings: dict[str, object] = {}
    for kind in KINDS:
        if kind in kinds:
            settings |= WORKS[kind].broker_settings
    return settings


class Workload:
    """`prepare` before any fault, `run` with them, `settle` after their repair; then `violations` has the verdict."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        history: History,
        randomness: SeededRandomness,
        kinds: frozenset[str],
        log: Callable[[str], None],
        *,
        topic_settings: Mapping[str, str] | None = None,
        longest_pause_ms: int = MAX_PAUSE_MS,
        run_s: float = LONG_RUN_S,
    ) -> None:
        """`topic_settings` apply to topics without their own settings; pauses are those of writers."""
        assert kinds <= set(KINDS), f"there is no work of kind {sorted(kinds - set(KINDS))}"
        self._cluster = cluster
        self._history = history
        context = WorkContext(cluster, history, randomness, log, topic_settings or {}, longest_pause_ms, run_s)
        self._works = [WORKS[kind](context) for kind in KINDS if kind in kinds]
        self._final = FinalReads(context)
        self._is_prepared = self._is_run = self._is_settled = False
        self._failures: list[str] = []
        self._verdict: list[str] = []

    async def prepare(self) -> None:
        """Create the topics."""
        self._is_prepared = True
        await self._each("prepare", ((work, work.prepare()) for work in self._works))

    async def run(self, until: Callable[[], bool]) -> None:
        if not self._is_prepared:
            await self.prepare()
        await self._each("run", ((work, work.run(until)) for work in self._works))
        self._is_run = True

    async def settle(self) -> None:
        """Let clients finish, read everything, and check. Waits without limit: the caller has a timeout."""
        while not self._is_run:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await self._each("settle", ((work, work.settle()) for work in self._works))
        await self._each("settle", [(self._final, self._final.settle())])
        self._verdict = [*judge(self._history), *differences(self._cluster)]
        self._is_settled = True

    async def _each(self, verb: str, works: Iterable[tuple[Work, Coroutine[Any, Any, None]]]) -> None:
        await asyncio.gather(*(self._guard(f"{verb} {work.name}", step) for work, step in works))

    async def _guard(self, what: str, step: Coroutine[Any, Any, None]) -> None:
        """An unexpected exception is recorded: it is a violation, or a bug of the work."""
        try:
            await step
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001
            self._failures.append(f"work failed: {what}: {error!r}")

    def is_settled(self) -> bool:
        return self._is_settled

    def unsettled(self) -> list[str]:
        """Reasons why the workload is not settled."""
        if self._is_settled:
            return []
        return [line for work in (*self._works, self._final) for line in work.unsettled()]

    def violations(self) -> list[str]:
        """Violations so far; after `settle`, of the whole history."""
        noted = [line for work in self._works for line in work.violations()]
        return [*self._failures, *noted, *self._verdict]
