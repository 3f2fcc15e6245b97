"""Tells how far a replay is while Spark works: a line drawn anew in a terminal, now and then a line elsewhere."""

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


class Teller:
    """Says a line whenever there is something new, as often as the output bears it."""

    def __init__(self, name: str, records: int, output: TextIO) -> None:
        self._name = name
        self._records = records
        self._output = output
        self._is_terminal = output.isatty()
        self._told_s = 0.0

    def tell(self, parts: Parts, elapsed_s: float) -> None:
        line = line_of(self._name, self._records, parts, elapsed_s)
        if self._is_terminal:
            self._write(f"\r{line}{CLEAR_LINE}")
        elif elapsed_s - self._told_s >= PLAIN_LINE_EVERY_S:
            self._told_s = elapsed_s
            self._write(f"{line}\n")

    def end(self) -> None:
        if self._is_terminal:
            self._write(f"\r{CLEAR_LINE}")

    def _write(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()


@contextmanager
def watching(spark: "SparkSession", name: str, records: int) -> Generator[None]:
    """The jobs that this thread starts within the block are followed from another."""
    group = f"{JOB_GROUP}-{time.monotonic_ns()}"
    spark.sparkContext.setJobGroup(group, f"replay of {name}")
    teller, tracker = Teller(name, records, sys.stdout), spark.sparkContext.statusTracker()
    started_s = time.monotonic()
    try:
        with periodically(POLL_S, lambda: teller.tell(_parts(tracker, group), time.monotonic() - started_s)):
            yield
    finally:
        teller.end()


def _parts(tracker: "StatusTracker", group: str) -> Parts:
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    known = [stage for stage in stages if stage is not None]
    return Parts(sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known))
