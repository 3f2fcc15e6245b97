"""Completion scripts: made from the parsers, tried in bash, and in zsh and fish where they are installed."""

import shutil
import subprocess
from collections.abc import Callable

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


def in_zsh(words: str) -> list[str]:
    """With stubs of zsh's own functions, which need a terminal: they print what they are given."""
    stubs = (
        'compdef() { :; }\n_files() { print -- "<files>"; }\ncompadd() { print -l -- "$@"; }\n'
        '_describe() { local w; for w in "${(@P)2}"; do '
        '[[ $w == ${words[CURRENT]}* ]] && print -- "${w%%:*}"; done; }\n'
    )
    asked = words.split(" ")
    call = f"words=({' '.join(map(repr, asked))}); CURRENT={len(asked)}; _tidelog"
    return _printed("zsh", ["-f", "-c", f"{stubs}{completion_script('zsh', TREE)}\n{call}"])


def in_fish(words: str) -> list[str]:
    lines = _printed("fish", ["--no-config", "-c", f"{completion_script('fish', TREE)}\ncomplete -C {words!r}"])
    return [line.partition("\t")[0] for line in lines]


def _printed(shell: str, arguments: list[str]) -> list[str]:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    ended = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stderr == ""
    return [line for line in ended.stdout.splitlines() if line]


@pytest.mark.parametrize("complete", [in_zsh, in_fish])
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("tidelog top", {"topic"}),
        ("tidelog topic al", {"alter"}),
        ("tidelog topic alter orders --part", {"--partitions"}),
        ("tidelog produce orders --acks ", {"all", "1", "0"}),
        ("tidelog completion f", {"fish"}),
        ("tidelog consume orders --max-messages ", set()),
    ],
)
def test_zsh_and_fish_complete(complete: Callable[[str], list[str]], words: str, offered: set[str]) -> None:
    assert set(complete(words)) == offered
