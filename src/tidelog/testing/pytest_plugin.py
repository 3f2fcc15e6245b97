"""pytest plugin: fixture `kafka`, a cluster that is empty at the start of every test.

Clusters start on first use and last until the end of the run, one for each size and each set of settings. A test that
asks for one gets it reset. The size comes from `@pytest.mark.kafka(brokers=3)`, else from the ini option
`tidelog_brokers`, else it is 1.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from tidelog.testing.cluster import Cluster

BROKERS_OPTION = "tidelog_brokers"
MARKER = "kafka(brokers=None, settings=None): size and broker settings of the cluster in the fixture `kafka`"

ClusterKey: TypeAlias = tuple[int, tuple[tuple[str, str], ...]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        BROKERS_OPTION, "Brokers of the cluster in the fixture `kafka`, unless a marker says so.", default="1"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def _tidelog_clusters() -> "Iterator[dict[ClusterKey, Cluster]]":
    clusters: dict[ClusterKey, Cluster] = {}
    yield clusters
    for cluster in clusters.values():
        cluster.close()


@pytest.fixture
def kafka(request: pytest.FixtureRequest, _tidelog_clusters: "dict[ClusterKey, Cluster]") -> "Cluster":
    """A Kafka cluster without topics and groups; clients connect to `kafka.bootstrap_servers`."""
    from tidelog.testing.cluster import Cluster

    brokers, settings = _wanted(request)
    key = (brokers, tuple(sorted((name, str(value)) for name, value in settings.items())))
    cluster = _tidelog_clusters.get(key)
    if cluster is None:
        cluster = Cluster(brokers, settings=settings).open()
        _tidelog_clusters[key] = cluster
    else:
        cluster.reset()
    return cluster


def _wanted(request: pytest.FixtureRequest) -> tuple[int, dict[str, object]]:
    """Each argument from the nearest marker that has it: a test may change one of its class or module."""
    given: dict[str, object] = {}
    for marker in request.node.iter_markers("kafka"):
        if marker.args or marker.kwargs.keys() - {"brokers", "settings"}:
            raise pytest.UsageError(f"@pytest.mark.kafka takes brokers= and settings= only: {request.node.nodeid}")
        given = {**marker.kwargs, **given}
    brokers = given.get("brokers", request.config.getini(BROKERS_OPTION))
    settings = given.get("settings") or {}
    if not isinstance(settings, dict):
        raise pytest.UsageError(f"@pytest.mark.kafka(settings=...) must be a dict, not {settings!r}")
    try:
        number = int(str(brokers))
    except ValueError:
        number = 0
    if number < 1:
        raise pytest.UsageError(f"the number of brokers must be 1 or more, not {brokers!r}")
    return number, settings
