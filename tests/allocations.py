"""The peak of what a test allocates."""

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


class Peak:
    bytes = 0
    """Known at the end of the block."""


@contextmanager
def allocations() -> Iterator[Peak]:
    """Without the garbage collector: finalisers of what earlier tests left behind allocate too."""
    peak = Peak()
    gc.disable()
    tracemalloc.start()
    try:
        yield peak
        peak.bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()
