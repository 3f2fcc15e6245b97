"""What all tests share: fixtures, and how they are divided among processes."""

import gc
import signal
import warnings
from collections.abc import Iterator

import pytest

pytest_plugins = ["tests.spark_session"]

SPARK_FIXTURE = "spark"
WITH_OTHER_CLIENTS = {"cli", "clients", "processes"}


def pytest_configure() -> None:
    """Processes started by pytest-xdist ignore Ctrl-C, and so would all programs that tests start and interrupt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test` divides the tests among processes: by file, and all that need a Spark session go to one of them.

    That one has the most to do, so it begins first.
    """
    items.sort(key=lambda item: not _needs_spark(item))
    for item in items:
        group = SPARK_FIXTURE if _needs_spark(item) else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))


def _needs_spark(item: pytest.Item) -> bool:
    return SPARK_FIXTURE in getattr(item, "fixturenames", ())


@pytest.fixture(autouse=True, scope="module")
def _without_the_garbage_of_other_clients(request: pytest.FixtureRequest) -> Iterator[None]:
    """Some clients leave sockets to the garbage collector, whose warnings would hit whatever test runs then."""
    yield
    if request.path.parent.name in WITH_OTHER_CLIENTS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
