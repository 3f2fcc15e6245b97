"""The simulator can fail: each known mistake, put back, is found by the seed that is noted for it, and only then."""

import pytest

from tests.simulation.mistakes import FOUND_BY, MISTAKES, run_with, run_without


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_known_mistake_is_found(mistake: str) -> None:
    """A change of the swarm moves the seeds: `python -m tests.simulation.find_mistakes` looks for them again."""
    assert not run_with(mistake, FOUND_BY[mistake]).is_good


@pytest.mark.parametrize("mistake", MISTAKES)
def test_without_the_mistake_all_is_well(mistake: str) -> None:
    assert run_without(mistake, FOUND_BY[mistake]).violations == []
