"""Workers copy a topic by transactions, as a group, while all fails around them: each record is copied once.

`python -m tidelog.simulation --exactly-once --seed 1 --seeds 1000` tells many more of these stories.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.simulation.broken_coordinators import (
    aborted_offsets_count,
    anybody_commits,
    open_transactions_are_read,
    partitions_are_given_twice,
    pending_offsets_are_overlooked,
)
from tidelog.simulation.__main__ import main
from tidelog.simulation.exactly_once import run_seed

SEEDS = range(1, 6)
"""One for each manner in which workers are members and write."""


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_each_record_is_copied_once(seed: int) -> None:
    """G1 to G3, T1 to T3"""
    verdict = run_seed(seed)
    assert verdict.violations == [], "\n".join(verdict.story)
    assert verdict.acknowledged > 1000
    assert verdict.reads > 1000


def test_the_command_tells_these_stories_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--exactly-once", "--seed", "10", "--story"]) == 0
    *story, verdict = capsys.readouterr().out.splitlines()
    assert any("SIGSTOP worker" in line for line in story)
    assert verdict.endswith(" held")


@pytest.mark.parametrize(
    ("broken", "seed"),
    [
        (open_transactions_are_read, 1),
        (aborted_offsets_count, 5),
        (pending_offsets_are_overlooked, 6),
        (anybody_commits, 8),
        (partitions_are_given_twice, 7),
    ],
)
def test_stories_show_that_a_rule_is_broken(broken: Callable[[], AbstractContextManager[None]], seed: int) -> None:
    with broken():
        assert not run_seed(seed).is_good
