"""docs/testing.md: every Python example runs as a user would run it."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "testing.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
LARGE = ("faststream", "tidelog.spark")
"""Examples that need more than the package."""


def _run(directory: Path, examples: list[str]) -> str:
    for number, example in enumerate(examples):
        (directory / f"test_example_{number}.py").write_text(example)
    (directory / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -p no:cacheprovider\n")
    command = [sys.executable, "-m", "pytest", "-p", "tidelog.testing.pytest_plugin", "-p", "no:xdist", str(directory)]
    run = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=560, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def _examples_with(package: str) -> list[str]:
    if find_spec(package.partition(".")[0]) is None and not os.environ.get("CI"):
        pytest.skip(f"{package} is not installed; it is one of the development packages")
    return [example for example in EXAMPLES if package in example]


@pytest.mark.clients
def test_examples_of_the_page_run(tmp_path: Path) -> None:
    small = [example for example in EXAMPLES if not any(package in example for package in LARGE)]
    assert len(small) == 6
    assert "8 passed" in _run(tmp_path, small)


@pytest.mark.clients
def test_example_with_faststream(tmp_path: Path) -> None:
    assert "1 passed" in _run(tmp_path, _examples_with("faststream"))


@pytest.mark.spark
def test_example_with_pyspark(tmp_path: Path) -> None:
    assert "1 passed" in _run(tmp_path, _examples_with("tidelog.spark"))


def test_the_message_of_a_failed_assertion_is_the_one_on_the_page() -> None:
    from tidelog.testing.cluster_view import TopicRecord
    from tidelog.testing.topic_view import TopicView

    records = [TopicRecord(0, 0, None, b"low", (), 0), TopicRecord(0, 1, b"7", b"lower", (), 0)]
    with pytest.raises(AssertionError) as caught:
        TopicView(lambda *_, **__: records, "tides").should_have(value="high", count=1)
    assert f"AssertionError: {caught.value}\n" in PAGE.read_text()
