"""Swarm runs of seeds 151 to 200."""

import pytest

from tests.simulation.seeds import check


@pytest.mark.parametrize("seed", range(151, 201))
def test_invariants_hold(seed: int) -> None:
    check(seed)
