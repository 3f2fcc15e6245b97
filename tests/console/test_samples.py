"""Rings of samples, rates of counters, and the trend of a lag."""

import pytest

from tidelog.console.samples import MAX_SAMPLES, MAX_SERIES, Rates, Samples


def test_rings_and_the_number_of_series_are_bounded() -> None:
    samples = Samples()
    for number in range(MAX_SAMPLES + 5):
        samples.add(number, {"records": float(number)})
    assert len(samples.get("records")) == MAX_SAMPLES
    for number in range(MAX_SERIES):
        samples.add(0, {f"lag/{number}": 1.0})
    assert len(samples.names()) == MAX_SERIES
    assert samples.get("records") == []


@pytest.mark.parametrize(
    ("first", "last", "trend"),
    [(100, 300, "growing"), (300, 100, "shrinking"), (1000, 1010, "steady"), (0, 1, "steady")],
)
def test_the_trend_compares_with_two_minutes_ago(first: float, last: float, trend: str) -> None:
    samples = Samples()
    samples.add(0, {"lag": 9e9})
    samples.add(500_000, {"lag": first})
    samples.add(600_000, {"lag": last})
    assert samples.trend("lag") == trend


@pytest.mark.parametrize(("step", "trend"), [(100, "growing"), (-100, "shrinking"), (0, "steady")])
def test_a_large_lag_that_only_grows_is_not_steady(step: int, trend: str) -> None:
    samples = Samples()
    for number in range(10):
        samples.add(number * 5000, {"lag": 1_000_000.0 + number * step})
    assert samples.trend("lag") == trend
    samples.add(50_000, {"lag": 1_000_000.0 + 5 * step})  # it goes up and down
    assert samples.trend("lag") == "steady"


def test_samples_that_are_far_apart_have_a_trend() -> None:
    samples = Samples()
    samples.add(0, {"lag": 5.0})
    samples.add(500_000, {"lag": 50.0})
    assert samples.trend("lag") == "growing"


def test_a_chart_holds_the_last_hour() -> None:
    samples = Samples()
    for minute in range(100):
        samples.add(minute * 60_000, {"lag": 1.0})
    assert samples.get("lag")[0][0] == 39 * 60_000
    assert samples.newest_ms("lag") == 99 * 60_000
    assert samples.newest_ms("none") is None


def test_one_sample_has_no_trend() -> None:
    samples = Samples()
    samples.add(0, {"lag": 1.0})
    assert samples.trend("lag") is None


def test_a_counter_that_began_again_has_no_rate() -> None:
    rates = Rates()
    assert rates.of(0, {"in": 100.0, "out": 50.0}) == {}
    assert rates.of(2000, {"in": 300.0, "out": 10.0}) == {"in": 100.0}
