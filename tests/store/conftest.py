"""One ZooKeeper for all tests of the stores; each test has its own chroot."""

from collections.abc import Iterator

import pytest

from tests.store.zookeeper import running_zookeeper
from tools.zookeeper import ZooKeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
