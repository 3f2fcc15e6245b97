"""`tidelog doctor`: each problem is found, with the command that mends it."""

import asyncio
import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.in_process import CommandLine
from tests.cli.test_status_report import brokers, cluster, partition
from tidelog.cli.disk_view import DirectoryView, DisksView
from tidelog.cli.doctor_checks import (
    ClusterFacts,
    Finding,
    MachineFacts,
    OpenTransaction,
    Severity,
    cluster_findings,
    finding_lines,
    machine_findings,
)
from tidelog.cli.doctor_command import _cluster, _command, _place
from tidelog.cli.local_cluster.data_directory import DataDirectory
from tidelog.cli.local_cluster.plan import Plan
from tidelog.cli.local_cluster.view import ClusterView, Move
from tidelog.testing import Cluster

GIB = 2**30
SOUND = MachineFacts(100_000, "/data", 100 * GIB, 50 * GIB, "ext4", GIB, -5.0, True, None, {})


def problems(findings: Sequence[Finding]) -> list[str]:
    return [f"{each.subject}: {each.remedy}" for each in findings if each.severity is not Severity.OK]


def facts(view: ClusterView, **more: object) -> ClusterFacts:
    found = ClusterFacts(view, None, {}, (), True)
    return found._replace(**more)  # type: ignore[arg-type]


def test_sound_machine_has_no_problem() -> None:
    assert problems(machine_findings(SOUND)) == []
    assert finding_lines(machine_findings(SOUND), shows_all=False) == ["ok: 5 checks, nothing is wrong"]
    assert len(finding_lines(machine_findings(SOUND), shows_all=True)) == 6


def test_a_cluster_that_was_not_checked_is_mentioned() -> None:
    note = Finding(Severity.NOTE, "cluster", "not checked: no cluster is named")
    shown = finding_lines([*machine_findings(SOUND), note], shows_all=False)
    assert shown == ["note: cluster: not checked: no cluster is named", "ok: 5 checks, nothing is wrong"]


@pytest.mark.parametrize(
    ("change", "subject", "remedy"),
    [
        ({"open_files_limit": 1024}, "open files", "ulimit -n"),
        ({"free_bytes": 5 * GIB}, "disk of /data", "retention.ms"),
        ({"free_bytes": 1000}, "disk of /data", "add a disk"),
        ({"file_system": "tmpfs"}, "file system", "--data"),
        ({"available_memory_bytes": 1000}, "memory", "stop other programs"),
        ({"newest_file_ahead_s": 3600.0}, "clock", "timedatectl"),
        ({"has_compiled_kernels": False}, "kernels", "install a C compiler"),
        ({"java_problem": "Spark needs Java; install one"}, "Java", "install one"),
        ({"taken_ports": {2: 29093}}, "broker 2", "ss -ltnp"),
    ],
)
def test_each_problem_of_a_machine_has_a_remedy(change: dict[str, object], subject: str, remedy: str) -> None:
    (found,) = problems(machine_findings(SOUND._replace(**change)))  # type: ignore[arg-type]
    assert found.startswith(f"{subject}: ")
    assert remedy in found


def test_healthy_cluster_has_no_problem() -> None:
    assert problems(cluster_findings(facts(cluster(partition("t", 0))))) == []


@pytest.mark.parametrize(
    ("found", "remedy"),
    [
        (facts(cluster(partition("t", 0), down=(2,))), "broker 2: `tidelog start 2`"),
        (facts(cluster(partition("t", 0), down=(2,)), is_local=False), "broker 2: start it on its host"),
        (facts(cluster(partition("t", 0, leader=None))), "leaders: `tidelog partition why t 0`"),
        (facts(cluster(partition("t", 4, in_sync=(1,)))), "writes: `tidelog partition why t 4`"),
        (facts(cluster(partition("t", 0, in_sync=(1, 2)))), "replicas: `tidelog partition why t 0`"),
        (facts(cluster(partition("t", 0, leader=2))), "leader balance: `tidelog partition elect`"),
        (facts(cluster(partition("t", 0), controller=None)), "controller: look into the logs of the brokers"),
        (facts(cluster(partition("t", 0)), replication_factors={"t": 1}), "replication: write a plan"),
        (facts(cluster(partition("t", 0, minimum=3))), "min.insync.replicas: `tidelog config set topic t"),
        (
            facts(cluster(partition("t", 0)._replace(move=Move((3,), (), 5)))),
            "moves: `tidelog partition move --status`",
        ),
        (
            facts(cluster(partition("t", 0)), transactions=[OpenTransaction("pay", 10**7, 1000, "`abort`")]),
            "transactions: `abort`",
        ),
        (
            facts(
                cluster(partition("t", 0)),
                disks=DisksView([DirectoryView(1, "/d", 1, 100 * GIB, 2 * GIB, 1, 0, None)], [], {}),
            ),
            "broker 1, /d: shorten retention.ms",
        ),
    ],
)
def test_each_problem_of_a_cluster_has_a_remedy(found: ClusterFacts, remedy: str) -> None:
    assert any(each.startswith(remedy) for each in problems(cluster_findings(found)))


def test_topics_of_users_are_named_before_internal_ones() -> None:
    internal = [partition("__consumer_offsets", number, in_sync=(1,)) for number in range(9)]
    found = cluster_findings(facts(cluster(*internal, partition("t", 4, in_sync=(1,)))))
    (writes,) = [each for each in found if each.subject == "writes"]
    assert "refuse acks=all: t-4, __consumer_offsets-0" in writes.sentence
    assert writes.remedy == "`tidelog partition why t 4`"


def test_short_transactions_and_absent_brokers_are_no_further_problems() -> None:
    open_now = [OpenTransaction("pay", 10, 60_000, "`abort`")]
    assert problems(cluster_findings(facts(cluster(partition("t", 0)), transactions=open_now))) == []
    away = facts(cluster(partition("t", 0, leader=2, in_sync=(2, 3)), down=(1,)))
    assert problems(cluster_findings(away)) == ["broker 1: `tidelog start 1`"]
    assert brokers(1)[0].state == "down"


def test_doctor_visits_a_running_cluster(capfd: pytest.CaptureFixture[str]) -> None:
    with Cluster(brokers=2) as kafka:
        cli = CommandLine(kafka, capfd)
        cli.good("topic", "create", "single", "--replication-factor", "1")
        cli.good("topic", "create", "double", "--replication-factor", "2")
        ended = cli.run("doctor", "--json")
        found = json.loads(ended.out)
        assert ended.code == 1
        assert "replication" in [each["subject"] for each in found if each["severity"] != "ok"]
        assert "single" in next(each["sentence"] for each in found if each["subject"] == "replication")
        kafka.kill(2)
        assert "broker 2: it " in cli.run("doctor").out
        shown = cli.run("doctor").out
        assert f"partition move --plan FILE --bootstrap {kafka.bootstrap_servers}`" in shown, "it can be pasted"


def test_remedies_name_the_cluster_of_a_data_directory(tmp_path: Path) -> None:
    data = DataDirectory(str(tmp_path))
    data.keep(Plan(3, 31000, None), {})
    options = Namespace(data=str(tmp_path), bootstrap=None, profile=None, command_config=None)
    (found,) = asyncio.run(_cluster(options))
    assert found.remedy.endswith(f" up --data {tmp_path}` starts it")
    place = _place(options)
    assert _command("partition why t 0", options, place).endswith(f"--bootstrap {Plan(3, 31000, None).bootstrap}")
    assert _command("start 2", options, place).endswith(f"start 2 --data {tmp_path}")
