"""`tidelog up --console`: the console runs next to the cluster, and ends with it."""

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.cli.process import tidelog

TIME_LIMIT_S = 120


def _asked(url: str) -> dict[str, object]:
    """The console takes a moment to start after its address was printed."""
    deadline = time.monotonic() + TIME_LIMIT_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}api/about", timeout=TIME_LIMIT_S) as response:
                found: dict[str, object] = json.loads(response.read())
                return found
        except urllib.error.URLError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_the_console_runs_while_the_cluster_does(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidelog", "up", "--console", "--brokers", "1", "--port", "0"]
    with subprocess.Popen([*command, "--data", str(tmp_path / "data")], stdout=subprocess.PIPE, text=True) as cluster:
        assert cluster.stdout is not None
        try:
            url = next(line for line in cluster.stdout if line.startswith("console: ")).split()[1]
            about = _asked(url)
            assert (about["manage"], about["local"]) == (True, True)
        finally:
            cluster.send_signal(signal.SIGINT)
            cluster.stdout.read()
            assert cluster.wait(TIME_LIMIT_S) == 0
    try:
        urllib.request.urlopen(url, timeout=TIME_LIMIT_S)
    except urllib.error.URLError:
        return
    raise AssertionError("the console still answers")


def test_a_detached_cluster_has_no_console(tmp_path: Path) -> None:
    done = tidelog("up", "--detach", "--console", "--data", str(tmp_path / "data"))
    assert done.returncode == 1
    assert "run `tidelog console` next to it" in done.stderr
