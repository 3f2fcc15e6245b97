"""pytest plugin: fixture `kafka`, a cluster that is empty at the start of every test, and others of wider scope.

Clusters of `kafka` start on first use and last until the end of the run, one for each size and each set of settings.
They are reset before each test. `kafka_class`, `kafka_module`, `kafka_package` and `kafka_session` are separate
clusters that all tests of that scope share and that are never reset. The size comes from
`@pytest.mark.kafka(brokers=3)`, else from the ini option `tidelog_brokers`, else it is 1.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import pytest

if TYPE_CHECKING:
    from tidelog.testing.cluster import Cluster

BROKERS_OPTION = "tidelog_brokers"
SETTINGS_OPTION = "tidelog_settings"
PROCESS_OPTION = "tidelog_process"
ARGUMENTS = ("brokers", "settings", "process")
MARKER = "kafka(brokers=None, settings=None, process=None): size, settings and place of the cluster in `kafka`"

Scope: TypeAlias = Literal["class", "module", "package", "session"]


class WantedCluster(NamedTuple):
    """Cluster that a test asks for; tests that ask for the same share one."""

    brokers: int
    settings: tuple[tuple[str, object], ...]
    process: bool

    def cluster(self) -> "Cluster":
        from tidelog.testing.cluster import Cluster

        return Cluster(self.brokers, settings=dict(self.settings), process=self.process)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(BROKERS_OPTION, "Number of brokers of a cluster, unless a marker sets it.", default="1")
    parser.addini(SETTINGS_OPTION, "Settings of all brokers, one line `name=value` for each.", type="linelist")
    parser.addini(PROCESS_OPTION, "Brokers run in a background process.", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def _tidelog_clusters() -> "Iterator[dict[WantedCluster, Cluster]]":
    clusters: dict[WantedCluster, Cluster] = {}
    yield clusters
    for cluster in clusters.values():
        cluster.close()


@pytest.fixture
def kafka(request: pytest.FixtureRequest, _tidelog_clusters: "dict[WantedCluster, Cluster]") -> "Cluster":
    """A Kafka cluster without topics and groups; clients connect to `kafka.bootstrap_servers`."""
    wanted = _wanted(request)
    cluster = _tidelog_clusters.get(wanted)
    if cluster is None:
        cluster = _tidelog_clusters[wanted] = wanted.cluster().open()
    else:
        cluster.reset()
    return cluster


def _of_scope(scope: Scope) -> Callable[..., Any]:
    @pytest.fixture(scope=scope, name=f"kafka_{scope}")
    def shared(request: pytest.FixtureRequest) -> "Iterator[Cluster]":
        with _wanted(request).cluster() as cluster:
            yield cluster

    shared.__doc__ = f"A Kafka cluster that all tests of a {scope} share."
    return shared


kafka_class = _of_scope("class")
kafka_module = _of_scope("module")
kafka_package = _of_scope("package")
kafka_session = _of_scope("session")


def _wanted(request: pytest.FixtureRequest) -> WantedCluster:
    """Each argument comes from the nearest marker that has it: a test may override one of its class or module."""
    from tidelog.numerals import natural_number  # a run without the fixture imports only the plugin

    given: dict[str, object] = {}
    for marker in request.node.iter_markers("kafka"):
        if marker.args or marker.kwargs.keys() - set(ARGUMENTS):
            raise pytest.UsageError(
                f"@pytest.mark.kafka takes brokers=, settings= and process= only: {request.node.nodeid}"
            )
        given = {**marker.kwargs, **given}
    settings = given.get("settings") or {}
    if not isinstance(settings, dict):
        raise pytest.UsageError(f"@pytest.mark.kafka(settings=...) must be a dict, not {settings!r}")
    brokers = given.get("brokers", request.config.getini(BROKERS_OPTION))
    number = natural_number(str(brokers).strip())
    if number is None or number < 1:
        raise pytest.UsageError(f"the number of brokers must be 1 or more, not {brokers!r}")
    settings = {**_ini_settings(request.config), **settings}
    process = bool(given.get("process", request.config.getini(PROCESS_OPTION)))
    return WantedCluster(number, tuple(sorted((name, _hashable(value)) for name, value in settings.items())), process)


def _ini_settings(config: pytest.Config) -> dict[str, object]:
    settings: dict[str, object] = {}
    for line in config.getini(SETTINGS_OPTION):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{SETTINGS_OPTION} has lines name=value, not {line!r}")
        settings[name.strip()] = value.strip()
    return settings


def _hashable(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
