"""Swarm runs of seeds 101 to 150."""

import pytest

from tests.simulation.seeds import check


@pytest.mark.parametrize("seed", range(101, 151))
def test_invariants_hold(seed: int) -> None:
    check(seed)
