"""Swarm runs as tests: whatever happens, nothing acknowledged is lost and all recovers (I1 to I7).

The 200 seeds are divided into files, for tests are spread over processes by file.
"""

from tidelog.simulation.chaos import run_seed


def check(seed: int) -> None:
    """The run that `tidelog simulate --seed` makes of it."""
    verdict = run_seed(seed)
    assert verdict.violations == [], "\n".join([f"tidelog simulate --seed {seed} --shrink", *verdict.event_log])
