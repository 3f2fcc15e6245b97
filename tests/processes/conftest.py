"""A cluster of real processes on each coordination store, which must be whole and equal when its test is done."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.cluster import BROKERS, Cluster
from tests.processes.coordination import Coordination, SqliteCoordination, ZooKeeperCoordination
from tests.store.zookeeper import running_zookeeper
from tools.ports import free_ports
from tools.zookeeper import ZooKeeper

STORES = ("sqlite", "zookeeper")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.processes)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(params=STORES)
def coordination(request: pytest.FixtureRequest, tmp_path: Path) -> Coordination:
    if request.param == "sqlite":
        return SqliteCoordination(tmp_path / "coordination.sqlite")
    server = request.getfixturevalue("zookeeper")
    return ZooKeeperCoordination(server, f"/{tmp_path.name}")


@pytest.fixture
def cluster(coordination: Coordination, tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path, coordination, free_ports(2 * len(BROKERS)))
    try:
        found.start()
        yield found
    finally:
        found.close()
