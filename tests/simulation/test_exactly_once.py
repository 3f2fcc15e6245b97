"""Workers copy a topic by transactions, as a group, while all fails around them: each record is copied once.

`python -m tidelog.simulation --exactly-once --seed 1 --seeds 1000` runs many more of these seeds.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.simulation.broken_coordinators import (
    aborted_offsets_count,
    open_transactions_are_read,
)
from tidelog.simulation.exactly_once import run_seed

SEEDS = range(1, 5)
"""With the one that is run twice, one for each manner in which workers are members and write."""


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_each_record_is_copied_once(seed: int) -> None:
    """G1 to G3, T1 to T3"""
    verdict = run_seed(seed)
    assert verdict.violations == [], "\n".join(verdict.event_log)
    assert verdict.acknowledged > 100
    assert verdict.reads > 100


def test_the_same_seed_gives_the_same_history() -> None:
    """In any process, however it hashes."""
    printed = subprocess.run(
        [sys.executable, "-c", "from tidelog.simulation.exactly_once import run_seed; print(run_seed(5).summary)"],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed.strip() == run_seed(5).summary


@pytest.mark.parametrize(
    ("broken", "seed"),
    [(open_transactions_are_read, 1), (aborted_offsets_count, 1)],
)
def test_seeds_show_that_a_rule_is_broken(broken: Callable[[], AbstractContextManager[None]], seed: int) -> None:
    with broken():
        assert not run_seed(seed).is_good
