"""Common parts of all tests: fixtures, and how tests are divided among processes."""

import gc
import os
import signal
import sys
import warnings
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = ["tests.spark_session"]

# On a busy machine any example may take long: tests are about results, not about time. The examples of a test are the
# same in every run, so that a change is judged by what it changed; `RANDOM_EXAMPLES=1` tries others.
hypothesis.settings.register_profile("tidelog", deadline=None, derandomize="RANDOM_EXAMPLES" not in os.environ)
hypothesis.settings.load_profile("tidelog")

# Hundreds of processes import the same files, and each would compile them again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

ROOT = Path(__file__).parent.parent
# Whatever profile or data directory the developer uses: tests must not connect to that cluster.
os.environ["TIDELOG_PROFILES"] = os.environ["TIDELOG_DATA"] = str(ROOT / "tests" / "does-not-exist")

# Each Java process of the tests ends before the optimising compiler pays off, and most have one core for themselves.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_LAUNCHER_OPTS"] = JAVA_OPTIONS

SPARK_SESSION = 'spark: "SparkSession"'
LONG_MARKERS = ("spark", "processes", "clients")
LONG_DIRECTORIES = {"churn", "cli", "clients", "compat", "console", "processes", "testing"}


def pytest_configure() -> None:
    """Processes started by pytest-xdist ignore Ctrl-C, and so would all programs that tests start and interrupt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Tests of one file run in one process, and all files with tests in the shared Spark session in the same."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return SPARK_SESSION if _has_spark_session(file) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: the garbage collector need not look at it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The Spark session has the most to do, so it begins first. The longest files follow, so that all end together."""
    long = {item.path for item in items if _is_long(item)}
    items.sort(key=lambda item: (not _has_spark_session(item.nodeid.partition("::")[0]), item.path not in long))


def _is_long(item: pytest.Item) -> bool:
    return item.path.parent.name in LONG_DIRECTORIES or any(map(item.get_closest_marker, LONG_MARKERS))


@cache
def _has_spark_session(file: str) -> bool:
    return SPARK_SESSION in (ROOT / file).read_text()


@pytest.fixture(autouse=True, scope="module")
def _without_the_garbage_of_other_files() -> Iterator[None]:
    """Some clients leave sockets to the garbage collector, whose warnings would hit whatever test runs then."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
