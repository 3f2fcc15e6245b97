"""The command line itself: help, version, mistakes in the flags."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.process import tidelog
from tidelog import __version__
from tidelog.cli import broker_process
from tidelog.config.listeners import host_and_port


def test_help_names_the_commands() -> None:
    shown = tidelog("--help")
    assert shown.returncode == 0
    for command in (
        "up",
        "status",
        "kill",
        "start",
        "down",
        "topic",
        "produce",
        "consume",
        "pipeline",
        "broker",
        "simulate",
    ):
        assert f"\n    {command} " in shown.stdout
    assert tidelog().stdout == shown.stdout


def test_help_of_the_broker_explains_its_flags() -> None:
    shown = tidelog("broker", "--help")
    assert shown.returncode == 0
    for flag in ("--config FILE", "--set KEY=VALUE", "--log-level"):
        assert flag in shown.stdout


@pytest.mark.parametrize("command", ["up", "status", "kill", "start", "down"])
def test_help_of_the_cluster_commands_says_where_the_data_is(command: str) -> None:
    shown = tidelog(command, "--help")
    assert shown.returncode == 0
    assert "--data DIR" in shown.stdout
    assert "TIDELOG_DATA" in shown.stdout


def test_version_is_printed() -> None:
    assert tidelog("--version").stdout == f"tidelog {__version__}\n"
    assert tidelog("version").stdout == f"tidelog {__version__}\n"


def test_installed_command_is_the_same_as_the_module() -> None:
    command = Path(sys.executable).with_name("tidelog")
    shown = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == tidelog("--version").stdout


def test_unknown_command_or_flag_is_refused_without_a_traceback() -> None:
    for arguments in (["frob"], ["broker", "--frob"], ["group", "list", "--frob"], ["transaction", "list", "frob"]):
        ended = tidelog(*arguments)
        assert ended.returncode == 2
        assert "frob" in ended.stderr
        assert "Traceback" not in ended.stderr
        command = [] if arguments[0] == "frob" else arguments[:-1]
        assert ended.stderr.startswith(f"usage: {' '.join(['tidelog', *command])} [-h]")


def test_argument_that_is_no_text_is_refused_without_a_traceback() -> None:
    ended = tidelog("group", "describe", os.fsdecode(b"a\xffb"))
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == "tidelog: error: argument is not valid UTF-8: b'a\\xffb'"


def test_a_broker_does_not_wait_for_what_others_need() -> None:
    slow = ["tidelog.cli.pipeline", "tidelog.cli.up", "importlib.metadata", "pathlib", "uuid", "difflib"]
    code = f"""import sys
from tidelog.cli.main import main
try:
    main(["broker", "--help"])
except SystemExit:
    import tidelog.cli.broker_process, tidelog.server.broker
    print([name for name in {slow} if name in sys.modules], file=sys.stderr)"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr == "[]\n"


def test_a_broker_shares_the_interpreter_with_its_workers_in_short_turns() -> None:
    code = """import asyncio, sys
from tidelog.cli import broker_process
from tidelog.server.broker import Broker, CannotStart
async def fail(settings):
    raise CannotStart(str(sys.getswitchinterval()))
Broker.start = fail
asyncio.run(broker_process._serve(None))"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr.splitlines()[-1] == "tidelog broker: 0.001"


def test_a_collection_of_young_objects_looks_at_a_bounded_number_of_them() -> None:
    young, times, _ = broker_process.GARBAGE_COLLECTION_THRESHOLDS
    assert young * times <= 100_000


def test_addresses_can_be_pasted_also_for_ipv6() -> None:
    assert host_and_port("127.0.0.1", 9092) == "127.0.0.1:9092"
    assert host_and_port("::1", 9092) == "[::1]:9092"
