"""Something done now and then, in a thread, while something else takes its time."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def ticking(every_s: float, tick: Callable[[], None]) -> Generator[None]:
    """Not once more after the block has been left."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(every_s):
            tick()

    ticker = threading.Thread(target=run, name="ticking", daemon=True)
    ticker.start()
    try:
        yield
    finally:
        is_over.set()
        ticker.join()
