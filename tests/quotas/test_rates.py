"""Rates over windows and token buckets, with times given from outside."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.quotas.rates import SampledRate, TokenBucket


def test_a_burst_is_averaged_over_all_windows_but_one() -> None:
    rate = SampledRate(11, 1)
    rate.record(1000, now_s=0)
    assert rate.per_second(0) == 100
    assert rate.throttle_s(50, now_s=0) == 10


def test_after_the_throttle_time_the_rate_is_within_the_bound() -> None:
    rate = SampledRate(11, 1)
    rate.record(520, now_s=0)
    pause_s = rate.throttle_s(50, now_s=0)
    assert rate.per_second(pause_s) == pytest.approx(50)
    assert rate.throttle_s(50, now_s=pause_s) == pytest.approx(0)


def test_old_windows_are_forgotten() -> None:
    rate = SampledRate(3, 1)
    rate.record(10, now_s=0)
    rate.record(20, now_s=1.5)
    assert rate.per_second(2.5) == pytest.approx(30 / 2.5)
    assert rate.per_second(3) == pytest.approx(20 / 2.5)
    assert rate.per_second(100) == 0


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 1000)), max_size=30))
def test_a_client_that_obeys_stays_within_its_quota_in_the_long_run(steps: list[tuple[float, int]]) -> None:
    rate, now_s, sent = SampledRate(11, 1), 0.0, 0
    for pause_s, size in steps:
        now_s += pause_s + rate.throttle_s(100, now_s)
        rate.record(size, now_s)
        sent += size
    assert sent <= 110 * now_s + 11 * 100 + 1000


def test_a_bucket_is_full_at_first_and_refills() -> None:
    bucket = TokenBucket(11, 1)
    assert bucket.tokens(2, now_s=0) == 22
    bucket.take(30, 2, now_s=0)
    assert bucket.throttle_s(2, now_s=0) == 4
    assert bucket.throttle_s(2, now_s=4) == 0
    assert bucket.tokens(2, now_s=1000) == 22


def test_a_bound_of_nothing_is_a_pause_of_all_windows() -> None:
    assert SampledRate(11, 1).throttle_s(0, now_s=0) == 10
