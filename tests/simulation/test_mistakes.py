"""The simulator can fail: each known mistake, put back, is found by one of the seeds that are noted for it."""

import time

import pytest

from tests.simulation.mistakes import FOUND_BY, MISTAKES, run_with, run_without

MAX_CPU_S = 15.0
"""Then no other candidate is tried. Each takes less than two seconds, with the mistake and without."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_known_mistake_is_found(mistake: str) -> None:
    """One of its seeds is enough: whatever changes the timing of a run moves some of them, hardly all at once.

    `python -m tests.simulation.find_mistakes` looks for others. A seed whose run fails without the mistake is none.
    """
    began, reasons = time.process_time(), []
    for seed in FOUND_BY[mistake]:
        if run_with(mistake, seed).is_good:
            reasons.append(f"seed {seed} holds with the mistake")
        elif (violations := run_without(mistake, seed).violations) != []:
            reasons.append(f"seed {seed} is violated without the mistake, too: {violations[0]}")
        else:
            return
        if time.process_time() - began > MAX_CPU_S:
            break
    pytest.fail(f"{mistake} is not found: {'; '.join(reasons)}")


def test_each_mistake_has_seeds() -> None:
    assert FOUND_BY.keys() == MISTAKES.keys()
    assert all(len(set(seeds)) == len(seeds) > 0 for seeds in FOUND_BY.values())
