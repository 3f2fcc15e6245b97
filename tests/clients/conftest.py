"""The broker and the clients that the tests in this directory share."""

import os
from collections.abc import Generator, Iterator

import pytest

from tests.clients.broker import BrokerProcess, new_broker, running
from tests.clients.driver import ClientDriver
from tests.clients.registry import CLIENTS, ClientMissing

pytest.register_assert_rewrite("tests.clients.features", "tests.clients.group_features", "tests.clients.rack_features")

HELPER = "confluent-kafka"
CLIENT_MARKS = [
    pytest.mark.clients,
    # kafka-python loads its schemas in an old-fashioned way.
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"),
    # confluent-kafka advises against AlterConfigs, which brokers serve all the same.
    pytest.mark.filterwarnings("ignore:alter_configs has been deprecated:DeprecationWarning"),
]


class Clients:
    """The clients of one broker, connected on first use."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._connected: dict[str, ClientDriver] = {}

    def get(self, name: str) -> ClientDriver:
        if name not in self._connected:
            try:
                self._connected[name] = CLIENTS[name].connect(self._bootstrap)
            except ClientMissing as missing:
                pytest.skip(str(missing))
        return self._connected[name]

    @property
    def helper(self) -> ClientDriver:
        return self.get(HELPER)

    def close(self) -> None:
        for client in self._connected.values():
            client.close()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running(new_broker(tmp_path_factory.mktemp("broker"))) as process:
        yield process


@pytest.fixture(scope="session")
def clients(broker: BrokerProcess) -> Iterator[Clients]:
    connected = Clients(broker.bootstrap)
    yield connected
    connected.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a client that is missing is a failure: otherwise nobody would notice."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report
