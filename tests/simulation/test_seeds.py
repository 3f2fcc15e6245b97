"""Swarm runs of 200 seeds: whatever happens, nothing acknowledged is lost and all recovers (I1 to I7).

In classes, so that the tests can be spread over processes.
"""

import pytest

from tidelog.simulation.chaos import run_events

FAULTS_S = 8.0
"""A part of what the seeds draw, so that all of them take a few minutes; `tidelog simulate` runs them whole."""

KNOWN_VIOLATIONS: dict[int, str] = {
    78: "I2 totals-0: a bit was flipped in the leader epoch of a batch, which the checksum does not cover",
    109: "I7 a patient writer still waits",
    188: "I7 broker 2 never hears that its session ended while it was cut off from the store, and does not join again",
    190: "I7 profiles is not read to its end",
}
"""Open: seeds whose violation is not mended yet, and what is known of it."""


def check(seed: int) -> None:
    verdict = run_events(seed, duration_s=FAULTS_S)
    if verdict.violations and seed in KNOWN_VIOLATIONS:
        pytest.xfail(KNOWN_VIOLATIONS[seed])
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
