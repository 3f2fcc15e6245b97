"""`tidelog up --console`: the console runs next to the cluster, and ends with it."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from tests.cli.process import tidelog
from tests.console.running_console import RunningConsole
from tidelog.cli.local_cluster import console_process
from tidelog.cli.local_cluster.data_directory import DataDirectory
from tidelog.cli.local_cluster.plan import Plan
from tidelog.console.app import Console
from tidelog.testing import Cluster

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


@contextmanager
def running_cluster(data: Path, *flags: str) -> Generator[str]:
    """`tidelog up --console` with one broker in the foreground; yields the address of the console, as printed."""
    command = [sys.executable, "-m", "tidelog", "up", "--console", "--brokers", "1", "--port", "0", *flags]
    with subprocess.Popen([*command, "--data", str(data)], stdout=subprocess.PIPE, text=True) as cluster:
        assert cluster.stdout is not None
        try:
            yield next(line for line in cluster.stdout if line.startswith("console: ")).split()[1]
        finally:
            cluster.send_signal(signal.SIGINT)
            cluster.stdout.read()
            assert cluster.wait(TIME_LIMIT_S) == 0


def test_the_console_runs_while_the_cluster_does(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data") as url:
        about = _asked(url)
        assert (about["manage"], about["local"]) == (True, True)
        with urllib.request.urlopen(f"{url}api/brokers/1/log", timeout=TIME_LIMIT_S) as response:
            log = json.loads(response.read())
        assert log["file"] == str(tmp_path / "data" / "broker-1.log")
        assert any("broker started" in line for line in log["lines"])
    try:
        urllib.request.urlopen(url, timeout=TIME_LIMIT_S)
    except urllib.error.URLError:
        return
    raise AssertionError("the console still answers")


def test_the_console_of_a_secure_cluster_is_for_who_has_its_token(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_cluster(data, "--secure") as url:
        console, token = RunningConsole(url), url.partition("?token=")[2]
        assert len(token) > 20
        _wait_until_it_answers(console)
        _check_that_nobody_gets_in(console)
        _check_that_the_token_is_nowhere_else(data, token)
        about = console.get(f"/api/about?token={token}")
        assert (about["manage"], about["local"]) == (True, True)
        cookie = f"tidelog_console_{console.port}={token}"
        wanted = {"topic": "orders", "partitions": 1, "factor": 1}
        assert console.change("create-topic", wanted, Cookie=cookie)[0] == 200
        assert console.get("/api/topics/orders", Cookie=cookie)["name"] == "orders"
        users = console.get("/api/access", Cookie=cookie)["users"]["rows"]
        assert [each["user"] for each in users] == ["admin"]


def _wait_until_it_answers(console: RunningConsole) -> None:
    deadline = time.monotonic() + TIME_LIMIT_S
    while True:
        try:
            console.read("/")
            return
        except urllib.error.URLError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def _check_that_nobody_gets_in(console: RunningConsole) -> None:
    """Every path of the API and every change, without a token, with a wrong one, and with the cookie of another."""
    guess = "x" * 32
    for path in _paths_of_the_api():
        for headers in ({}, {"Cookie": f"tidelog_console_{console.port}={guess}"}):
            assert console.refused(path, **headers)[0] == 401, path
        assert console.refused(f"{path}?token={guess}")[0] == 401, path
    for change in ("create-topic", "delete-topic", "set", "kill", "start", "produce", "reset-offsets"):
        assert console.change(change, {"topic": "orders", "broker": 1})[0] == 401, change


def _paths_of_the_api() -> list[str]:
    entrance: Any = None
    paths = [route.path for route in Console(entrance).app().routes if isinstance(route, Route)]
    found = [re.sub(r"\{[^}]+\}", "1", path) for path in paths if path.startswith("/api/")]
    assert len(found) > 15
    return found


def _check_that_the_token_is_nowhere_else(data: Path, token: str) -> None:
    """Neither in arguments, which `ps` shows to everybody, nor in files."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            assert token.encode() not in (process / "cmdline").read_bytes()
    for file in data.rglob("*"):
        if file.is_file():
            assert token.encode() not in file.read_bytes(), file


def test_two_that_start_together_have_their_own_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as usual:
        port = usual.getsockname()[1]
    monkeypatch.setattr(console_process, "DEFAULT_PORT", port)
    with ExitStack() as running:
        cluster = running.enter_context(Cluster())
        plan = Plan(1, int(cluster.bootstrap_servers.rpartition(":")[2]), None)
        urls = []
        for name in ("first", "second"):
            data = DataDirectory(str(tmp_path / name))
            data.root.mkdir()
            data.keep(plan, {})
            urls.append(running.enter_context(console_process.running_console(data, plan)).split()[1])
        assert urls[0] == f"http://127.0.0.1:{port}/"
        assert urls[1] != urls[0]
        for url in urls:
            with urllib.request.urlopen(f"{url}api/about", timeout=TIME_LIMIT_S) as response:  # waits until it is up
                assert json.loads(response.read())["manage"] is True


def test_a_detached_cluster_has_no_console(tmp_path: Path) -> None:
    done = tidelog("up", "--detach", "--console", "--data", str(tmp_path / "data"))
    assert done.returncode == 1
    assert "run `tidelog console` next to it" in done.stderr
