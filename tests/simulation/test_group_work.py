"""Groups under faults: a coordinator that gives partitions away too early, or takes anybody's commits, is noticed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

import pytest

from tests.simulation.broken_coordinators import anybody_commits, partitions_are_given_twice
from tidelog.simulation.chaos import run_seed
from tidelog.simulation.work.ownership import Ownership
from tidelog.simulation.workers import Claims

CLASSIC, CONSUMER = frozenset({"classic_groups"}), frozenset({"consumer_groups"})
TRIED_WITH_A_BROKEN_RULE = 80


@pytest.mark.parametrize("kinds", [CLASSIC, CONSUMER])
@pytest.mark.parametrize("seed", [1, 2])
def test_groups_work_off_their_topic_whatever_happens(kinds: frozenset[str], seed: int) -> None:
    """Links with 20 ms, killed coordinators, members that sleep past their session: no partition has two owners."""
    verdict = run_seed(seed, kinds)
    assert verdict.violations == [], "\n".join(verdict.story)


def is_noticed(broken: Callable[[], AbstractContextManager[None]], kinds: frozenset[str], rule: str) -> bool:
    """By this rule, in one of the seeds; others may notice it sooner."""
    with broken():
        return any(
            line.startswith(f"{rule} ")
            for seed in range(1, TRIED_WITH_A_BROKEN_RULE + 1)
            for line in run_seed(seed, kinds).violations
        )


def test_a_partition_that_is_given_away_too_early_is_noticed_by_its_member_epoch() -> None:
    with patch.object(Ownership, "on_owned"):
        assert is_noticed(partitions_are_given_twice, CONSUMER, "G1")


def test_two_owners_at_one_time_are_noticed_by_the_clock() -> None:
    with patch.object(Claims, "note"):
        assert is_noticed(partitions_are_given_twice, CONSUMER, "two-owners")


def test_commits_of_members_that_were_replaced_are_noticed() -> None:
    assert is_noticed(anybody_commits, CLASSIC | CONSUMER, "G2")
