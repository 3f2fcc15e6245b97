"""Swarm runs of seeds 51 to 100."""

import pytest

from tests.simulation.seeds import check


@pytest.mark.parametrize("seed", range(51, 101))
def test_invariants_hold(seed: int) -> None:
    check(seed)
