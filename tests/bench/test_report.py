"""What the benchmark writes: numbers, tables, the page."""

from dataclasses import asdict
from pathlib import Path

import pytest

from bench import report, results
from bench.measures import QUICK, Sizes, measures_for
from bench.results import Results
from bench.workloads import scenarios


def results_with(samples: dict[str, dict[str, list[float]]]) -> Results:
    return Results("full", "2026-01-02T03:04:05+00:00", 3, Sizes(), {"cores": "2"}, {"tidelog": "Tidelog"}, samples)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.04712, "0.0471"), (1.634, "1.63"), (99.94, "99.9"), (1_168_333.3, "1,168,333")]
)
def test_numbers_keep_three_digits(value: float, text: str) -> None:
    assert report.number(value) == text


def test_a_row_shows_median_spread_ratio_and_verdict() -> None:
    run = results_with({"start": {"tidelog": [0.2, 0.1, 0.3], "kafka": [2.5, 2.5, 2.5]}})
    measure = measures_for(run.sizes)[0]
    assert report.row(measure, run)[2:] == ["0.2 [0.1..0.3]", "2.5", "0.08", "<= 0.25", "met"]


def test_a_missed_goal_is_said() -> None:
    run = results_with({"start": {"tidelog": [0.26]}})
    assert report.row(measures_for(run.sizes)[0], run)[-1] == "**missed**"


def test_the_page_names_every_measure_every_failure_and_the_notes() -> None:
    run = results_with({})
    run.failures.append("round 1, kafka: it stopped")
    page = report.page(run, "## What holds it back\n")
    assert all(measure.title in page for measure in measures_for(run.sizes))
    assert "it stopped" in page
    assert page.endswith("## What holds it back\n")


def test_advantage_is_above_one_where_tidelog_is_better() -> None:
    run = results_with(
        {"start": {"tidelog": [1.0], "kafka": [4.0]}, "produce-1k-rate": {"tidelog": [1.0], "kafka": [4.0]}}
    )
    measures = {measure.id: measure for measure in measures_for(run.sizes)}
    assert report.advantage(measures["start"], run) == 4.0
    assert report.advantage(measures["produce-1k-rate"], run) == 0.25
    assert report.advantage(measures["cpu-idle"], run) is None


def test_results_survive_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "DIRECTORY", tmp_path)
    run = results_with({})
    run.add("tidelog", {"start": 0.1})
    run.add("tidelog", {"start": 0.2})
    assert asdict(results.load(run.save())) == asdict(run)
    assert results.newest("full") == run.path
    assert results.newest("quick") is None


@pytest.mark.parametrize("sizes", [Sizes(), QUICK])
def test_measures_are_unique_and_goals_refer_to_measures(sizes: Sizes) -> None:
    measures = measures_for(sizes)
    identities = {measure.id for measure in measures}
    assert len(identities) == len(measures)
    referred = {measure.goal.of for measure in measures if measure.goal and measure.goal.of} - {"peer"}
    assert referred <= identities


def test_scenarios_have_names_of_their_own() -> None:
    names = [scenario.name for scenario in scenarios(Sizes())]
    assert len(set(names)) == len(names)
