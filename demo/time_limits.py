"""Time limits of the tour: longer on a machine that has much else to do."""

import os

MAX_FACTOR = 10.0


def time_limit_s(limit_s: float, load: float | None = None, cores: int | None = None) -> float:
    """The limit, times the number of processes that wait for each core.

    The load is that of the last minute, so that a limit which is looked at again and again grows with it.
    """
    load = os.getloadavg()[0] if load is None else load
    cores = (os.cpu_count() or 1) if cores is None else cores
    return limit_s * min(max(load / cores, 1.0), MAX_FACTOR)
