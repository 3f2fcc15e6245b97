"""Topics of dead letters, read from the file of a pipeline."""

from pathlib import Path

from tidelog.console.pipelines import dead_letter_topics


def test_the_topics_of_dead_letters_are_found(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('[[sources]]\ndead_letters = "orders.dead"\n[[sinks]]\ndead_letters = "${DEAD}"\n')
    assert dead_letter_topics(file) == ["orders.dead"]


def test_a_file_that_is_gone_or_broken_names_none(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[")
    assert dead_letter_topics(tmp_path / "broken.toml") == dead_letter_topics(tmp_path / "gone.toml") == []
