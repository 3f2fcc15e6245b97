"""Spark job of the audit: one task per group of segments, with progress output."""

import heapq
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, TypeVar

from tidelog.audit.text_formats import size_text
from tidelog.terminal.live_display import CLEAR_LINE
from tidelog.terminal.periodic import periodically

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

TASK_BYTES = 256 * 1024 * 1024
"""Bytes of segments per task. A larger segment is a task of its own."""

TASKS_PER_CORE = 4
SHOW_EVERY_S = 0.5


class SparkRunner:
    """Distributes the items by size. The driver gets one small result per segment."""

    def __init__(self, spark: "SparkSession", output: TextIO | None = sys.stderr) -> None:
        self._context = spark.sparkContext
        self._output = output

    def run(self, work: Callable[[Item], Result], items: Sequence[Item], sizes: Sequence[int]) -> list[Result]:
        if not items:
            return []
        tasks = share_out(sizes, tasks_at_least=self._context.defaultParallelism * TASKS_PER_CORE)
        done_segments, done_bytes = self._context.accumulator(0), self._context.accumulator(0)

        def do(numbered: tuple[int, Item, int]) -> tuple[int, Result]:
            number, item, size = numbered
            result = work(item)
            done_segments.add(1)
            done_bytes.add(size)
            return number, result

        numbered = [[(number, items[number], sizes[number]) for number in task] for task in tasks]
        spread = self._context.parallelize(numbered, len(numbered)).flatMap(lambda task: task).map(do)

        def so_far() -> tuple[int, int]:
            return done_segments.value, done_bytes.value

        with _shown(self._output, len(items), so_far):
            results = dict(spread.collect())
        return [results[number] for number in range(len(items))]


def share_out(sizes: Sequence[int], tasks_at_least: int) -> list[list[int]]:
    """Item numbers of each task. Items go to the task with the fewest bytes, largest items first."""
    count = max(tasks_at_least, -(-sum(sizes) // TASK_BYTES))
    count = max(1, min(count, len(sizes)))
    tasks: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for item in sorted(range(len(sizes)), key=lambda item: -sizes[item]):
        load, number = heapq.heappop(loads)
        tasks[number].append(item)
        heapq.heappush(loads, (load + sizes[item] + 1, number))
    return tasks


def progress_line(done: int, total: int, done_bytes: int, elapsed_s: float) -> str:
    speed = done_bytes / elapsed_s if elapsed_s > 0 else 0.0
    return f"{done} of {total} segments, {size_text(done_bytes)}, {size_text(int(speed))}/s"


@contextmanager
def _shown(output: TextIO | None, total: int, so_far: Callable[[], tuple[int, int]]) -> Iterator[None]:
    """A progress line, redrawn twice a second in a terminal; elsewhere only the last one is printed."""
    if output is None:
        yield
        return
    began = time.monotonic()
    start = f"\r{CLEAR_LINE}" if output.isatty() else ""

    def show(end: str = "") -> None:
        output.write(f"{start}{progress_line(so_far()[0], total, so_far()[1], time.monotonic() - began)}{end}")
        output.flush()

    try:
        with periodically(SHOW_EVERY_S, show if start else lambda: None):
            yield
    finally:
        show("\n")
