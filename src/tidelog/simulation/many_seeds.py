"""Many simulated runs: seeds spread over processes, and how fast they go."""

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context
from typing import NamedTuple

from tidelog.simulation import chaos, exactly_once
from tidelog.simulation.chaos import Verdict

AHEAD = 4
"""Seeds that are handed to each process before it has finished the one it runs."""
SHOW_EVERY_S = 30.0


class Finding(NamedTuple):
    """The outcome of one seed, as far as a summary needs it."""

    seed: int
    violations: list[str]
    faults: int
    simulated_s: float
    processor_s: float


class Progress:
    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._began = self._shown = time.monotonic()
        self._done = self._violated = self._faults = 0
        self._simulated_s = self._processor_s = 0.0

    def add(self, finding: Finding) -> None:
        self._done += 1
        self._violated += bool(finding.violations)
        self._faults += finding.faults
        self._simulated_s += finding.simulated_s
        self._processor_s += finding.processor_s

    def show(self) -> None:
        """On a terminal the line is renewed after every seed; elsewhere it is added to the others now and then."""
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{self.line}")
        elif time.monotonic() - self._shown >= SHOW_EVERY_S:
            self._shown = time.monotonic()
            sys.stderr.write(f"{self.line}\n")
        sys.stderr.flush()

    def end(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\n")

    @property
    def line(self) -> str:
        took_s = max(time.monotonic() - self._began, 1e-9)
        return (
            f"{self._done} of {self._seeds} seeds, {self._violated} violated; {self._faults} faults,"
            f" {self._simulated_s:.0f} simulated s in {took_s:.0f} s: {self._done / took_s:.2f} seeds/s,"
            f" {self._simulated_s / max(self._processor_s, 1e-9):.0f} simulated s per processor s"
        )


def run_many(seeds: Sequence[int], processes: int, *, exactly_once: bool = False) -> Iterator[Finding]:
    """In the order in which they end."""
    if processes == 1:
        for seed in seeds:
            yield run_one(seed, exactly_once)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_be_quiet) as pool:
        rest = iter(seeds)
        pending: set[Future[Finding]] = set()
        while True:
            for seed in islice(rest, processes * AHEAD - len(pending)):
                pending.add(pool.submit(run_one, seed, exactly_once))
            if not pending:
                return
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def run_one(seed: int, is_exactly_once: bool) -> Finding:
    began = time.process_time()
    try:
        verdict = exactly_once.run_seed(seed) if is_exactly_once else chaos.run_seed(seed)
    except Exception as error:  # noqa: BLE001 - the other seeds are to be run whatever this one does
        verdict = Verdict(seed, [f"the run failed: {error!r}"])
    return Finding(seed, verdict.violations, len(verdict.applied), verdict.simulated_s, time.process_time() - began)


def _be_quiet() -> None:
    logging.basicConfig(level=logging.CRITICAL)
