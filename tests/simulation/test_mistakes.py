"""The simulator can fail: each known mistake, put back, is found by the seed that is noted for it."""

import pytest

from tests.simulation.mistakes import FOUND_BY, MISTAKES, run_with


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_known_mistake_is_found(mistake: str) -> None:
    assert not run_with(mistake, FOUND_BY[mistake]).is_good
