"""Output of the benchmark: numbers, tables, the page."""

from dataclasses import asdict
from pathlib import Path

import pytest

from bench import report, results
from bench.measures import QUICK, Measure, Sizes
from bench.parts import PARTS
from bench.results import Results
from bench.scenarios import on_shared_peers


def results_with(samples: dict[str, dict[str, list[float]]]) -> Results:
    return Results("full", "2026-01-02T03:04:05+00:00", 3, Sizes(), {"cores": "2"}, {"tidelog": "Tidelog"}, samples)


def measures_for(sizes: Sizes) -> list[Measure]:
    return [measure for part in PARTS.values() for measure in part.measures(sizes)]


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.04712, "0.0471"), (1.634, "1.63"), (99.94, "99.9"), (1_168_333.3, "1,168,333")]
)
def test_numbers_keep_three_digits(value: float, text: str) -> None:
    assert report.number(value) == text


def test_a_row_shows_median_spread_ratio_and_verdict() -> None:
    run = results_with({"start": {"tidelog": [0.2, 0.1, 0.3], "kafka": [2.5, 2.5, 2.5]}})
    measure = measures_for(run.sizes)[0]
    assert report.row(measure, run)[2:] == ["0.2 [0.1..0.3]", "2.5", "0.08", "<= 0.25", "met"]


def test_rates_of_rows_are_reported_in_bytes_too() -> None:
    run = results_with({"spark-1-count": {"tidelog": [2e6, 3e6, 2e6], "kafka": [1e6]}})
    measure = next(measure for measure in measures_for(run.sizes) if measure.id == "spark-1-count")
    assert report.row(measure, run)[2:] == [
        "2,000,000 [2,000,000..3,000,000] (220 MB/s)",
        "1,000,000 (110 MB/s)",
        "2",
        ">= 2 x the connector",
        "met",
    ]


def test_a_missed_goal_is_said() -> None:
    run = results_with({"start": {"tidelog": [0.26]}})
    assert report.row(measures_for(run.sizes)[0], run)[-1] == "**missed**"


def test_the_figure_of_a_measure_may_be_its_slow_trials() -> None:
    run = results_with({"failover-p99": {"tidelog": [0.1, 0.2, 0.9], "kafka": [9.0]}})
    measure = next(measure for measure in measures_for(run.sizes) if measure.id == "failover-p99")
    assert report.row(measure, run)[2:] == ["0.9 [0.1..0.9]", "9", "0.1", "<= 0.6", "**missed**"]


def test_the_page_names_every_measure_every_failure_and_the_notes() -> None:
    one, three = results_with({}), results_with({})
    three.date = "2026-02-03T03:04:05+00:00"
    one.failures.append("round 1, kafka, growth, connections: 1: it stopped")
    three.failures.append("round 2, tidelog, failover, start: it slept")
    page = report.page(
        {"one-broker": one} | dict.fromkeys(("cluster", "moves", "coordinators", "tls", "spark"), three),
        "## What holds it back\n",
    )
    assert all(measure.title in page for measure in measures_for(one.sizes))
    assert "it stopped" in page
    assert "it slept" in page
    assert page.index("Taken 2026-01-02") < page.index("Taken 2026-02-03")
    assert page.endswith("## What holds it back\n")


def test_a_failure_is_reported_with_its_part() -> None:
    run = results_with({})
    run.failures.append("round 2, tidelog, failover, start: it slept")
    page = report.page({"one-broker": run, "cluster": run}, "")
    assert page.count("it slept") == 1


def test_the_page_has_only_what_was_measured() -> None:
    page = report.page({"one-broker": results_with({})}, "")
    assert "kill -9 of a leader, until" not in page


def test_the_page_says_first_where_others_are_ahead_the_furthest_first() -> None:
    run = results_with(
        {
            "start": {"tidelog": [5.0], "kafka": [4.0]},
            "produce-1k-rate": {"tidelog": [1.0], "kafka": [4.0]},
            "cpu-idle": {"tidelog": [1.0], "kafka": [4.0]},
        }
    )
    run.commit = "abc123"
    page = report.page({"one-broker": run}, "")
    first = page.split("## ")[1]
    assert first.startswith("Where others are ahead")
    assert [line.rpartition(" | ")[2] for line in first.splitlines() if " x |" in line] == ["4 x |", "1.25 x |"]
    assert "at commit `abc123`" in page
    assert "Nowhere in these runs" in report.behind_text({"one-broker": results_with({})})


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
    run.add("tidelog", {"start": [0.2, 0.3]})
    assert run.samples == {"start": {"tidelog": [0.1, 0.2, 0.3]}}
    assert asdict(results.load(run.save())) == asdict(run)


def test_the_newest_run_of_a_part_counts_be_it_alone_or_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "DIRECTORY", tmp_path)
    runs = [("full", "2026-01-02", ["one-broker", "cluster"]), ("cluster", "2026-01-03", ["cluster"])]
    for name, date, parts in [*runs, ("quick", "2026-01-04", ["one-broker", "cluster"])]:
        run = results_with({})
        run.name, run.date, run.parts = name, f"{date}T00:00:00+00:00", parts
        run.save()
    newest = {part: results.newest(part) for part in PARTS}
    assert {part: run.name for part, run in newest.items() if run} == {"one-broker": "full", "cluster": "cluster"}


def test_there_may_be_no_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "DIRECTORY", tmp_path)
    assert results.newest("cluster") is None


@pytest.mark.parametrize("sizes", [Sizes(), QUICK])
def test_measures_are_unique_and_goals_refer_to_measures(sizes: Sizes) -> None:
    measures = measures_for(sizes)
    identities = {measure.id for measure in measures}
    assert len(identities) == len(measures)
    referred = {measure.goal.of for measure in measures if measure.goal and measure.goal.of} - {"peer"}
    assert referred <= identities


def test_scenarios_have_names_of_their_own_and_run_on_both_peers() -> None:
    found = [scenario for part in PARTS.values() for scenario in part.scenarios(Sizes())]
    assert len({scenario.name for scenario in found}) == len(found)
    assert all(set(scenario.peers) == {"tidelog", "kafka"} for scenario in found)


def test_a_quick_run_starts_each_kind_of_peer_once_and_warms_it_up_once() -> None:
    scenarios = [scenario for part in PARTS.values() for scenario in part.scenarios(QUICK)]
    shared = on_shared_peers([scenario for scenario in scenarios if scenario.name not in QUICK.left_out])
    assert [scenario.name for scenario in shared] == ["one-broker+growth+groups", "cluster+failover+moves"]
    assert all([step.title for step in scenario.steps].count("warm up") <= 1 for scenario in shared)
    assert set(QUICK.left_out) <= {scenario.name for scenario in scenarios}


def test_the_summary_has_what_was_measured_under_its_section_and_the_names_of_its_peers() -> None:
    samples = {
        "start": {"tidelog": [0.26], "kafka": [2.6]},
        "spark-1-stream-50000": {"tidelog": [3e5], "kafka": [2e5]},
    }
    run = results_with(samples)
    run.parts = ["one-broker", "cluster", "spark"]
    first, second, third = report.summary(run).split("\n\n")
    assert first.splitlines()[2].endswith(" missed")
    assert second.splitlines()[0] == "Spark: streams, per trigger"
    assert 'format("kafka")' in second.splitlines()[1]
    assert len(second.splitlines()) == 3
    assert third == report.RATIO


def test_a_summary_of_nothing_is_no_table() -> None:
    assert report.summary(results_with({})) == report.RATIO
