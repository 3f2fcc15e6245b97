"""Swarm runs of 200 seeds: whatever happens, nothing acknowledged is lost and all recovers (I1 to I7).

In classes, so that the tests can be spread over processes.
"""

import pytest

from tidelog.simulation.chaos import run_events

FAULTS_S = 8.0
"""A part of what the seeds draw, so that all of them take a few minutes; `tidelog simulate` runs them whole."""


def check(seed: int) -> None:
    verdict = run_events(seed, duration_s=FAULTS_S)
    replay = f"tidelog simulate --seed {seed} --duration {FAULTS_S:g} --shrink"
    assert verdict.violations == [], "\n".join([replay, *verdict.story])


class TestSeeds1To50:
    @pytest.mark.parametrize("seed", range(1, 51))
    def test_invariants_hold(self, seed: int) -> None:
        check(seed)


class TestSeeds51To100:
    @pytest.mark.parametrize("seed", range(51, 101))
    def test_invariants_hold(self, seed: int) -> None:
        check(seed)


class TestSeeds101To150:
    @pytest.mark.parametrize("seed", range(101, 151))
    def test_invariants_hold(self, seed: int) -> None:
        check(seed)


class TestSeeds151To200:
    @pytest.mark.parametrize("seed", range(151, 201))
    def test_invariants_hold(self, seed: int) -> None:
        check(seed)
