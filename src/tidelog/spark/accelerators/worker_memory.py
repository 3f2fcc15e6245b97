"""What PySpark's worker loads for a task of ours stays loaded: its garbage collector need not look at it again."""

import gc
from collections.abc import Iterator
from typing import TypeVar

from tidelog.spark.accelerators.switches import Accelerator, is_on

T = TypeVar("T")

_is_kept = False


def keeping_what_is_loaded(rows: Iterator[T]) -> Iterator[T]:
    """What the iterator gives.

    PySpark collects garbage after every task, and goes through all modules for it: 40 ms, in which a small micro-batch
    is read. When the first task has been through, all is there that later ones need.
    """
    global _is_kept
    yield from rows
    if not _is_kept and is_on(Accelerator.WORKER_MEMORY):
        gc.collect()
        gc.freeze()
        _is_kept = True
