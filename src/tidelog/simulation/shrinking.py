"""Shrinking of failing seeds: removes faults as long as an invariant is still violated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidelog.simulation.chaos import Verdict, run_events
from tidelog.simulation.fault_schedule import draw_schedule
from tidelog.simulation.swarm import draw_config

MAX_RUNS = 150


@dataclass(slots=True)
class Shrunk:
    verdict: Verdict
    kept: tuple[int, ...]
    duration_s: float

    @property
    def command(self) -> str:
        only = ",".join(map(str, self.kept))
        return f"tidelog simulate --seed {self.verdict.seed} --only {only or 0} --duration {self.duration_s:g}"


def shrink(
    verdict: Verdict, duration_s: float | None, report: Callable[[str], None], max_runs: int = MAX_RUNS
) -> Shrunk:
    """Remove whole kinds of faults, then smaller and smaller parts, then the time after the last fault."""
    config = draw_config(verdict.seed)
    found = Shrunk(verdict, tuple(verdict.applied), config.fault_duration_s if duration_s is None else duration_s)
    shrinking = _Shrinking(found, report, max_runs)
    kinds = {event.number: event.kind for event in draw_schedule(config)}
    for kind in sorted(set(kinds.values())):
        shrinking.try_without([number for number in found.kept if kinds[number] == kind])
    size = max(len(found.kept) // 2, 1)
    while True:
        for start in range(0, len(found.kept), size):
            shrinking.try_without(found.kept[start : start + size])
        if size == 1:
            break
        size //= 2
    times = [event.at_s for event in draw_schedule(config) if event.number in found.kept]
    shrinking.try_duration(max(times, default=0.0) + 1.0)
    return found


class _Shrinking:
    def __init__(self, found: Shrunk, report: Callable[[str], None], max_runs: int) -> None:
        self._most_runs = max_runs
        self._found = found
        self._report = report
        self._runs = 0

    def try_without(self, numbers: Sequence[int]) -> None:
        kept = tuple(number for number in self._found.kept if number not in numbers)
        if len(kept) < len(self._found.kept):
            self._try(kept, self._found.duration_s)

    def try_duration(self, duration_s: float) -> None:
        if duration_s < self._found.duration_s:
            self._try(self._found.kept, duration_s)

    def _try(self, kept: tuple[int, ...], duration_s: float) -> None:
        if self._runs == self._most_runs:
            return
        self._runs += 1
        verdict = run_events(self._found.verdict.seed, frozenset(kept), duration_s)
        if not verdict.is_good:
            self._found.verdict, self._found.kept, self._found.duration_s = verdict, kept, duration_s
            self._report(f"run {self._runs}: still violated with {len(kept)} faults")
