"""Latencies that brokers report: histograms of their pages become percentiles of the last minute."""

import pytest

from tidelog.console.broker_latencies import BrokerLatencies, Histograms, histograms_of, quantile_s

INFINITE = float("inf")


def produce(fast: float, slow: float = 0.0) -> Histograms:
    """So many within 1 ms, and within 100 ms."""
    return {"produce": {0.001: fast, 0.1: fast + slow, INFINITE: fast + slow}}


def test_buckets_are_read_from_a_page() -> None:
    page = """\
# TYPE tidelog_request_time_seconds histogram
tidelog_request_time_seconds_bucket{request="Produce",le="1e-05"} 3
tidelog_request_time_seconds_bucket{request="Produce",le="+Inf"} 4
tidelog_request_time_seconds_bucket{request="FetchConsumer",le="0.5"} 7
tidelog_request_time_seconds_bucket{request="FetchFollower",le="0.5"} 9
tidelog_request_time_seconds_bucket{request="Produce",le="x"} 1
tidelog_request_time_seconds_count{request="Produce"} 4
"""
    assert histograms_of(page.splitlines()) == {"produce": {0.00001: 3.0, INFINITE: 4.0}, "fetch": {0.5: 7.0}}


def test_percentiles_are_of_the_last_minute_and_of_all_brokers() -> None:
    latencies = BrokerLatencies()
    latencies.add(0, {1: produce(0, 1000), 2: produce(0, 0)})
    assert latencies.percentiles() == {}
    latencies.add(30_000, {1: produce(90, 1000), 2: produce(8, 2)})
    found = latencies.percentiles()
    assert found["produce_p50"] < 1.0
    assert 50.0 < found["produce_p99"] <= 100.0
    latencies.add(91_000, {1: produce(190, 1000), 2: produce(8, 2)})
    assert latencies.percentiles()["produce_p99"] <= 1.0


def test_a_broker_that_restarted_begins_again_and_one_that_left_is_forgotten() -> None:
    latencies = BrokerLatencies()
    latencies.add(0, {1: produce(1000), 2: produce(0)})
    latencies.add(5_000, {1: produce(10)})
    assert latencies.percentiles() == {}
    latencies.add(10_000, {1: produce(10, 10), 2: produce(0, 5)})
    assert latencies.percentiles()["produce_p50"] > 1.0


@pytest.mark.parametrize(("share", "found"), [(0.5, 0.001), (0.25, 0.0005), (0.75, 0.0505), (1.0, 0.1)])
def test_quantiles_are_interpolated(share: float, found: float) -> None:
    assert quantile_s(produce(50, 50)["produce"], share) == pytest.approx(found)


def test_of_times_above_all_bounds_only_that_is_known() -> None:
    assert quantile_s({0.001: 0.0, 0.1: 0.0, INFINITE: 3.0}, 0.5) == 0.1
