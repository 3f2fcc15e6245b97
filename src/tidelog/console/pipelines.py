"""Pipelines of this machine as the page shows them, with the topics of their dead letters."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from tidelog.cli.pipeline_view import as_json
from tidelog.pipelines.running.pipeline_state import StateRejected, default_state_directory, list_pipelines

MAX_FILE_BYTES = 1024 * 1024


def describe_pipelines() -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for state in list_pipelines(default_state_directory()):
        try:
            status = state.present()
        except StateRejected as error:
            found.append({"name": state.name, "state": "failed", "error": str(error)})
            continue
        topics = [] if status is None else dead_letter_topics(Path(status.file))
        spark_ui = None if status is None else status.spark_ui
        found.append(as_json(state.name, status) | {"dead_letter_topics": topics, "spark_ui": spark_ui})
    return found


def dead_letter_topics(file: Path) -> list[str]:
    """None are known if the file has moved, or names them by an environment variable."""
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            return []
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return sorted({topic for topic in _named(content) if "$" not in topic})


def _named(content: object) -> Iterator[str]:
    if isinstance(content, list):
        for each in content:
            yield from _named(each)
    elif isinstance(content, dict):
        for key, value in content.items():
            if key == "dead_letters" and isinstance(value, str):
                yield value
            else:
                yield from _named(value)
