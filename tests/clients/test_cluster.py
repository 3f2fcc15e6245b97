"""The clients with three brokers: what a cluster does otherwise than a single broker, and a leader that is killed."""

import gc
from collections.abc import Iterator

import pytest

from tests.clients.broker import TidelogCluster
from tests.clients.conftest import CLIENT_MARKS, Clients
from tests.clients.features import FEATURES, Feature, Workbench
from tests.clients.registry import CLIENTS

pytestmark = [
    *CLIENT_MARKS,
    # kafka-python drops the sockets of refused connections without closing them.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

KEY_FEATURES = (
    "produce-lz4-idempotent",
    "produce-creates-topic",
    "consume-waits",
    "consume-in-rack",
    "list-offsets-latest",
    "topics-describe",
    "topics-create",
    "topics-recreate",
    "partitions-create",
    "configs-describe-broker",
    "configs-act-at-once",
    "records-delete",
    "cluster-describe",
    "produce-through-leader-kill",
    "consume-through-leader-kill",
    "group-rebalance",
    "group-through-coordinator-kill",
    "consumer-group-rebalance",
    "consumer-group-through-coordinator-kill",
    "transaction-offsets",
    "transaction-through-leader-kill",
    "transaction-through-coordinator-kill",
)

OFFERED = [
    pytest.param(client.name, FEATURES[name], id=f"{client.name}-{name}")
    for client in CLIENTS.values()
    for name in KEY_FEATURES
    if not FEATURES[name].needs & client.lacks
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TidelogCluster]:
    brokers = TidelogCluster(tmp_path_factory.mktemp("cluster"))
    try:
        brokers.start()
        yield brokers
        brokers.stop()
    finally:
        brokers.kill()


@pytest.fixture(scope="module")
def cluster_clients(cluster: TidelogCluster) -> Iterator[Clients]:
    connected = Clients(cluster.bootstrap)
    yield connected
    connected.close()
    del connected
    gc.collect()  # while the sockets that kafka-python dropped are still forgiven


@pytest.mark.parametrize(("client", "feature"), OFFERED)
def test_client_uses_the_cluster(
    client: str, feature: Feature, cluster_clients: Clients, cluster: TidelogCluster
) -> None:
    feature.check(Workbench(cluster_clients.get(client), cluster_clients.helper, cluster))
