"""`tidelog partition` and `tidelog broker ACTION` as a newcomer meets them, on three brokers."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.local_cluster import LocalCluster, local_cluster
from tests.cli.process import TIME_LIMIT_S, tidelog
from tests.clients.driver import wait_until

TOPIC = "orders"
BULK = "bulk"
BULK_RECORDS = 30_000
"""Of a thousand bytes: half a minute for a move at 1 MB a second."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("data") / "cluster", 3) as running:
        running.up()
        good(running, "topic", "create", TOPIC, "--partitions", "4", "--replication-factor", "2")
        good(running, "produce", TOPIC, given="".join(f"{number:0500d}\n" for number in range(2_000)))
        yield running


def run(cluster: LocalCluster, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return tidelog(*arguments, "--bootstrap", cluster.bootstrap, stdin=given)


def good(cluster: LocalCluster, *arguments: str, given: str = "") -> str:
    ended = run(cluster, *arguments, given=given)
    assert ended.returncode == 0, ended
    return ended.stdout


def rejection(cluster: LocalCluster, *arguments: str, given: str = "") -> str:
    ended = run(cluster, *arguments, given=given)
    assert ended.returncode == 1, ended
    assert "Traceback" not in ended.stderr
    return ended.stderr.splitlines()[-1].partition(": ")[2]


def partitions(cluster: LocalCluster, topic: str = TOPIC) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(good(cluster, "partition", "list", "--topic", topic, "--json"))
    return found


def hosts(cluster: LocalCluster, topic: str = TOPIC) -> set[int]:
    return {broker for each in partitions(cluster, topic) for broker in each["replicas"]}


def test_brokers_and_partitions_are_listed(cluster: LocalCluster) -> None:
    listed = good(cluster, "broker", "list").splitlines()
    assert listed[0].split() == ["BROKER", "STATE", "ADDRESS", "RACK", "LEADS", "REPLICAS", "OUT", "OF", "SYNC", "SIZE"]
    assert [line.split()[:2] for line in listed[1:]] == [["1", "up"], ["2", "up"], ["3", "up"]]
    assert sum("controller" in line for line in listed) == 1
    assert "replicas     " in good(cluster, "broker", "describe", "1")
    assert good(cluster, "partition", "list").splitlines()[1].startswith("orders-0")
    assert good(cluster, "partition", "list", "--unhealthy") == "all partitions are healthy\n"
    assert "is healthy" in good(cluster, "partition", "why", TOPIC, "0")
    assert "lead" in good(cluster, "partition", "elect")


def test_plan_is_shown_and_nothing_happens_without_consent(cluster: LocalCluster) -> None:
    before = partitions(cluster)
    shown = good(cluster, "partition", "move", "--drain", "3", "--dry-run")
    assert "to copy" in shown.splitlines()[-1]
    ended = run(cluster, "partition", "move", "--drain", "3")
    assert (ended.returncode, ended.stdout) == (1, shown)
    assert ended.stderr.endswith("add --yes to carry out the plan, or --dry-run to only show it\n")
    assert partitions(cluster) == before


def test_drained_broker_hosts_nothing_and_gets_its_share_back(cluster: LocalCluster) -> None:
    drained = good(cluster, "partition", "move", "--drain", "3", "--topic", TOPIC, "--yes", "--throttle", "50MB")
    assert drained.splitlines()[-1].startswith("moved: ")
    assert hosts(cluster) == {1, 2}
    assert "throttled" not in good(cluster, "broker", "describe", "1") + good(cluster, "topic", "describe", TOPIC)
    assert good(cluster, "partition", "move", "--status") == "no partition is being moved\n"
    plan = good(cluster, "partition", "move", "--add-broker", "3", "--topic", TOPIC, "--dry-run", "--json")
    assert json.loads(plan)["version"] == 1
    done = json.loads(good(cluster, "partition", "move", "--plan", "-", "--yes", "--json", given=plan))
    assert (done["state"], done["partitions_done"]) == ("completed", done["partitions_total"])
    assert hosts(cluster) == {1, 2, 3}
    again = good(cluster, "partition", "move", "--plan", "-", "--yes", given=plan)
    assert again == "nothing to move: the replicas are as wanted already\n"


@contextmanager
def slow_move(cluster: LocalCluster, plan: str) -> Iterator[subprocess.Popen[str]]:
    """A command that has begun a move and follows it."""
    command = [sys.executable, "-m", "tidelog", "partition", "move", "--plan", plan, "--yes", "--throttle", "1MB"]
    with subprocess.Popen(
        [*command, "--bootstrap", cluster.bootstrap], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(lambda: process.poll() is not None or is_moving(cluster), "the move begins")
        assert process.poll() is None, process.communicate()
        yield process


def begin_slow_move(cluster: LocalCluster, plan: str) -> None:
    """A move whose command is interrupted as soon as it follows the move."""
    with slow_move(cluster, plan) as process:
        assert process.stderr is not None
        assert "left" in process.stderr.readline(), "no line of progress"
        process.send_signal(signal.SIGINT)
        _, shown = process.communicate(timeout=TIME_LIMIT_S)
    assert process.returncode == 130
    assert "The brokers go on with the move." in shown


def cancel_while_followed(cluster: LocalCluster, plan: str) -> tuple[int, str]:
    """Exit code and last line of a command whose move is cancelled by another command."""
    with slow_move(cluster, plan) as process:
        good(cluster, "partition", "move", "--cancel")
        _, shown = process.communicate(timeout=TIME_LIMIT_S)
    return process.returncode, shown.splitlines()[-1]


def is_moving(cluster: LocalCluster) -> bool:
    return bool(status_of_moves(cluster)["state"] == "moving")


def status_of_moves(cluster: LocalCluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(good(cluster, "partition", "move", "--status", "--json"))
    return found


def test_interrupted_move_goes_on_and_is_cancelled_or_waited_for(cluster: LocalCluster, tmp_path: Path) -> None:
    good(cluster, "topic", "create", BULK, "--partitions", "1", "--replication-factor", "1")
    good(cluster, "produce", BULK, given=f"{0:01000d}\n" * BULK_RECORDS)
    (source,) = hosts(cluster, BULK)
    target = source % 3 + 1
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": BULK, "partition": 0, "replicas": [target]}]}))
    begin_slow_move(cluster, str(plan))
    status = status_of_moves(cluster)
    assert (status["state"], status["is_throttled"]) == ("moving", True)
    assert "is being moved already" in rejection(cluster, "partition", "move", "--plan", str(plan), "--yes")
    assert good(cluster, "partition", "move", "--cancel").startswith("cancelled 1 move")
    assert hosts(cluster, BULK) == {source}
    assert "throttled" not in good(cluster, "topic", "describe", BULK)
    followed = cancel_while_followed(cluster, str(plan))
    assert followed == (1, f"tidelog partition move: 1 of 1 partition not moved: {BULK}-0 (cancelled)")
    begin_slow_move(cluster, str(plan))
    assert good(cluster, "partition", "move", "--wait").splitlines()[-1].startswith("moved: ")
    assert hosts(cluster, BULK) == {target}
    assert "throttled" not in good(cluster, "topic", "describe", BULK) + good(cluster, "broker", "describe", "1")
    good(cluster, "topic", "delete", BULK)


def test_status_does_not_remove_a_throttle(cluster: LocalCluster) -> None:
    """Another command may have set it for a move that is about to begin."""
    good(cluster, "config", "set", "broker", "1", "leader.replication.throttled.rate=1000000")
    idle = "no partition is being moved"
    for _ in range(2):
        shown = good(cluster, "partition", "move", "--status")
        assert shown == f"{idle}; a throttle is set, `tidelog partition move --wait` removes it\n"
    assert good(cluster, "partition", "move", "--wait") == f"{idle}; removed the throttle of the last move\n"
    assert good(cluster, "partition", "move", "--status") == f"{idle}\n"


def test_terminal_is_asked(cluster: LocalCluster) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tidelog", "partition", "move", "--drain", "3", "--bootstrap", cluster.bootstrap]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, text=True) as process:
        os.write(ours, b"n\n")
        output, _ = process.communicate(timeout=TIME_LIMIT_S)
    assert process.returncode == 0
    assert output.endswith("Carry out this plan? [y/N] nothing was changed\n")
    os.close(ours)
    os.close(theirs)


def test_what_cannot_be_done_is_reported_in_one_sentence(cluster: LocalCluster, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 9]}]}')
    assert "orders-0 cannot move to broker 9" in rejection(cluster, "partition", "move", "--plan", str(plan), "--yes")
    assert "No such file" in rejection(cluster, "partition", "move", "--plan", "missing.json")
    assert "there is no broker 9" in rejection(cluster, "partition", "move", "--drain", "9")
    assert "start it first" in rejection(cluster, "partition", "move", "--add-broker", "9")
    assert "topic nowhere does not exist" in rejection(cluster, "partition", "move", "--balance", "--topic", "nowhere")
    assert "has no partition 7" in rejection(cluster, "partition", "why", TOPIC, "7")
    for whole in (f"{TOPIC}-7", f"{TOPIC}:7"):
        assert "has no partition 7" in rejection(cluster, "partition", "why", whole)
    assert f"which partition of {TOPIC}?" in rejection(cluster, "partition", "why", TOPIC)
    assert "has no partition 7" in rejection(cluster, "partition", "elect", f"{TOPIC}:7")
    assert "there is no broker 9" in rejection(cluster, "broker", "describe", "9")
    assert "there is no broker 9" in rejection(cluster, "broker", "forget", "9")
    assert "broker 1 is up and cannot be forgotten" in rejection(cluster, "broker", "forget", "1")


def test_dead_broker_is_explained_drained_and_forgotten(cluster: LocalCluster) -> None:
    cluster.run("kill", "3")
    wait_until(lambda: "3  down" in good(cluster, "broker", "list"), "the broker is gone")
    said = rejection(cluster, "broker", "forget", "3")
    assert "`tidelog partition move --drain 3`" in said
    number = next(each["partition"] for each in partitions(cluster) if 3 in each["replicas"])
    assert "under-replicated" in good(cluster, "partition", "why", TOPIC, str(number))
    good(cluster, "partition", "move", "--drain", "3", "--yes")
    assert hosts(cluster) == {1, 2}
    assert "3  down" in good(cluster, "broker", "list"), "it is a member until it is forgotten"
    assert "down" in good(cluster, "broker", "describe", "3")
    assert good(cluster, "broker", "forget", "3") == "forgot broker 3; if it starts again, it joins as a new broker\n"
    assert "down" not in good(cluster, "broker", "list")
