"""Periodic callback in a thread, while a block runs."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def periodically(every_s: float, tick: Callable[[], None]) -> Generator[None]:
    """Call `tick` every `every_s` seconds while the block runs, and never after it has been left."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(every_s):
            tick()

    ticker = threading.Thread(target=run, name="periodically", daemon=True)
    ticker.start()
    try:
        yield
    finally:
        is_over.set()
        ticker.join()
