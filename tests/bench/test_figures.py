"""The arithmetic behind the benchmark's figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.figures import Figure, Goal, percentile, ratio


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(value) for value in range(1, 1001)]
    assert [percentile(values, percent) for percent in (0, 50, 99, 99.9, 100)] == [1, 500, 990, 999, 1000]


def test_one_value_is_every_percentile() -> None:
    assert percentile([7.0], 0.1) == percentile([7.0], 99.9) == 7.0


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


@given(st.lists(st.floats(0, 1e9), min_size=1), st.floats(0.1, 100))
def test_at_least_the_named_share_lies_at_or_below_a_percentile(values: list[float], percent: float) -> None:
    found = percentile(sorted(values), percent)
    assert sum(value <= found for value in values) >= len(values) * percent / 100 - 1e-6


def test_a_figure_is_the_median_with_its_spread() -> None:
    assert Figure.of([3.0, 1.0, 2.0]) == Figure(2.0, 1.0, 3.0)
    assert Figure.of([]) is None


def test_a_figure_may_be_another_percentile_of_its_samples() -> None:
    assert Figure.of([5.0, 1.0, 4.0, 2.0, 3.0], 99) == Figure(5.0, 1.0, 5.0)
    assert Figure.of([float(value) for value in range(100, 0, -1)], 90) == Figure(90.0, 1.0, 100.0)


def test_a_ratio_needs_both_sides() -> None:
    assert ratio(Figure(1, 1, 1), Figure(4, 4, 4)) == 0.25
    assert ratio(Figure(1, 1, 1), None) is None
    assert ratio(Figure(1, 1, 1), Figure(0, 0, 0)) is None


SAMPLES = {"rate": {"tidelog": [30.0, 31.0, 90.0], "kafka": [10.0]}, "small": {"tidelog": [20.0]}}


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (Goal("at most", 31.0), True),
        (Goal("at most", 30.9), False),
        (Goal("at least", 3.0, "peer"), True),
        (Goal("at least", 3.2, "peer"), False),
        (Goal("at most", 1.6, "small"), True),
        (Goal("at most", 1.5, "small"), False),
        (Goal("at most", 1.5, "never measured"), None),
    ],
)
def test_a_goal_is_held_against_the_median(goal: Goal, met: bool | None) -> None:
    assert goal.is_met("rate", SAMPLES) is met


def test_a_goal_may_be_meant_for_the_slow_ones() -> None:
    goal = Goal("at most", 31.0)
    assert goal.is_met("rate", SAMPLES, percent=50)
    assert not goal.is_met("rate", SAMPLES, percent=99)


def test_a_goal_without_a_figure_is_neither_met_nor_missed() -> None:
    assert Goal("at most", 1.0).is_met("never measured", SAMPLES) is None
