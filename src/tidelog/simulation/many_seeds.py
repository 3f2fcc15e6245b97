"""Parallel simulated runs: seeds distributed over processes, with progress and throughput."""

import logging
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context
from shutil import get_terminal_size
from typing import NamedTuple

from tidelog.simulation import chaos, exactly_once
from tidelog.simulation.chaos import Verdict
from tidelog.terminal.quantities import duration_text

AHEAD = 4
"""Seeds queued per process while it runs another one."""
SHOW_EVERY_S = 30.0
CLEAR_TO_THE_END = "\x1b[K"


class Finding(NamedTuple):
    """Outcome of one seed for the summary."""

    seed: int
    violations: list[str]
    faults: int
    simulated_s: float
    processor_s: float


class Progress:
    """Progress counters, shown on stderr."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._seeds = len(seeds)
        self._missing = dict.fromkeys(seeds)
        self._began = self._shown = time.monotonic()
        self._done = self._violated = self._faults = 0
        self._simulated_s = self._processor_s = 0.0

    def add(self, finding: Finding) -> None:
        self._missing.pop(finding.seed, None)
        self._done += 1
        self._violated += bool(finding.violations)
        self._faults += finding.faults
        self._simulated_s += finding.simulated_s
        self._processor_s += finding.processor_s

    def show(self) -> None:
        """On a terminal, update one line after every seed; elsewhere, add a line at intervals."""
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{self.short_line[: get_terminal_size().columns - 1]}{CLEAR_TO_THE_END}")
        elif time.monotonic() - self._shown >= SHOW_EVERY_S:
            self._shown = time.monotonic()
            sys.stderr.write(f"{self.line}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Clear the progress line, before other output."""
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{CLEAR_TO_THE_END}")
            sys.stderr.flush()

    @property
    def first_missing(self) -> int | None:
        """The first seed that is not done. Seeds may finish out of order; all before this one are done."""
        return next(iter(self._missing), None)

    @property
    def short_line(self) -> str:
        seeds_per_s = self._done / max(time.monotonic() - self._began, 1e-9)
        left_s = (self._seeds - self._done) / max(seeds_per_s, 1e-9)
        return (
            f"{self._done} of {self._seeds} seeds ({self._done * 100 // self._seeds} %), {self._violated} violated,"
            f" {seeds_per_s:.2f} seeds/s, {duration_text(left_s)} left"
        )

    @property
    def line(self) -> str:
        took_s = max(time.monotonic() - self._began, 1e-9)
        return (
            f"{self._done} of {self._seeds} seeds, {self._violated} violated; {self._faults} faults,"
            f" {self._simulated_s:.0f} simulated s in {took_s:.0f} s: {self._done / took_s:.2f} seeds/s,"
            f" {self._processor_s / max(self._done, 1):.2f} processor s for each,"
            f" {self._simulated_s / max(self._processor_s, 1e-9):.0f} simulated s per processor s"
        )


def run_many(seeds: Sequence[int], processes: int, *, exactly_once: bool = False) -> Iterator[Finding]:
    """Findings in order of completion."""
    if processes == 1:
        for seed in seeds:
            yield run_one(seed, exactly_once)
        return
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_initialize_process)
    try:
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
    finally:
        pool.shutdown(cancel_futures=True)  # after an interrupt, wait only for running seeds


def run_one(seed: int, is_exactly_once: bool) -> Finding:
    began = time.process_time()
    try:
        verdict = exactly_once.run_seed(seed) if is_exactly_once else chaos.run_seed(seed)
    except Exception as error:  # noqa: BLE001 - a failed seed must not stop the others
        verdict = Verdict(seed, [f"the run failed: {error!r}"])
    return Finding(seed, verdict.violations, len(verdict.applied), verdict.simulated_s, time.process_time() - began)


def _initialize_process() -> None:
    """Initializer of pool processes. Only the parent process handles Ctrl-C."""
    logging.basicConfig(level=logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
