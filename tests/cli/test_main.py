"""The command line itself: help, version, mistakes in the flags."""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.process import tidelog
from tidelog import __version__
from tidelog.__main__ import run
from tidelog.cli import broker_process
from tidelog.cli.command_tree import command_tree
from tidelog.cli.main import full_parser, main
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


def _screens(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Name and help of a command, and of all below it."""
    yield parser.prog, parser.format_help()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _screens(below)


def test_no_help_screen_shows_a_default_that_is_none() -> None:
    screens = dict(_screens(full_parser()))
    assert len(screens) > 60
    assert [name for name, screen in screens.items() if re.search(r"\(None\b", screen)] == []


WITHOUT_JSON = {
    "completion": "prints a script",
    "console": "runs until Ctrl-C",
    "pipeline run": "runs until Ctrl-C; `pipeline status --json` shows it",
    "pipeline replay": "prints its progress; `pipeline status --json` shows it",
    "simulate": "for developers: prints an event log, or digests",
}


def test_every_command_prints_json() -> None:
    commands = [each for each in command_tree(full_parser()).all() if each.path and not each.commands]
    missing = {
        " ".join(each.path)
        for each in commands
        if "--json" not in {name for option in each.options for name in option.names}
    }
    assert missing == set(WITHOUT_JSON)


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
        program = " ".join(["tidelog", *command])
        assert ended.stderr.startswith(f"{program}: ")
        assert ended.stderr.endswith(f"; see `{program} --help`\n")
        assert ended.stderr.count("\n") == 1, "one sentence"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["stauts"], "tidelog: there is no command 'stauts'; did you mean 'status'?"),
        (["topic", "craete", "x"], "tidelog topic: there is no command 'craete'; did you mean 'create'?"),
        (
            ["completion", "tcsh"],
            "tidelog completion: argument SHELL: 'tcsh' is not possible; choose from bash, zsh, fish",
        ),
        (
            ["produce", "t", "--acks", "5"],
            "tidelog produce: argument --acks: '5' is not possible; choose from all, 1, 0",
        ),
        (["kill", "x"], "tidelog kill: argument ID: expected a number of at least 1, found 'x'"),
        (
            ["simulate", "--seeds", "x"],
            "tidelog simulate: argument --seeds: expected a number of at least 1, found 'x'",
        ),
        (
            ["simulate", "--only", "1,x"],
            "tidelog simulate: argument --only: expected numbers such as 3,17, found '1,x'",
        ),
    ],
)
def test_a_wrong_word_is_named_with_what_was_meant(arguments: list[str], sentence: str) -> None:
    ended = tidelog(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.partition("; see `")[0] == sentence


@pytest.mark.parametrize("command", [["version"], ["profile", "list"], ["completion", "bash"], ["doctor", "--machine"]])
def test_output_that_cannot_be_written_is_one_sentence(command: list[str]) -> None:
    program = [sys.executable, "-m", "tidelog", *command]
    for buffering in ("", "1"):
        environment = {**os.environ, "PYTHONUNBUFFERED": buffering}
        with open("/dev/full", "wb") as full:
            ended = subprocess.run(
                program, stdout=full, stderr=subprocess.PIPE, env=environment, text=True, timeout=60, check=False
            )
        said = "tidelog: cannot write standard output or a file: No space left on device\n"
        assert (ended.returncode, ended.stderr) == (1, said)
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *program]
    closed = subprocess.run(shell, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert closed.returncode == 1
    assert closed.stderr.startswith("tidelog: standard output is closed; redirect it to /dev/null")


def test_ctrl_c_at_any_moment_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tidelog.cli.profile.load_profiles", interrupt)
    assert main(["profile", "list"]) == 130


def test_argument_that_is_no_text_is_refused_without_a_traceback() -> None:
    ended = tidelog("group", "describe", os.fsdecode(b"a\xffb"))
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == "tidelog: argument is not valid UTF-8: b'a\\xffb'; see `tidelog --help`"


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
from tidelog.cli.main import full_parser
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


def test_interrupt_during_imports_leaves_no_stack_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "tidelog.cli.main":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "tidelog.cli.main", raising=False)
    assert run() == 130


def test_only_what_is_missing_is_called_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["config", "get", "topic"])
    assert "the following arguments are required: NAME;" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        "topic create t --partitions",
        "up --brokers",
        "up --port",
        "produce t --rate",
        "produce t --repeat",
        "consume t --offset",
        "consume t --timeout",
        "group reset-offsets g --shift-by",
        "group reset-offsets g --to-offset",
        "partition move --drain",
        "partition move --balance --throttle",
        "transaction abort --partition t:0 --producer-id",
        "pipeline run f.toml --metrics",
        "pipeline stop p --timeout",
        "console --port",
        "audit data --hot-keys",
        "simulate --seed",
        "simulate --seeds",
        "simulate --seed 1 --duration",
        "simulate --seed 1 --only",
    ],
)
@pytest.mark.parametrize("value", ["1_0", " 5 ", "１", "nan", "x", "9" * 5_000])
def test_a_number_on_the_command_line_has_plain_digits(
    arguments: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main([*arguments.split(), value])
    assert left.value.code == 2
    sentence = capsys.readouterr().err
    assert ": expected " in sentence, "a sentence of ours, not argparse's"
