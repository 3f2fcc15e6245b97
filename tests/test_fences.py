"""Fences: what a core may import, and how large a file, a function, a class and a list of arguments may become.

A core is a module that carries one of the markers below its docstring, or all modules of a package whose `__init__.py`
carries it.
"""

import ast
import builtins
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "tidelog"
MARKER = re.compile(r"^# Core(?P<logs> that logs)?: no clock, no I/O, no await\.$", re.MULTILINE)
FORBIDDEN = {"asyncio", "os", "random", "secrets", "shutil", "socket", "subprocess", "threading", "time"}
MIN_CORES = 60
"""So that a marker that nobody can read any more is noticed."""

MAX_LINES = 500
MAX_LINES_OF_FUNCTION = 50
MAX_METHODS = 25
"""Without properties and what Python calls by itself."""
MAX_ARGUMENTS = 8

EXCEPTIONS = {
    "kernels/records.py": "compiled loops: a call in them costs more than the length of the file",
    "kernels/records.py RecordCheck.advance": "one loop without calls is what makes it fast",
    "kernels/records.py decoded_columns": "one compiled loop over all records of a batch",
    "kernels/records.py plain_records": "one loop without calls is what makes it fast",
    "runtime/memory_disk.py": "the fault model of a disk: what a crash keeps depends on every kind of write",
    "runtime/memory_disk.py MemoryDisk": "the 16 methods of `Disk`, and the faults that tests inject",
    "server/metrics/catalogue.py": "a table: one line for each metric",
    "storage/log.py Log": "the API of a log; segments, flushes and files have owners of their own",
    "storage/segment.py Segment": "a data file and its indexes change together in every append, truncation and rename",
    "pipelines/tables/delta.py DeltaLakeTable": "the 23 methods of `MergeTable`, and helpers of one format",
    "pipelines/tables/iceberg.py IcebergTable": "the 23 methods of `MergeTable`, and helpers of one format",
    "spark/records/encode_kernels.py append_records": "one compiled loop over all records of a batch",
    "spark/records/kernels.py scan": "a compiled loop: an object for its arrays would make it slow",
    "spark/records/kernels.py scan_batch": "a compiled loop: an object for its arrays would make it slow",
    "pipelines/tables/spark_table.py table": "called with keywords only, one for each key of a table sink",
    "config/setting.py setting": "called with keywords only, one for each property of a setting",
    "protocol/records.py build_batch": "called with keywords only, one for each field of a batch header",
}
"""What may be larger, and why. A new entry needs a reason that a reviewer accepts; one that is not needed must go."""


class Oversized(NamedTuple):
    name: str
    figure: str


def _relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def _oversized() -> Iterator[Oversized]:
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        lines = text.count("\n")
        if lines > MAX_LINES:
            yield Oversized(_relative(path), f"{lines} lines")
        yield from _oversized_in(_relative(path), ast.parse(text), "")


def _oversized_in(file: str, node: ast.AST, prefix: str) -> Iterator[Oversized]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            methods = sum(_is_method(each) for each in child.body)
            if methods > MAX_METHODS:
                yield Oversized(f"{file} {prefix}{child.name}", f"{methods} methods")
            yield from _oversized_in(file, child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{file} {prefix}{child.name}"
            lines = (child.end_lineno or child.lineno) - child.lineno + 1
            if lines > MAX_LINES_OF_FUNCTION:
                yield Oversized(name, f"{lines} lines")
            arguments = [*child.args.posonlyargs, *child.args.args, *child.args.kwonlyargs]
            count = sum(each.arg not in ("self", "cls") for each in arguments)
            if count > MAX_ARGUMENTS:
                yield Oversized(name, f"{count} arguments")
        else:
            yield from _oversized_in(file, child, prefix)


def _is_method(node: ast.stmt) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("__"):
        return False
    return not any("property" in ast.unparse(each) or "setter" in ast.unparse(each) for each in node.decorator_list)


def test_nothing_is_larger_than_it_may_be() -> None:
    unexpected = [each for each in _oversized() if each.name not in EXCEPTIONS]
    assert not unexpected, "divide it, or give a reason in EXCEPTIONS: " + "; ".join(map(" has ".join, unexpected))


def test_every_exception_is_needed() -> None:
    assert EXCEPTIONS.keys() - {each.name for each in _oversized()} == set(), "take them out of EXCEPTIONS"


# ---- cores


def _cores() -> Iterator[tuple[Path, bool]]:
    """Each core, and whether it may log."""
    for path in sorted(SOURCE.rglob("*.py")):
        for marked in (path, path.parent / "__init__.py"):
            found = MARKER.search(marked.read_text()) if marked.exists() else None
            if found:
                yield path, found["logs"] is not None
                break


def _imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize(
    ("core", "may_log"), list(_cores()), ids=lambda value: _relative(value) if isinstance(value, Path) else None
)
def test_a_core_has_no_clock_no_io_and_no_await(core: Path, may_log: bool) -> None:
    forbidden = FORBIDDEN if may_log else {*FORBIDDEN, "logging"}
    assert not _imported(core) & forbidden, f"{_relative(core)} is marked as a core"
    awaits = [node for node in ast.walk(ast.parse(core.read_text())) if isinstance(node, ast.Await | ast.AsyncFor)]
    assert not awaits


def test_every_marker_is_read() -> None:
    markers = re.compile(r"^# Core\b.*$", re.MULTILINE)
    texts = {_relative(path): markers.findall(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    assert {file: found for file, found in texts.items() if not all(map(MARKER.fullmatch, found))} == {}


def test_the_marker_is_found() -> None:
    cores = {_relative(path) for path, _ in _cores()}
    assert len(cores) >= MIN_CORES
    assert {"replication/leader.py", "replication/follower.py", "controller/elections.py"} <= cores


RAISES = re.compile(r"\b[Rr]aises ([A-Z]\w+)(?:(?:,| and| or) ([A-Z]\w+))*")


def _documented_errors(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for found in RAISES.finditer(node.value.value):
                yield from re.findall(r"[A-Z]\w+", found[0].partition(" ")[2])


def test_errors_in_docstrings_exist() -> None:
    trees = {_relative(path): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    declared = {node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    known = declared | set(dir(builtins)) | {"SSLError"}
    stale = [
        f"{file}: {name}" for file, tree in trees.items() for name in _documented_errors(tree) if name not in known
    ]
    assert stale == [], "a docstring says that these are raised"


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def test_a_docstring_stands_below_what_it_describes() -> None:
    """A name that is inserted between another one and its docstring takes that docstring over."""
    doubled = [
        f"{_relative(path)}:{second.lineno}"
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for first, second in pairwise(node.body)
        if _is_text(first) and _is_text(second)
    ]
    assert doubled == []


def test_one_name_for_loggers() -> None:
    pattern = re.compile(r"^(?!\w*logger\b)\w+ = logging\.getLogger", re.MULTILINE)
    others = [_relative(path) for path in sorted(SOURCE.rglob("*.py")) if pattern.search(path.read_text())]
    assert others == []


# ---- one way


ASKS_WHETHER_DEFERRED = {
    "runtime/deferred.py": "its functions handle a value and a Deferred alike, for everybody else",
    "server/connection.py": "sends a response that is there without the cost of waiting for it",
}
RUNS_COROUTINES = {
    "runtime/deferred.py": "`awaited` takes coroutines too",
    "server/dispatch.py": "`Route.serve` is the one place where the coroutine of a handler becomes a task",
    "simulation/processes.py": "closes coroutines that a killed process never started",
}
OPENS_CONNECTIONS = {
    "client/network/broker_connection.py": "the one that is kept: opened on demand, and again when it was lost",
    "client/network/connections.py": "spare ones for requests whose response a broker may delay",
    "simulation/cluster.py": "a connection of a test, which looks at single responses; nobody keeps it",
}


def _instance_checks(tree: ast.AST, name: str) -> bool:
    checks = (
        node.args[1]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
    )
    return any(name in {each.id for each in ast.walk(check) if isinstance(each, ast.Name)} for check in checks)


def _opens_a_connection(tree: ast.AST) -> bool:
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "open")
    return any(isinstance(each.value, ast.Name) and each.value.id == "ClientConnection" for each in attributes)


def _files_where(condition: Callable[[ast.AST], bool]) -> set[str]:
    return {_relative(path) for path in sorted(SOURCE.rglob("*.py")) if condition(ast.parse(path.read_text()))}


def test_one_place_distinguishes_values_and_deferreds() -> None:
    assert _files_where(lambda tree: _instance_checks(tree, "Deferred")) == ASKS_WHETHER_DEFERRED.keys()


def test_one_place_runs_the_coroutines_of_handlers() -> None:
    assert _files_where(lambda tree: _instance_checks(tree, "CoroutineType")) == RUNS_COROUTINES.keys()


def test_one_way_to_keep_a_connection_to_a_broker() -> None:
    assert _files_where(_opens_a_connection) == OPENS_CONNECTIONS.keys()
