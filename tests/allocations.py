"""Allocations of a test: their peak, and the reference cycles that it leaves."""

import gc
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
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


async def assert_leaves_no_cycles(exchange: Callable[[int], Awaitable[None]], count: int = 100) -> None:
    """`exchange` gets the numbers from 0 on. Fails if every one leaves garbage to the collector."""
    await exchange(0)
    gc.collect()
    gc.disable()
    try:
        for number in range(1, count + 1):
            await exchange(number)
        assert gc.collect() < count  # cycles of a single kind would be one for each exchange at least
    finally:
        gc.enable()
