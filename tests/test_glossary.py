"""docs/glossary.md leads from Kafka's names to ours: every name that it gives must exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GLOSSARY = ROOT / "docs" / "glossary.md"
PACKAGE = ROOT / "src" / "tidelog"
WITHOUT_PLACE = {"none", "not yet"}


def _rows() -> Iterator[tuple[str, str]]:
    """Kafka's name and ours, of each line of each table."""
    for line in GLOSSARY.read_text().splitlines():
        if line.startswith("| ") and not line.startswith("| in Kafka |"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            assert len(cells) == 3, line
            yield cells[0], cells[1]


ROWS = list(_rows())
NAMES = sorted({name for _, here in ROWS for name in re.findall(r"`([^`]+)`", here)})


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _find_module(parts: list[str]) -> tuple[Path | None, list[str]]:
    """The file of the longest beginning that is a module, and what remains."""
    for count in range(len(parts), 0, -1):
        base = PACKAGE.joinpath(*parts[:count])
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.exists():
                return path, parts[count:]
    return None, parts


def _targets(statement: ast.stmt) -> Iterator[ast.expr]:
    if isinstance(statement, ast.Assign):
        yield from statement.targets
    elif isinstance(statement, ast.AnnAssign):
        yield statement.target


def _members(scope: ast.Module | ast.ClassDef) -> Iterator[tuple[str, ast.stmt]]:
    """What is defined in a module or class; of a class also what its methods set on self."""
    for statement in scope.body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement.name, statement
        for target in _targets(statement):
            if isinstance(target, ast.Name):
                yield target.id, statement
        if isinstance(scope, ast.ClassDef) and isinstance(statement, ast.FunctionDef):
            yield from _set_on_self(statement)


def _set_on_self(method: ast.FunctionDef) -> Iterator[tuple[str, ast.stmt]]:
    for statement in ast.walk(method):
        if isinstance(statement, ast.stmt):
            for target in _targets(statement):
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                    yield target.attr, statement


def _exists(name: str) -> bool:
    path, remaining = _find_module(name.split("."))
    if path is None:
        return False
    scope: ast.stmt | ast.Module = _tree(path)
    for part in remaining:
        if not isinstance(scope, ast.Module | ast.ClassDef):
            return False
        found = dict(_members(scope)).get(part)
        if found is None:
            return False
        scope = found
    return True


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_the_glossary_exists(name: str) -> None:
    assert _exists(name), f"docs/glossary.md names {name}, which is not there"


@pytest.mark.parametrize(
    "name",
    [
        "replication.fetchers",
        "replication.fetcher.Fetchers",
        "replication.fetcher.Fetcher.fetch",
        "replication.fetcher.Fetcher.add.further",
        "controller.states.ReplicaState.GONE",
    ],
)
def test_a_name_that_is_not_there_is_noticed(name: str) -> None:
    assert not _exists(name)


def test_every_row_leads_somewhere_or_says_that_it_does_not() -> None:
    lost = [theirs for theirs, here in ROWS if here not in WITHOUT_PLACE and not re.fullmatch(r"`.+`", here)]
    assert lost == []


def test_each_of_kafkas_names_stands_in_one_row() -> None:
    seen: set[str] = set()
    for theirs, _ in ROWS:
        assert theirs not in seen, theirs
        seen.add(theirs)


RULE = re.compile(r"\b([RI]\d{1,2})\b")


def test_every_rule_that_the_code_names_is_in_the_list_of_rules() -> None:
    listed = set(re.findall(r"^- \*\*([RI]\d+)\*\*", (ROOT / "docs" / "replication.md").read_text(), re.MULTILINE))
    named = {
        rule: path.name
        for folder in ("src", "tests")
        for path in (ROOT / folder).rglob("*.py")
        for rule in RULE.findall(path.read_text())
    }
    assert {rule: path for rule, path in named.items() if rule not in listed} == {}
