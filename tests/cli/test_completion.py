"""Completion scripts: made from the parsers, tried in bash."""

import shutil
import subprocess

import pytest

from tidelog.cli.command_tree import command_tree
from tidelog.cli.completion_scripts import completion_script
from tidelog.cli.main import COMMANDS, full_parser

TREE = command_tree(full_parser())


def completed(words: str) -> list[str]:
    """What bash offers for the last word."""
    script = completion_script("bash", TREE)
    asked = words.split(" ")
    program = (
        f"compopt() {{ :; }}\n{script}\nCOMP_WORDS=({' '.join(map(repr, asked))})\nCOMP_CWORD={len(asked) - 1}\n"
        "_tidelog\nprintf '%s\\n' \"${COMPREPLY[@]}\""
    )
    ended = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stderr == ""
    return ended.stdout.split()


def test_tree_has_every_command_and_option() -> None:
    assert {each.path[0] for each in TREE.commands} == set(COMMANDS)
    by_path = {each.path: each for each in TREE.all()}
    assert "--partitions" in [name for option in by_path["topic", "alter"].options for name in option.names]
    acks = next(option for option in by_path["produce",].options if "--acks" in option.names)
    assert acks.values == ("all", "1", "0")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("tidelog top", ["topic"]),
        ("tidelog topic al", ["alter"]),
        ("tidelog topic alter orders --part", ["--partitions"]),
        ("tidelog produce orders --acks ", ["all", "1", "0"]),
        ("tidelog produce orders --compression z", ["zstd"]),
        ("tidelog config get ", ["topic", "broker", "group", "logger", "-h"]),
        ("tidelog completion f", ["fish"]),
        ("tidelog consume orders --max-messages ", []),
    ],
)
def test_bash_completes(words: str, offered: list[str]) -> None:
    assert set(offered) <= set(completed(words))
    if offered and len(offered) == 1:
        assert completed(words) == offered
    if not offered:
        assert completed(words) == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_their_script(shell: str) -> None:
    script = completion_script(shell, TREE)
    assert "--partitions" in script or "-l partitions" in script
    assert "@" not in script.replace("$@", "")
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    ended = subprocess.run([program, "-n"], input=script, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
