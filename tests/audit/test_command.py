"""`tidelog audit` as a command: exit codes for CI, one sentence when it cannot run, nothing heavy at the start."""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.audit.written_logs import WrittenBroker, batches, flip
from tests.cli.process import tidelog
from tidelog.audit.audit_run import LocalRunner, Runner
from tidelog.cli.audit import EXIT_CLEAN, EXIT_FAILED, EXIT_FINDINGS, add_command, run_on
from tidelog.types import TopicPartition


@contextmanager
def local(master: str | None) -> Iterator[Runner]:
    yield LocalRunner()


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_command(parser.add_subparsers())
    return run_on(parser.parse_args(["audit", *arguments]), local)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for broker in (1, 2, 3):
        WrittenBroker(tmp_path / "data", broker).write(batches(12))
    return tmp_path / "data"


def test_clean_directories_end_with_0_and_reports(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, facts = tmp_path / "audit.html", tmp_path / "audit.json"
    assert run(str(data), "--report", str(report), "--json", str(facts), "--hot-keys", "2") == EXIT_CLEAN
    assert capsys.readouterr().out == "Clean: 3 replicas of 1 partition checked, nothing found\n"
    assert "<svg" in report.read_text()
    assert len(json.loads(facts.read_text())["topics"][0]["hot_keys"]) == 2


def test_findings_end_with_2_and_are_printed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = data / "broker-2" / "orders-0" / "00000000000000000020.log"
    flip(file, 70)
    assert run(str(data), "--no-keys") == EXIT_FINDINGS
    assert capsys.readouterr().out.splitlines() == [
        "corrupt batch: broker 2, orders-0: the CRC does not match (offsets 20 to 24)",
        f"  {file} byte 0",
        "1 finding in 1 of 1 partition on broker 2",
    ]
    WrittenBroker(data, 4).write(batches(12), partition=TopicPartition("payments", 0))
    assert run(str(data), "--topic", "pay*") == EXIT_CLEAN


def test_topics_that_are_not_there_are_no_clean_topics(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for patterns, wrong, hint in (
        (["oders"], "oders", "; did you mean 'orders'?"),
        (["orders", "pay*"], "pay*", ""),
    ):
        arguments = [part for pattern in patterns for part in ("--topic", pattern)]
        assert run(str(data), *arguments) == EXIT_FAILED
        said = capsys.readouterr()
        assert (said.out, said.err) == ("", f"tidelog audit: --topic {wrong}: there is no such topic{hint}\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["absent"], "absent does not exist; name the directory of `tidelog up`, or log directories"),
        ([".", "--json", "no/such/place.json"], "cannot write no/such/place.json: its directory does not exist"),
    ],
)
def test_what_cannot_run_ends_with_1_and_one_sentence(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    ended = tidelog("audit", *arguments, directory=tmp_path)
    assert (ended.returncode, ended.stdout) == (EXIT_FAILED, "")
    assert ended.stderr == f"tidelog audit: {sentence}\n"


def test_help_and_other_commands_load_nothing_heavy() -> None:
    program = (
        "import sys, tidelog.cli.main; print([m for m in ('numpy', 'numba', 'pyarrow', 'pyspark') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
    assert "--hot-keys N" in tidelog("audit", "--help").stdout
