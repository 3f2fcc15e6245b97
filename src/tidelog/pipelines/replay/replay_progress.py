"""Progress output of a replay: a redrawn line in a terminal, a line every few seconds elsewhere."""

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TextIO

from tidelog.terminal.live_display import CLEAR_LINE
from tidelog.terminal.periodic import periodically

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

POLL_S = 0.5
PLAIN_LINE_EVERY_S = 10.0
JOB_GROUP = "tidelog-replay"


class Parts(NamedTuple):
    done: int
    all: int


def line_of(name: str, records: int, parts: Parts, elapsed_s: float) -> str:
    """`orders: 3 of 8 parts done (37 %), of 7,654,321 records, 0:12 so far`"""
    percent = 100 * parts.done // parts.all if parts.all else 0
    minutes, seconds = divmod(int(elapsed_s), 60)
    done = f"{parts.done} of {parts.all} parts done ({percent} %)" if parts.all else "planning"
    return f"{name}: {done}, of {records:,} record{'' if records == 1 else 's'}, {minutes}:{seconds:02} so far"


class ProgressPrinter:
    """Prints the progress line: redrawn in a terminal, every ten seconds elsewhere."""

    def __init__(self, name: str, records: int, output: TextIO) -> None:
        self._name = name
        self._records = records
        self._output = output
        self._is_terminal = output.isatty()
        self._printed_s = 0.0

    def update(self, parts: Parts, elapsed_s: float) -> None:
        line = line_of(self._name, self._records, parts, elapsed_s)
        if self._is_terminal:
            self._write(f"\r{line}{CLEAR_LINE}")
        elif elapsed_s - self._printed_s >= PLAIN_LINE_EVERY_S:
            self._printed_s = elapsed_s
            self._write(f"{line}\n")

    def end(self) -> None:
        if self._is_terminal:
            self._write(f"\r{CLEAR_LINE}")

    def _write(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()


@contextmanager
def progress_shown(spark: "SparkSession", name: str, records: int) -> Generator[None]:
    """Shows the progress of the Spark jobs that this thread starts within the block."""
    group = f"{JOB_GROUP}-{time.monotonic_ns()}"
    spark.sparkContext.setJobGroup(group, f"replay of {name}")
    printer, tracker = ProgressPrinter(name, records, sys.stdout), spark.sparkContext.statusTracker()
    started_s = time.monotonic()
    try:
        with periodically(POLL_S, lambda: printer.update(_parts(tracker, group), time.monotonic() - started_s)):
            yield
    finally:
        printer.end()


def _parts(tracker: "StatusTracker", group: str) -> Parts:
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    running = [stage for stage in stages if stage is not None]
    return Parts(sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running))
