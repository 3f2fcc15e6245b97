"""The fork server: its processes are like those that Python would have started, but for the time."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kills.process_tree import descendants
from tidelog.runtime.process_identity import ProcessIdentity, identity_of, is_running
from tidelog.spark.accelerators import fork_client, fork_server, warm_python
from tidelog.spark.accelerators.python_launcher import launcher, pyspark_home
from tidelog.spark.accelerators.warm_python import ForkServerProcess, start_fork_server, switch_fork_server

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="other systems do not fork servers"),
    pytest.mark.timeout(300),
]

LIMIT_S = 240
CLIENT = [sys.executable, "-I", "-S", fork_client.__file__, sys.executable]
REPORT = """
import json, os, random, sys, numpy.random
reported = {"directory": os.getcwd(), "arguments": sys.argv[1:], "name": __name__, "pid": os.getpid()}
reported |= {"environment": dict(os.environ), "input": sys.stdin.read(), "is_warm": "pyspark.worker" in sys.modules}
reported |= {"random": random.random(), "numpy": numpy.random.random(), "path": sys.path}
print(json.dumps(reported))
print("an error", file=sys.stderr)
sys.exit(7)
"""
WAIT = """
import os, signal, sys
print(os.getpid(), flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServerProcess]:
    started = start_fork_server(os.environ)
    yield started
    started.process.communicate()  # ends its standard input
    assert started.process.returncode == 0
    assert not started.path.parent.exists()


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    (tmp_path / "report.py").write_text(REPORT)
    (tmp_path / "wait.py").write_text(WAIT)
    return tmp_path


def reported_by(server: ForkServerProcess | None, directory: Path) -> "tuple[subprocess.CompletedProcess[str], dict]":  # type: ignore[type-arg]
    path = "nowhere" if server is None else str(server.path)
    environment = {"PYTHONPATH": f"{directory}/more", "TIDELOG_TEST": "an\nodd=value"}
    command = [*CLIENT, path, "-m", "report", "an argument", "--flag"]
    ended = subprocess.run(
        command,
        input="text",
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return ended, json.loads(ended.stdout)


@pytest.mark.parametrize("is_warm", [True, False])
def test_a_process_is_as_python_would_start_it(server: ForkServerProcess, programs: Path, is_warm: bool) -> None:
    """Without a server it is that."""
    ended, reported = reported_by(server if is_warm else None, programs)
    assert (ended.returncode, ended.stderr) == (7, "an error\n")
    assert reported["is_warm"] is is_warm
    assert (reported["directory"], reported["arguments"]) == (str(programs), ["an argument", "--flag"])
    assert (reported["name"], reported["input"]) == ("__main__", "text")
    assert reported["environment"]["TIDELOG_TEST"] == "an\nodd=value"
    assert "HOME" not in reported["environment"]
    assert reported["path"][:2] == [str(programs), f"{programs}/more"]


def test_processes_draw_different_random_numbers(server: ForkServerProcess, programs: Path) -> None:
    (_, one), (_, other) = reported_by(server, programs), reported_by(server, programs)
    assert one["pid"] != other["pid"]
    assert one["random"] != other["random"]
    assert one["numpy"] != other["numpy"]


@contextmanager
def waiting(server: ForkServerProcess, directory: Path) -> "Iterator[tuple[subprocess.Popen[str], ProcessIdentity]]":
    """The process that stands for a forked one, and the forked one."""
    command = [*CLIENT, str(server.path), "-m", "wait"]
    with subprocess.Popen(
        command, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        forked = identity_of(int(client.stdout.readline()))
        assert forked is not None
        yield client, forked


def test_a_process_gets_the_signal_to_terminate(server: ForkServerProcess, programs: Path) -> None:
    with waiting(server, programs) as (client, forked):
        client.send_signal(signal.SIGTERM)
        assert client.wait(LIMIT_S) == 128 + signal.SIGTERM
        assert not is_running(forked)


def test_a_process_ends_with_the_one_that_stands_for_it(server: ForkServerProcess, programs: Path) -> None:
    with waiting(server, programs) as (client, forked):
        client.kill()
        client.communicate()  # its standard output ends with the last process that has it
        reported_by(server, programs)  # the server does one thing after another
        assert not is_running(forked)


def test_a_killed_process_is_reported(server: ForkServerProcess, programs: Path) -> None:
    with waiting(server, programs) as (client, forked):
        os.kill(forked.pid, signal.SIGKILL)
        assert client.wait(LIMIT_S) == 128 + signal.SIGKILL


def test_the_server_outlives_what_is_no_request(server: ForkServerProcess, programs: Path) -> None:
    for nonsense in (b"", b"short", b"\0" * 8, b"\xff" * 100):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(server.path))
            connection.sendall(nonsense)
    assert reported_by(server, programs)[1]["is_warm"]


def test_a_server_that_cannot_fork_leaves_it_to_its_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_fork() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", no_fork)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        connection = fork_client.ask(str(tmp_path / "socket"), ["-m", "report"])
        assert fork_server.ForkServer(listener, 0)._accept() is None
        assert fork_client.read_number(connection) is None
        connection.close()


@pytest.mark.parametrize("limit", ["", "PYSPARK_EXECUTOR_MEMORY_MB", "PYSPARK_PLANNER_MEMORY_MB"])
def test_the_launcher_asks_for_processes_without_a_limit_of_memory(tmp_path: Path, limit: str) -> None:
    """And starts Python itself if it gets no answer."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        environment = os.environ | {warm_python.VARIABLE: str(tmp_path / "socket")}
        environment |= {limit: "512"} if limit else {}
        command = [str(launcher(tmp_path)), "-m", "pyspark.find_spark_home"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as started:
            if not limit:
                listener.accept()[0].close()
            found, _ = started.communicate(timeout=LIMIT_S)
        assert (started.returncode, found.strip()) == (0, pyspark_home())
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_nothing_that_is_loaded_starts_a_thread() -> None:
    """A fork would lose it."""
    program = (
        "from tidelog.spark.accelerators import fork_server as s; s.load(); import sys; sys.exit(s.count_threads() - 1)"
    )
    environment = os.environ | warm_python.ONE_THREAD
    assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == 0


def test_all_modules_to_be_loaded_exist() -> None:
    """Those of the newest PySpark."""
    import importlib.util

    assert [name for name in fork_server.MODULES if importlib.util.find_spec(name) is None] == []


def test_a_session_without_it_names_no_server() -> None:
    environment = {warm_python.VARIABLE: "of another session"}
    switch_fork_server(environment, is_on=False)
    assert environment == {}


@pytest.mark.processes
def test_the_server_ends_with_a_killed_driver(tmp_path: Path) -> None:
    program = (
        "import os, signal\nfrom tidelog.spark.accelerators.warm_python import start_fork_server\n"
        "print(start_fork_server(os.environ).path, flush=True)\nsignal.pause()"
    )
    driver = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    path = Path(driver.stdout.readline().strip())
    (server,) = descendants(driver.pid)
    ended = os.pidfd_open(server.pid)
    driver.kill()
    driver.communicate()
    assert select.select([ended], [], [], LIMIT_S)[0]
    assert not path.parent.exists()
