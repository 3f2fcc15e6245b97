"""Randomness: a seed gives one sequence, that of Python's own generator."""

import random

import pytest

from tidelog.runtime.randomness import SeededRandomness


def test_the_numbers_of_a_seed_are_those_of_randrange() -> None:
    randomness, expected = SeededRandomness(7), random.Random(7)
    limits = [1, 2, 3, 200, 1000, 2**32, 2**70] * 50
    assert [randomness.below(limit) for limit in limits] == [expected.randrange(limit) for limit in limits]


@pytest.mark.parametrize("limit", [0, -1])
def test_no_number_is_below_zero(limit: int) -> None:
    with pytest.raises(ValueError, match=f"no number is below {limit}"):
        SeededRandomness(7).below(limit)


def test_numbers_that_are_taken_are_drawn_like_single_ones() -> None:
    randomness, expected = SeededRandomness(7), random.Random(7)
    ones, others = randomness.numbers_below(1000), randomness.numbers_below(200)
    taken = [(next(ones), next(others), randomness.below(3)) for _ in range(100)]
    assert taken == [(expected.randrange(1000), expected.randrange(200), expected.randrange(3)) for _ in range(100)]
