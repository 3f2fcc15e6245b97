"""Worker memory: objects that PySpark's worker has loaded for our tasks are excluded from garbage collection."""

import gc
from collections.abc import Iterator
from typing import TypeVar

from tidelog.spark.accelerators.switches import Accelerator, is_on

T = TypeVar("T")

_is_kept = False


def freezing_loaded_objects(rows: Iterator[T]) -> Iterator[T]:
    """Passes the items through.

    PySpark runs a full garbage collection after every task, which visits all modules: 40 ms, as long as reading a small
    micro-batch. After the first task everything that later tasks need is loaded, and frozen.
    """
    global _is_kept
    yield from rows
    if not _is_kept and is_on(Accelerator.WORKER_MEMORY):
        gc.collect()
        gc.freeze()
        _is_kept = True
