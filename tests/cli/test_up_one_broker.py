"""`tidelog up`, `status`, `kill`, `start` and `down` as a user meets them, with one broker."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.client import consume, produce
from tests.cli.local_cluster import LocalCluster, local_cluster
from tests.cli.process import TIME_LIMIT_S, contents, tidelog
from tidelog.cli.main import main

CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
PAUSE_S = 0.02


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path / "data", brokers=1) as found:
        yield found


def wait_for(condition: object, what: str) -> None:
    assert callable(condition)
    deadline = time.monotonic() + TIME_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"still waiting: {what}"
        time.sleep(PAUSE_S)


def foreground(cluster: LocalCluster, *flags: str) -> "subprocess.Popen[str]":
    """`tidelog up` in the foreground, once it has said where to connect."""
    command = [sys.executable, "-m", "tidelog", *cluster.up_arguments(*flags)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("bootstrap: "):
            return process
    raise AssertionError(f"it ended with {process.wait()}")


def test_detached_cluster_takes_writes_when_the_command_returns(cluster: LocalCluster) -> None:
    said = cluster.up()
    assert said.splitlines()[-1] == f"bootstrap: {cluster.bootstrap}"
    assert f"broker 1 is ready: 127.0.0.1:{cluster.port} (pid {cluster.pid(1)})" in said
    produce(cluster.bootstrap, "greetings", "hello")
    (broker,) = cluster.status()["brokers"]
    assert broker == {
        "id": 1,
        "host": "127.0.0.1",
        "port": cluster.port,
        "pid": cluster.pid(1),
        "state": "up",
        "suspension": None,
        "stray_logs": [],
        "offline_log_dirs": {},
    }


def test_the_disks_of_a_broker_are_shown(cluster: LocalCluster) -> None:
    cluster.up()
    produce(cluster.bootstrap, "greetings", "hello")
    ended = tidelog("broker", "disks", "--bootstrap", cluster.bootstrap)
    assert ended.returncode == 0, ended
    assert ended.stdout.splitlines()[1].split()[:3] == ["1", str(cluster.data / "broker-1"), "online"]
    shown = json.loads(tidelog("broker", "disks", "--json", "--bootstrap", cluster.bootstrap).stdout)
    assert [(each["state"], each["partitions"]) for each in shown["directories"]] == [("online", 1)]
    assert shown["moves"] == []


def test_state_is_kept_between_runs(cluster: LocalCluster) -> None:
    cluster.up()
    produce(cluster.bootstrap, "greetings", "hello", "tide")
    stopped = cluster.run("down")
    assert stopped.splitlines() == ["broker 1 stopped", f"all brokers of {cluster.data} have stopped"]
    assert (cluster.data / "broker-1" / CLEAN_SHUTDOWN_MARKER).exists()
    assert cluster.states() == {1: "down"}
    again = cluster.run("up", "--detach")
    assert again.splitlines()[-1] == f"bootstrap: {cluster.bootstrap}"
    assert consume(cluster.bootstrap, "greetings", 2) == ["hello", "tide"]


def test_up_again_leaves_what_runs_alone(cluster: LocalCluster) -> None:
    cluster.up()
    pid = cluster.pid(1)
    assert "already running" in cluster.up()
    assert cluster.pid(1) == pid


def test_killed_broker_stays_down_until_it_is_started(cluster: LocalCluster) -> None:
    cluster.up("--log-format", "json")
    produce(cluster.bootstrap, "greetings", "hello")
    assert "was killed" in cluster.run("kill", "1")
    assert cluster.states() == {1: "down"}
    assert "is not running" in cluster.rejection("kill", "1")
    assert "broker 1 is ready" in cluster.run("start", "1")
    assert "is already running" in cluster.rejection("start", "1")
    assert consume(cluster.bootstrap, "greetings", 1) == ["hello"]
    events = [json.loads(line) for line in (cluster.data / "broker-1.log").read_text().splitlines()]
    assert len([event for event in events if event["message"] == "broker started"]) == 2, "also what `start` started"


def test_partitions_are_shown_with_leader_in_sync_replicas_and_high_watermark(cluster: LocalCluster) -> None:
    cluster.up()
    produce(cluster.bootstrap, "greetings", "hello", "tide")
    found = cluster.status()
    assert found["controller"] == 1
    (partition,) = found["partitions"]
    del partition["leader_epoch"]
    assert partition == {
        "topic": "greetings",
        "partition": 0,
        "leader": 1,
        "replicas": [1],
        "isr": [1],
        "high_watermark": 2,
        "lag": {"1": 0},
        "out_of_sync": [],
        "move": None,
        "min_in_sync": 1,
        "is_writable": True,
    }
    shown = tidelog("status", "--bootstrap", cluster.bootstrap)
    assert "greetings-0" in shown.stdout
    assert "all in sync" in shown.stdout


def test_settings_are_checked_given_to_all_brokers_and_kept(cluster: LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "mine.properties"
    file.write_text("num.partitions=2\n")
    cluster.up("--config", str(file), "--set", "log.retention.hours=5")
    settings = cluster.data / "server.properties"
    assert "num.partitions=2\n" in settings.read_text()
    produce(cluster.bootstrap, "greetings", "hello")
    assert len(cluster.status()["partitions"]) == 2
    cluster.run("down")
    cluster.run("up", "--detach", "--set", "num.partitions=3")
    produce(cluster.bootstrap, "others", "hello")
    assert len(cluster.status()["partitions"]) == 2 + 3
    assert "log.retention.hours=5\n" in settings.read_text()


def test_ctrl_c_in_the_foreground_stops_in_good_order(cluster: LocalCluster) -> None:
    with foreground(cluster) as process:
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=TIME_LIMIT_S)
    assert process.returncode == 0
    assert said.splitlines()[-2:] == ["stopping the brokers", "broker 1 stopped"]
    assert (cluster.data / "broker-1" / CLEAN_SHUTDOWN_MARKER).exists()


def test_foreground_reports_deaths_and_down_ends_it(cluster: LocalCluster) -> None:
    with foreground(cluster) as process:
        assert "in use by another `tidelog up`" in cluster.rejection("up")
        pid = cluster.pid(1)
        cluster.run("kill", "1")
        cluster.run("start", "1")
        assert cluster.run("down").splitlines()[-1] == f"all brokers of {cluster.data} have stopped"
        said, _ = process.communicate(timeout=TIME_LIMIT_S)
    assert process.returncode == 0
    assert f"broker 1 (pid {pid}) was killed by signal 9" in said
    assert "broker 1 stopped" in said


def test_broker_is_started_again_where_that_was_asked_for(cluster: LocalCluster) -> None:
    cluster.up("--restart")
    pid = cluster.pid(1)
    assert "the supervisor restarts it" in cluster.run("kill", "1")
    wait_for(lambda: cluster.pid(1) != pid and cluster.states() == {1: "up"}, "broker 1 is up again")
    cluster.up("--restart")
    assert "in use by another `tidelog up`" in cluster.rejection("up")
    cluster.run("down")
    assert cluster.states() == {1: "down"}
    assert "broker 1 was restarted" in (cluster.data / "supervisor.log").read_text()


def test_paused_broker_is_shown_as_such_and_stops_all_the_same(cluster: LocalCluster) -> None:
    cluster.up()
    os.kill(cluster.pid(1), signal.SIGSTOP)
    assert cluster.states() == {1: "paused"}
    cluster.run("down")
    assert (cluster.data / "broker-1" / CLEAN_SHUTDOWN_MARKER).exists()


def test_broker_that_cannot_start_gives_its_reason(cluster: LocalCluster) -> None:
    cluster.up()
    cluster.run("down")
    (cluster.data / "server.properties").write_text("num.partition=2\n")
    said = cluster.rejection("up", "--detach")
    assert said.startswith("broker 1 did not start: ")
    assert said.endswith("num.partition: unknown setting; did you mean num.partitions?")


def test_port_in_use_is_refused_and_nothing_is_made(cluster: LocalCluster) -> None:
    with socket.create_server(("127.0.0.1", cluster.port)):
        said = cluster.rejection("up", "--detach", "--port", str(cluster.port))
    assert said == (
        f"broker 1 cannot listen on 127.0.0.1:{cluster.port}: Address already in use; choose another port with --port"
    )
    assert not cluster.data.exists()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--set", "broker.id=4"], "broker.id cannot be set: `tidelog up` sets it"),
        (["--set", "num.partition=4"], "did you mean num.partitions?"),
        (["--config", "missing.properties"], "missing.properties: No such file or directory"),
        (["--brokers", "0"], "must be between 1 and 100"),
        (["--port", "65534"], "must be between 1 and 65535"),
    ],
)
def test_mistaken_flags_are_refused_and_nothing_is_made(cluster: LocalCluster, flags: list[str], sentence: str) -> None:
    assert sentence in cluster.rejection("up", "--detach", *flags)
    assert not cluster.data.exists()


def test_what_contradicts_the_data_is_refused(cluster: LocalCluster) -> None:
    # A running broker would write its checkpoints meanwhile, if the commands take long enough.
    cluster.up("--set", "replica.high.watermark.checkpoint.interval.ms=3600000")
    before = contents(cluster.data).keys()
    assert "holds a cluster of one broker, but --brokers is 3" in cluster.rejection("up", "--brokers", "3")
    assert "--zookeeper is" in cluster.rejection("up", "--detach", "--zookeeper", "127.0.0.1:2181")
    assert "runs on port" in cluster.rejection("up", "--detach", "--port", str(cluster.port + 1))
    assert "has no broker 2" in cluster.rejection("kill", "2")
    assert "has no broker 2" in cluster.rejection("start", "2")
    assert contents(cluster.data).keys() == before
    assert cluster.states() == {1: "up"}


def test_directory_of_something_else_is_refused(cluster: LocalCluster) -> None:
    cluster.data.mkdir()
    (cluster.data / "thesis.txt").write_text("mine")
    for command in (["up", "--detach"], ["down"], ["status"], ["kill", "1"], ["start", "1"]):
        assert "it contains thesis.txt" in cluster.rejection(*command)
    assert [*contents(cluster.data)] == ["thesis.txt"]


def test_ctrl_c_while_brokers_start_stops_them(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("tidelog.cli.local_cluster.foreground.wait_for_cluster", interrupt)
    assert main(cluster.up_arguments("--detach")) == 130
    assert capfd.readouterr().err.splitlines()[0] == "interrupted: stopping the brokers that were started"
    assert cluster.rejection("down") == f"no broker of {cluster.data} is running"


def test_the_life_of_a_cluster_in_json(cluster: LocalCluster) -> None:
    started = json.loads(cluster.up("--json"))
    (broker,) = started["brokers"]
    assert started["bootstrap"] == broker["address"] == cluster.bootstrap
    assert broker["pid"] == cluster.pid(1)
    assert json.loads(cluster.run("kill", "1", "--json")) == {"broker": 1, "pid": broker["pid"], "is_restarted": False}
    assert json.loads(cluster.run("start", "1", "--json")) == {**broker, "pid": cluster.pid(1)}
    assert json.loads(cluster.run("down", "--json")) == {"data": str(cluster.data), "stopped": [1]}
    said = cluster.rejection("up", "--json")
    assert said == "--json needs --detach; in the foreground, `tidelog status --json` shows the cluster"


def test_nothing_there_and_nothing_running_are_refused(cluster: LocalCluster) -> None:
    for command in (["down"], ["status"], ["kill", "1"], ["start", "1"]):
        assert "no cluster in" in cluster.rejection(*command)
    assert not cluster.data.exists()
    cluster.up()
    cluster.run("down")
    assert cluster.rejection("down") == f"no broker of {cluster.data} is running"


def test_nobody_at_the_bootstrap_address_is_refused(cluster: LocalCluster) -> None:
    asked = tidelog("status", "--bootstrap", cluster.bootstrap)
    hint = "start a cluster with `tidelog up`, or give the address of yours with --bootstrap HOST:PORT"
    sentence = f"tidelog status: no broker answers at {cluster.bootstrap} (Connection refused); {hint}\n"
    assert (asked.returncode, asked.stderr, asked.stdout) == (2, sentence, ""), "nothing can be written there"
    in_json = tidelog("status", "--json", "--bootstrap", cluster.bootstrap)
    assert (in_json.returncode, json.loads(in_json.stdout)["health"]) == (2, "not_writable")
    mistaken = tidelog("status", "--bootstrap", "nowhere")
    assert mistaken.returncode == 1
    assert "expected HOST:PORT" in mistaken.stderr


def test_port_0_chooses_a_free_port_and_keeps_it(cluster: LocalCluster) -> None:
    cluster.port = 0
    bootstrap = cluster.up().splitlines()[-1]
    port = int(bootstrap.removeprefix("bootstrap: 127.0.0.1:"))
    assert port > 0
    produce(f"127.0.0.1:{port}", "greetings", "hello")
    assert cluster.up().splitlines()[-1] == bootstrap
