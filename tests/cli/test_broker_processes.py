"""Several brokers of one machine: `tidelog broker --processes` and `tidelog up --per-core`."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.cli.client import consume, create_topic, produce
from tests.cli.process import TIME_LIMIT_S, settings, tidelog
from tidelog.cli.broker_processes import LogOptions, ProcessSettings, _exit_code, check, process_of
from tidelog.cli.command_error import CommandError
from tidelog.cli.local_cluster.plan import (
    Plan,
    PlanOptions,
    brokers_per_core,
    parse_plan,
    plan_text,
    resolve_plan,
    settings_per_core,
)
from tidelog.config.broker import BrokerSettings
from tidelog.config.loading import SettingsError, load_broker_settings
from tools.ports import free_ports


def loaded(**values: str) -> BrokerSettings:
    given = {"broker_id": "10", "log_dirs": "/data/a,/data/b", "listeners": "PLAINTEXT://0.0.0.0:9092"} | values
    return load_broker_settings(None, [f"{name.replace('_', '.')}={value}" for name, value in given.items()])


def processes(count: int, **values: str) -> list[ProcessSettings]:
    found = loaded(**values)
    brokers = [process_of(found, number, "host-a") for number in range(count)]
    check(found, brokers, count)
    return brokers


def test_ids_ports_and_directories_count_up() -> None:
    (_, second) = processes(
        2, advertised_listeners="PLAINTEXT://tide.example:9092", metrics_listener=":9192", zookeeper_connect="zoo:2181"
    )
    assert second.values == {
        "broker.id": "11",
        "broker.rack": "host-a",
        "listeners": "PLAINTEXT://0.0.0.0:9093",
        "advertised.listeners": "PLAINTEXT://tide.example:9093",
        "log.dirs": "/data/a/broker-11,/data/b/broker-11",
        "metrics.listener": ":9193",
    }


def test_brokers_share_the_embedded_store() -> None:
    assert {each.values["coordination.store"] for each in processes(3)} == {"/data/a/coordination.sqlite"}


@pytest.mark.parametrize(
    ("values", "mistake"),
    [
        ({"broker_id": "-1"}, "set broker.id"),
        ({"listeners": "PLAINTEXT://127.0.0.1:0"}, "fixed ports"),
        ({"metrics_listener": ":9093"}, "at least 2 apart"),
    ],
)
def test_settings_that_cannot_be_shared_are_refused(values: dict[str, str], mistake: str) -> None:
    with pytest.raises(SettingsError, match=mistake):
        processes(2, **values)


def test_data_of_a_single_broker_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    with pytest.raises(SettingsError, match="holds the data of a single broker"):
        processes(2, log_dirs=str(tmp_path))


def test_each_broker_has_a_log_file() -> None:
    assert LogOptions(file="/var/log/tide.log").arguments(3)[-1] == "/var/log/tide-3.log"
    assert LogOptions(audit_file="/var/log/audit").arguments(3)[-2:] == ["--audit-log", "/var/log/audit-3"]


def test_cluster_per_core_has_a_broker_for_each_core_and_one_replica() -> None:
    requested = brokers_per_core(PlanOptions(is_per_core=True), None, 8)
    plan = resolve_plan(requested, None, "data")
    assert (plan.brokers, plan.is_per_core) == (8, True)
    assert parse_plan(plan_text(plan), "cluster.json") == plan
    again = resolve_plan(brokers_per_core(PlanOptions(is_per_core=True), plan, 16), plan, "data")
    assert again == plan, "a cluster keeps its brokers"
    found = settings_per_core("host-a")
    assert (found["broker.rack"], found["default.replication.factor"]) == ("host-a", "1")
    with pytest.raises(CommandError, match="exclude each other"):
        brokers_per_core(PlanOptions(brokers=3, is_per_core=True), None, 8)
    with pytest.raises(CommandError, match="not made with --per-core"):
        resolve_plan(PlanOptions(is_per_core=True), Plan(3, 29092, None), "data")


@pytest.fixture
def ended() -> Iterator[Callable[["subprocess.Popen[str]"], None]]:
    """Ends the process at the end of the test, whatever it did."""
    started: list[subprocess.Popen[str]] = []
    yield started.append
    for process in started:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIME_LIMIT_S)


def pids_and_addresses(process: "subprocess.Popen[str]", count: int) -> dict[int, tuple[int, str]]:
    """By broker id, from the next lines that say who is ready."""
    assert process.stdout is not None
    ready = re.compile(r"broker (\d+) \(pid (\d+)\): listening on (\S+)")
    found = islice(filter(None, map(ready.fullmatch, (line.rstrip("\n") for line in process.stdout))), count)
    return {int(each[1]): (int(each[2]), each[3]) for each in found}


def leaders(admin: AdminClient, topic: str) -> set[int]:
    found = admin.list_topics(timeout=TIME_LIMIT_S).topics.get(topic)
    return {each.leader for each in found.partitions.values()} if found is not None else set()


def test_processes_form_one_cluster_and_are_started_again(
    tmp_path: Path, ended: Callable[["subprocess.Popen[str]"], None]
) -> None:
    listener = f"PLAINTEXT://127.0.0.1:{free_ports(2)}"
    flags = settings(tmp_path / "data", broker_id="7", listeners=listener)
    command = [sys.executable, "-m", "tidelog", "broker", "--processes", "2", "--log-level", "error", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    ended(process)
    brokers = pids_and_addresses(process, 2)
    assert sorted(brokers) == [7, 8]
    address = brokers[7][1]
    create_topic(address, "orders", 4)
    admin, deadline = AdminClient({"bootstrap.servers": address}), time.monotonic() + TIME_LIMIT_S
    while leaders(admin, "orders") != {7, 8}:
        assert time.monotonic() < deadline, "partitions are led by both"
        time.sleep(0.05)

    os.kill(brokers[8][0], signal.SIGKILL)
    ((again, (pid, _)),) = pids_and_addresses(process, 1).items()
    assert again == 8
    assert pid != brokers[8][0]
    produce(address, "greetings", "hello")
    assert consume(address, "greetings", 1) == ["hello"]

    process.send_signal(signal.SIGTERM)
    assert process.wait(TIME_LIMIT_S) == 0


def test_processes_end_together_if_one_cannot_start(tmp_path: Path) -> None:
    port = free_ports(2)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        flags = settings(tmp_path / "data", broker_id="7", listeners=f"PLAINTEXT://127.0.0.1:{port}")
        failed = tidelog("broker", "--processes", "2", "--log-level", "error", *flags)
    assert failed.returncode == 1
    assert f"127.0.0.1:{port + 1}" in failed.stderr


@pytest.mark.parametrize(("returncode", "expected"), [(0, 0), (3, 3), (-signal.SIGTERM, 0), (-signal.SIGKILL, 1)])
def test_a_broker_that_a_stop_ends_at_once_has_not_failed(returncode: int, expected: int) -> None:
    assert _exit_code(returncode) == expected


def test_up_starts_a_broker_for_each_core(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    data = str(tmp_path / "data")
    command = [sys.executable, "-m", "tidelog", "up", "--per-core", "--detach", "--data", data, "--port", "0"]
    program = f"import os, sys; os.sched_setaffinity(0, {cores}); os.execv(sys.argv[1], sys.argv[1:])"
    started = subprocess.run(
        [sys.executable, "-c", program, *command], capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False
    )
    try:
        assert started.returncode == 0, started
        assert f"{len(cores)} broker" in started.stdout
        assert "one per core, topics have one replica" in started.stdout
        bootstrap = started.stdout.splitlines()[-1].removeprefix("bootstrap: ")
        listed = tidelog("broker", "list", "--bootstrap", bootstrap)
        assert listed.stdout.count(socket.gethostname()) == len(cores), listed
    finally:
        tidelog("down", "--data", data)
