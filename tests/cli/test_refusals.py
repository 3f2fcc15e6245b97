"""Refusals of `tidelog broker`: one clear sentence, exit code 1, and nothing has changed."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.process import contents, nodes_of, running_broker, settings, tidelog, without_store

HOLD_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
input()
"""


def rejection(*arguments: str) -> list[str]:
    """What a broker that must not start says on standard error."""
    ended = tidelog("broker", *arguments)
    assert ended.returncode == 1, ended
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    assert all(line.startswith("tidelog broker: ") for line in lines), ended.stderr
    return [line.removeprefix("tidelog broker: ") for line in lines]


def run_once(log_file: Path, *arguments: str) -> None:
    with running_broker(log_file, *arguments) as broker:
        assert broker.stop() == 0


@contextmanager
def holding_a_java_lock(path: Path) -> Iterator[None]:
    """Another process holds the file as Java's FileChannel does."""
    command = [sys.executable, "-c", HOLD_LOCK, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield
        finally:
            process.kill()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_port_in_use(tmp_path: Path, taken_port: int) -> None:
    log_dir = tmp_path / "data"
    said = rejection(*settings(log_dir, listeners=f"PLAINTEXT://127.0.0.1:{taken_port}"))
    assert said == [
        f"cannot listen on 127.0.0.1:{taken_port}: Address already in use;"
        " choose another address with --set listeners=PLAINTEXT://HOST:PORT"
    ]
    assert not log_dir.exists()


def test_log_dir_of_another_cluster(tmp_path: Path) -> None:
    store = tmp_path / "store" / "cluster.sqlite"
    run_once(tmp_path / "log", *settings(tmp_path / "own", coordination_store=str(store)))
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "meta.properties").write_text("version=0\ncluster.id=AnotherClusterAAAAAAAA\n")
    before, nodes_before = contents(foreign), nodes_of(store)
    (said,) = rejection(*settings(foreign, coordination_store=str(store)))
    assert said.startswith(f"log dir {foreign} belongs to cluster.id=AnotherClusterAAAAAAAA and this broker has")
    assert contents(foreign) == before
    assert nodes_of(store) == nodes_before


def test_log_dirs_of_two_clusters(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    run_once(tmp_path / "log", *settings(first))
    run_once(tmp_path / "log", *settings(second))
    before = contents(tmp_path)
    (said,) = rejection(*settings(first, second))
    assert said.startswith(f"log dir {second} belongs to cluster.id=")
    assert contents(tmp_path) == before


def test_log_dir_of_another_broker(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    run_once(tmp_path / "log", *settings(log_dir, broker_id="3"))
    before = contents(log_dir)
    said = rejection(*settings(log_dir, broker_id="4"))
    assert said == [f"log dir {log_dir} belongs to broker.id=3 and this broker has broker.id=4 (meta.properties)"]
    assert contents(log_dir) == before


def test_log_dir_in_use(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    undisturbed = {"replica_high_watermark_checkpoint_interval_ms": "600000"}
    with running_broker(tmp_path / "log", *settings(log_dir, **undisturbed)) as broker:
        before = without_store(contents(log_dir))
        assert rejection(*settings(log_dir)) == [f"log dir {log_dir} is in use by another process"]
        assert without_store(contents(log_dir)) == before
        assert broker.stop() == 0


def test_log_dir_in_use_by_apache_kafka(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=0\n")
    with holding_a_java_lock(tmp_path / ".lock"):
        before = contents(tmp_path)
        assert rejection(*settings(tmp_path)) == [f"log dir {tmp_path} is in use by another process"]
        assert contents(tmp_path) == before


def test_second_broker_with_the_same_id_in_one_cluster(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    store = own / "coordination.sqlite"
    with running_broker(tmp_path / "log", *settings(own, broker_id="0")) as broker:
        nodes_before = nodes_of(store)
        impatient = {"broker_session_timeout_ms": "1000", "broker_heartbeat_interval_ms": "300"}
        wanted = settings(other, coordination_store=str(store), broker_id="0", **impatient)
        (said,) = rejection("--log-level", "warning", *wanted)  # it waits a while, and says so
        assert said == "another broker with id 0 is running in this cluster"
        assert not other.exists()
        assert nodes_of(store) == nodes_before
        assert broker.stop() == 0


def test_file_where_the_log_dir_should_be(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("something of mine")
    said = [*rejection(*settings(file)), *rejection(*settings(file / "below"))]
    assert said[0] == f"cannot use {file}: it is a file, and must be a directory"
    assert said[1] == f"cannot use {file / 'below'}: it is a file, and must be a directory"
    assert contents(tmp_path) == {"data": b"something of mine"}


def test_coordination_store_that_is_something_else(tmp_path: Path) -> None:
    store = tmp_path / "coordination.sqlite"
    store.write_text("something of mine, and long enough for a header" * 10)
    before = contents(tmp_path)
    assert rejection(*settings(tmp_path)) == [f"{store}: file is not a database"]
    assert contents(tmp_path) == before


def test_unknown_setting(tmp_path: Path) -> None:
    said = rejection("--set", f"log.dir={tmp_path / 'data'}", "--set", "log.retention.hour=5")
    assert said == ["--set: log.retention.hour: unknown setting; did you mean log.retention.hours?"]
    assert contents(tmp_path) == {}


def test_all_mistakes_of_a_file_and_the_flags_at_once(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"# one good line\nlog.dirs={tmp_path / 'data'}\nnum.partition=3\n\nlog.segment.bytes=many\n")
    assert rejection("--config", str(file), "--set", "nonsense") == [
        "--set nonsense: expected key=value",
        f"{file}:3: num.partition: unknown setting; did you mean num.partitions?",
        f"{file}:5: log.segment.bytes=many: not a number of type INT",
    ]
    assert [*contents(tmp_path)] == ["server.properties"]


def test_settings_file_that_is_something_else(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text("Some words.\n" * 150)
    few = [f"{file}:{line}: Some: unknown setting" for line in (1, 2, 3)]
    few.append(f"and 147 more mistakes; is {file} a server.properties file?")
    assert rejection("--config", str(file)) == few
    ended = tidelog("up", "--data", str(tmp_path / "data"), "--config", str(file))
    assert (ended.returncode, ended.stderr) == (1, f"tidelog up: {'; '.join(few)}\n")


def test_missing_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    assert rejection("--config", str(file)) == [f"{file}: No such file or directory"]
