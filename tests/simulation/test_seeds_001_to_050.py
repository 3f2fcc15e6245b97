"""Swarm runs of seeds 1 to 50."""

import pytest

from tests.simulation.seeds import check


@pytest.mark.parametrize("seed", range(1, 51))
def test_invariants_hold(seed: int) -> None:
    check(seed)
