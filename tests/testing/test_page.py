"""docs/testing.md: every Python example runs as a user would run it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "testing.md"


@pytest.mark.clients
def test_examples_of_the_page_run(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 4
    for number, example in enumerate(examples):
        (tmp_path / f"test_example_{number}.py").write_text(example)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -p no:cacheprovider\n")
    command = [sys.executable, "-m", "pytest", "-p", "tidelog.testing.pytest_plugin", "-p", "no:xdist", str(tmp_path)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "3 passed" in run.stdout
