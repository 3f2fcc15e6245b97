"""Pipelines on the page: topics of dead letters, read from their files, and Spark's own UI."""

from pathlib import Path

import pytest

from tidelog.console.pipelines import dead_letter_topics, describe_pipelines
from tidelog.pipelines.running.pipeline_state import STATE_VARIABLE, PipelineState, RunState


def test_the_topics_of_dead_letters_are_found(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('[[sources]]\ndead_letters = "orders.dead"\n[[sinks]]\ndead_letters = "${DEAD}"\n')
    assert dead_letter_topics(file) == ["orders.dead"]


def test_a_file_that_is_gone_or_broken_names_none(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[")
    assert dead_letter_topics(tmp_path / "broken.toml") == dead_letter_topics(tmp_path / "gone.toml") == []


@pytest.mark.parametrize(
    ("ui", "linked"),
    [
        ("http://driver:4040", "http://driver:4040"),
        (None, None),
        ("javascript:alert(1)", None),  # a file that somebody else has written
    ],
)
def test_a_running_pipeline_links_to_sparks_own_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ui: str | None, linked: str | None
) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    file = tmp_path / "orders.toml"
    file.touch()
    state = PipelineState(tmp_path / "state", "orders")
    with state.running(file):
        state.report(RunState.RUNNING, progress={"ui": ui})
        assert [each["spark_ui"] for each in describe_pipelines()] == [linked]
        state.report(RunState.STOPPED)
    assert [each["spark_ui"] for each in describe_pipelines()] == [None]
