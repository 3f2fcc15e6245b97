"""`tidelog perf`: percentiles, rates, and one short measurement of each kind."""

import json
from collections.abc import Iterator

import pytest

from tests.cli.in_process import CommandLine
from tidelog.cli.latencies import MAX_SAMPLES, Latencies, ms_text, rate_json, rate_text
from tidelog.testing import Cluster


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.fixture
def cli(kafka: Cluster, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(kafka, capfd)


def test_percentiles_are_latencies_that_occurred() -> None:
    latencies = Latencies()
    for number in range(1, 101):
        latencies.add(number / 1000)
    assert latencies.percentiles_s((50.0, 99.0, 99.9)) == {50.0: 0.05, 99.0: 0.099, 99.9: 0.1}
    assert (latencies.longest_s, round(latencies.mean_s, 4)) == (0.1, 0.0505)
    assert latencies.text().startswith("mean 50.5 ms, p50 50.0 ms")
    assert Latencies().percentiles_s((50.0,)) == {50.0: 0.0}


def test_samples_are_limited_and_stay_representative() -> None:
    latencies = Latencies()
    for number in range(3 * MAX_SAMPLES):
        latencies.add(number)
    assert len(latencies._samples) <= MAX_SAMPLES + 1
    assert latencies.count == 3 * MAX_SAMPLES
    assert latencies.percentiles_s((50.0,))[50.0] == pytest.approx(1.5 * MAX_SAMPLES, rel=0.05)


def test_figures_as_text_and_json() -> None:
    assert rate_text(1000, 2_000_000, 2.0) == "500 records/s, 1.0 MB/s"
    assert rate_json(10, 100, 0.0)["records_per_second"] == 0
    assert (ms_text(0.0123), ms_text(12.0)) == ("12.3 ms", "12.0 s")


def test_writing_and_reading_are_measured(cli: CommandLine) -> None:
    written = json.loads(cli.good("perf", "produce", "speed", "--records", "500", "--size", "50", "--json"))
    assert (written["records"], written["bytes"]) == (500, 25_000)
    assert written["latency"]["p99_ms"] > 0
    read = json.loads(cli.good("perf", "consume", "speed", "--records", "500", "--json"))
    assert (read["records"], read["bytes"]) in ((500, 24_950), (500, 25_000))  # the first record, unmeasured, is empty
    all_of_them = json.loads(cli.good("perf", "consume", "speed", "--timeout", "1", "--json"))
    assert (all_of_them["records"], all_of_them["seconds"] < 1) == (501, True), "the wait at the end is not measured"
    assert "records/s" in cli.good("perf", "produce", "speed", "--records", "20", "--rate", "1000")
    assert "nowhere does not exist" in cli.rejection("perf", "consume", "nowhere")


def test_a_record_that_is_too_large_is_one_sentence(cli: CommandLine) -> None:
    said = cli.rejection("perf", "produce", "large", "--records", "3", "--size", "2000000")
    assert "is too large" in said
    assert "never retrieved" not in said


def test_round_trips_are_measured(cli: CommandLine) -> None:
    found = json.loads(cli.good("perf", "latency", "trips", "--records", "20", "--rate", "1000", "--json"))
    assert found["records"] == 20
    assert 0 < found["acknowledged"]["mean_ms"] <= found["read"]["max_ms"]
    shown = cli.good("perf", "latency", "trips", "--records", "3", "--rate", "1000").splitlines()
    assert [line.split()[0] for line in shown] == ["3", "acknowledged", "read"]
