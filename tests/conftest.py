"""Fixtures that several directories of tests share, and which tests have to run in one process."""

import pytest

pytest_plugins = ["tests.spark_session"]

SPARK_FIXTURE = "spark"


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
