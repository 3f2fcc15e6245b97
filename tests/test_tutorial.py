"""The tutorial: its commands are run one after another, as they stand there, on free ports."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.local_cluster import LocalCluster
from tools.ports import free_ports

PAGE = Path(__file__).parent.parent / "docs" / "tutorial.md"
LIMIT_S = 500
SPARK_PART = "## From a topic to a table"


def blocks() -> list[str]:
    """Without the part that needs Spark, which tests/cli/test_pipeline_commands.py and the demo go through."""
    return re.findall(r"```sh\n(.*?)```", PAGE.read_text().partition(SPARK_PART)[0], re.DOTALL)


def on_port(text: str, port: int) -> str:
    """The same with other ports: somebody may use the usual ones."""
    for number in range(3):
        text = text.replace(str(29092 + number), str(port + number)).replace(
            str(29192 + number), str(port + number + 100)
        )
    return text.replace("tidelog up", f"tidelog up --port {port}")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    program = tmp_path / "bin" / "tidelog"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tidelog "$@"\n')
    program.chmod(0o755)
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    yield tmp_path
    cluster = LocalCluster(tmp_path / "data", 3)
    cluster.end()


@pytest.mark.processes
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.skipif(shutil.which("kcat") is None or shutil.which("curl") is None, reason="needs kcat and curl")
def test_every_command_of_the_tutorial_works(place: Path) -> None:
    script = "set -euo pipefail\n" + on_port("\n".join(blocks()), free_ports(3))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TIDELOG_")}
    environment |= {
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "TIDELOG_PROFILES": str(place / "profiles.json"),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    ended = subprocess.run(
        ["bash", "-c", script], cwd=place, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for said in ("healthy: ", "low tide\nhigh tide\n", "exit code 1", "0 harbour 4.1", "sound: ", "ready"):
        assert said in ended.stdout, ended.stdout
    assert "retention.ms" in ended.stdout
    assert "the tide goes on" in ended.stdout


def test_page_has_commands() -> None:
    assert len(blocks()) >= 8
