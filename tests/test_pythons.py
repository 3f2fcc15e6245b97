"""Other versions of Python, installed or from `tools.pythons`: a cluster, a client and the simulator, no warning."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.pythons import interpreter

ROOT = Path(__file__).parent.parent
OTHERS = [version for version in ("3.11", "3.12", "3.13", "3.14") if not sys.version.startswith(f"{version}.")]
TIME_LIMIT_S = 600
CLUSTER_AND_CLIENT = """
import asyncio
from tidelog.client import Consumer, Producer
from tidelog.testing import Cluster

async def main(bootstrap):
    async with Producer(bootstrap) as producer:
        await producer.send("tides", b"high", key=b"k")
    async with Consumer(bootstrap, "tides", start="earliest") as consumer:
        async for record in consumer:
            print(record.value.decode())
            break

with Cluster(brokers=3) as kafka:
    asyncio.run(main(kafka.bootstrap_servers))
"""


def _found(version: str) -> str | None:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    installed = [shutil.which(f"python{version}"), *map(str, pyenv.glob(f"{version}.*/bin/python"))]
    for candidate in [*filter(None, installed), *filter(os.path.exists, [str(interpreter(version))])]:
        ended = subprocess.run([candidate, "-c", "import venv"], capture_output=True, timeout=60, check=False)
        if ended.returncode == 0:
            return candidate
    return None


def _run(*command: str | Path, given: str = "") -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TIDELOG_KERNELS": "interpreted"}
    ended = subprocess.run(
        list(map(str, command)),
        cwd=ROOT,
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.timeout(TIME_LIMIT_S)
@pytest.mark.parametrize("version", OTHERS)
def test_brokers_and_client_run(version: str, tmp_path: Path) -> None:
    found = _found(version)
    if found is None:
        pytest.skip(f"Python {version} is not installed; `python -m tools.pythons` gets it where Go is")
    _run(found, "-m", "venv", "--without-pip", tmp_path)
    python = tmp_path / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)  # some interpreters come without one
    options = ("--quiet", "--disable-pip-version-check", "--no-compile", "--require-hashes")
    _run(*pip, "install", *options, "-r", ROOT / "requirements" / "runtime.lock")
    assert "no invariant was violated" in _run(python, "-W", "error", "-m", "tidelog", "simulate", "--seeds", "2")
    assert _run(python, "-W", "error", "-c", CLUSTER_AND_CLIENT) == "high\n"
    assert _run(python, "-V").startswith(f"Python {version}.")
    _check_command_line((python, "-W", "error", "-m", "tidelog"), tmp_path / "data")


def _check_command_line(tidelog: Sequence[str | Path], data: Path) -> None:
    """Processes, files and TLS: the parts that depend on how the interpreter was built."""
    bootstrap = json.loads(_run(*tidelog, "up", "--data", data, "--port", "0", "--secure", "--detach", "--json"))
    try:
        place = ("--bootstrap", bootstrap["bootstrap"], "--command-config", bootstrap["command_config"])
        records = '{"key": "k", "value": "low"}\n'
        assert '"written": 1' in _run(*tidelog, "produce", "tides", "--input", "json", "--json", *place, given=records)
        _run(*tidelog, "kill", "2", "--data", data)
        _run(*tidelog, "start", "2", "--data", data)
        assert _run(*tidelog, "consume", "tides", "--from-beginning", "--max-messages", "1", *place) == "low\n"
    finally:
        _run(*tidelog, "down", "--data", data)
    assert _run(*tidelog, "log", "verify", data).startswith("sound: ")
