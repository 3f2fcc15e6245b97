"""The compatibility run in parts: what is kept, what is repeated, and what the page says of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from compat.answers.check import Comparison
from compat.findings import Findings, KeptFindings
from compat.matrix import Outcome
from compat.page import page
from compat.run import chosen, run_parts
from compat.spark_page import Finding
from tools.apache_kafka import KafkaFailed, NotAvailable

ALL_KINDS = Findings(
    outcomes=[Outcome("one", "fly", "works")],
    tools={("kafka-topics", "4.3.1"): ""},
    files={"it reads": []},
    responses=[Comparison("coordinators", 3, {"odd": ["a: 1 is not 2"]})],
    on_spark=[Finding("Tidelog", "batch", "assign", [])],
    releases={"one": "1.0"},
)
GOOD = Findings(files={"it reads": []})
BAD = Findings(files={"it writes": ["it does not"]})


@pytest.fixture
def kept(tmp_path: Path) -> KeptFindings:
    return KeptFindings(tmp_path, "abc")


def test_findings_of_every_kind_are_read_as_they_were_kept(kept: KeptFindings) -> None:
    kept.keep("all", ALL_KINDS, "today")
    found = kept.find("all")
    assert found is not None
    assert found.findings == ALL_KINDS


def test_findings_of_another_commit_are_not_found(kept: KeptFindings, tmp_path: Path) -> None:
    kept.keep("one", GOOD, "today")
    assert KeptFindings(tmp_path, "abd").find("one") is None


def counted(findings: Findings, calls: list[Findings]) -> Callable[[], Findings]:
    def run() -> Findings:
        calls.append(findings)
        return findings

    return run


def test_only_what_failed_is_tried_again(kept: KeptFindings) -> None:
    calls: list[Findings] = []
    parts = {"good": counted(GOOD, calls), "bad": counted(BAD, calls)}
    assert run_parts(parts, kept) == [GOOD, BAD]
    assert run_parts(parts, kept) == [GOOD, BAD]
    assert calls == [GOOD, BAD, BAD]
    run_parts(parts, kept, is_forced=True)
    assert calls[3:] == [GOOD, BAD]


@pytest.mark.parametrize("verdict", ["fails", "not run"])
def test_a_client_that_fails_or_is_missing_is_tried_again(kept: KeptFindings, verdict: str) -> None:
    calls: list[Findings] = []
    findings = Findings(outcomes=[Outcome("one", "fly", verdict, "it sank")])  # type: ignore[arg-type]
    for _ in range(2):
        run_parts({"client one": counted(findings, calls)}, kept)
    assert len(calls) == 2


def test_a_part_that_goes_wrong_is_a_complaint_and_the_others_are_run(kept: KeptFindings) -> None:
    def fail() -> Findings:
        raise KafkaFailed("it did not stop")

    found = run_parts({"one": fail, "other": lambda: GOOD}, kept)
    assert found == [Findings(files={"one": ["KafkaFailed: it did not stop"]}), GOOD]


def test_a_part_that_cannot_be_run_on_this_machine_ends_the_run(kept: KeptFindings) -> None:
    def miss() -> Findings:
        raise NotAvailable("install Java")

    with pytest.raises(NotAvailable):
        run_parts({"one": miss}, kept)


def test_there_is_no_page_before_all_parts_were_run(kept: KeptFindings) -> None:
    kept.keep("one", GOOD, "today")
    assert kept.all_of(["one", "two"]) is None
    kept.keep("two", GOOD, "today")
    assert list(kept.all_of(["one", "two"]) or ()) == ["one", "two"]


def test_the_page_names_its_commit_and_what_was_repeated(kept: KeptFindings) -> None:
    kept.keep("one", ALL_KINDS, "2026-01-01 10:00")
    kept.keep("two", BAD, "2026-01-01 11:00")
    kept.keep("two", GOOD, "2026-01-01 12:00")
    text = page(kept.all_of(["one", "two"]) or {}, "abc")
    assert "commit abc, from 2026-01-01 10:00 to 2026-01-01 12:00. Repeated: two (2 tries)." in text
    assert "| it reads | yes |" in text
    assert "it writes" not in text


def test_complaints_about_one_file_come_together_from_all_parts(kept: KeptFindings) -> None:
    kept.keep("one", Findings(files={"it reads": []}), "today")
    kept.keep("two", Findings(files={"it reads": ["it is torn"]}), "today")
    text = page(kept.all_of(["one", "two"]) or {}, "abc")
    assert "| it reads | **NO** |" in text
    assert "- it reads: it is torn\n" in text


def test_parts_are_chosen_by_their_names() -> None:
    parts = {name: lambda: GOOD for name in ("client one", "client two", "Spark")}
    assert list(chosen(parts, ["client"], ["two"])) == ["client one"]
    assert list(chosen(parts, [], ["client"])) == ["Spark"]
    assert list(chosen(parts, [], [])) == list(parts)
