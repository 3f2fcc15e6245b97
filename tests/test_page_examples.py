"""Examples in the pages for people: commands, settings, pipelines and programs that Tidelog accepts.

The tutorial, the pages on tests and the client, and the three hosts are run as they stand by their own tests.
"""

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tidelog.cli.command_tree import command_tree
from tidelog.cli.main import full_parser
from tidelog.config.broker import BrokerSettings
from tidelog.config.setting import settings_of

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`(tidelog [^`]+)`(?!`)")
SHELLS = ("", "sh", "bash", "console")
BETWEEN_COMMANDS = {"|", "||", "&&", ";", "&"}
CLIENT_SETTINGS = {"security.protocol", "sasl.mechanism", "sasl.jaas.config", "client.rack"}
PLACEHOLDER = re.compile(r"[A-Z]{2,}|[A-Z]$|[<\[{|]|\.\.\.")


class Example(NamedTuple):
    page: str
    text: str


def blocks(*languages: str) -> list[Example]:
    return [
        Example(page.name, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE))
        for page in PAGES
        for indent, language, text in BLOCK.findall(page.read_text())
        if language in languages
    ]


def commands(line: str) -> list[list[str]]:
    """The arguments of every call of `tidelog` in a line of a shell."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    found: list[list[str]] = []
    current: list[str] | None
    is_first, current = True, None
    for word in words:
        if word in BETWEEN_COMMANDS:
            is_first, current = True, None
        elif word in ("<", ">", ">>"):
            current = None
        elif is_first:
            is_first = False
            current = [] if word.rpartition("/")[2] == "tidelog" else None
            if current is not None:
                found.append(current)
        elif current is not None:
            current.append(word)
    return found


def shell_lines() -> list[Example]:
    return [
        Example(page, line.removeprefix("$ "))
        for page, text in blocks(*SHELLS)
        for line in text.replace("\\\n", " ").splitlines()
        if re.match(r"(?:\$ )?(?:[^`]*[|;&] *)?[\w./]*tidelog [a-z]", line)
        and not re.search(r"\[--|[A-Z]\|[A-Z]", line)
    ]


@pytest.mark.parametrize("example", shell_lines(), ids=lambda example: f"{example.page}: {example.text[:60]}")
def test_commands_are_accepted(example: Example, capsys: pytest.CaptureFixture[str]) -> None:
    found = commands(example.text)
    assert found
    for arguments in found:
        try:
            full_parser().parse_args(arguments)
        except SystemExit:
            pytest.fail(f"{example.text}: {capsys.readouterr().err}")


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert commands("echo a | bin/tidelog produce t < f && tidelog topic list # x") == [
        ["produce", "t"],
        ["topic", "list"],
    ]
    with pytest.raises(SystemExit):
        full_parser().parse_args(["topic", "explode"])


def test_commands_named_in_sentences_exist() -> None:
    wrong = []
    for page in PAGES:
        for text in INLINE.findall(page.read_text()):
            path = []
            for word in text.split()[1:]:
                if word.startswith("-") or PLACEHOLDER.search(word) or not re.fullmatch(r"[a-z-]+", word):
                    break
                path.append(word)
            if path and not _exists(path):
                wrong.append(f"{page.name}: {text}")
    assert wrong == []


def _exists(path: list[str]) -> bool:
    """Words behind a command are its arguments, so that only the command and its subcommand are looked up."""
    known = {each.path for each in command_tree(full_parser()).all()}
    has_subcommands = any(len(each) > 1 and each[0] == path[0] for each in known)
    return (path[0],) in known and (len(path) == 1 or not has_subcommands or tuple(path[:2]) in known)


@pytest.mark.parametrize("example", blocks("properties"), ids=lambda example: example.page)
def test_settings_exist(example: Example) -> None:
    text = example.text.replace("\\\n", "")
    names = {line.partition("=")[0].strip() for line in text.splitlines() if "=" in line and line[0] != "#"}
    per_listener = {name for name in names if name.startswith("listener.name.")}
    assert names - per_listener <= settings_of(BrokerSettings).keys() | CLIENT_SETTINGS


@pytest.mark.parametrize("example", blocks("toml"), ids=lambda example: example.page)
def test_toml_is_valid(example: Example) -> None:
    assert tomllib.loads(example.text)


@pytest.mark.parametrize("example", blocks("python"), ids=lambda example: f"{example.page}: {example.text[:40]!r}")
def test_programs_compile_and_import_names_that_exist(example: Example) -> None:
    tree = compile(example.text, example.page, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tidelog"):
            module = import_module(node.module or "")
            for name in node.names:
                assert hasattr(module, name.name) or find_spec(f"{node.module}.{name.name}"), name.name


def test_the_site_builds(tmp_path: Path) -> None:
    """Without a warning: every page is in the navigation, every link and heading is there."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "site" / "architecture.html").exists()
    assert "https://fonts" not in (tmp_path / "site" / "index.html").read_text()
