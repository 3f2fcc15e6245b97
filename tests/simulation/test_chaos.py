"""Stories of accidents from seeds: the invariants hold, a seed tells one story, and broken rules are noticed."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.simulation.broken_offices import registration_epochs_ignored
from tests.simulation.broken_rules import joining_before_the_epoch_start
from tidelog.simulation.__main__ import main
from tidelog.simulation.chaos import run_seed

SEEDS = range(1, 7)
PLAIN = frozenset({"writes", "rewinding_reads"})
TRIED_WITH_A_BROKEN_RULE = 30
"""One in three or four of them shows it."""


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_nothing_acknowledged_is_lost_and_all_recovers(seed: int) -> None:
    """I1 to I7"""
    verdict = run_seed(seed)
    assert verdict.violations == [], "\n".join(verdict.story)
    assert verdict.acknowledged > 1000
    assert verdict.reads > verdict.acknowledged


def test_the_same_seed_gives_the_same_history() -> None:
    """In any process, whatever else it did before, and however it hashes."""
    told = subprocess.run(
        [sys.executable, "-m", "tidelog.simulation", "--seed", "2"],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told.splitlines()[-1] == run_seed(2).summary


def test_the_command_tells_the_story_and_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--story"]) == 0
    *story, verdict = capsys.readouterr().out.splitlines()
    assert any("kill -9 broker" in line for line in story)
    assert verdict.startswith("seed=3 ")
    assert verdict.endswith(" held")


@pytest.mark.parametrize("broken", [joining_before_the_epoch_start, registration_epochs_ignored])
def test_accidents_show_that_a_rule_is_broken(broken: Callable[[], AbstractContextManager[None]]) -> None:
    with broken():
        verdicts = (run_seed(seed, PLAIN) for seed in range(1, TRIED_WITH_A_BROKEN_RULE + 1))
        assert any(not verdict.is_good for verdict in verdicts)
