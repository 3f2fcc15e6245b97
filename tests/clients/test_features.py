"""Every client does with the broker everything that the client offers."""

import pytest

from tests.clients.broker import BrokerProcess
from tests.clients.conftest import CLIENT_MARKS, Clients
from tests.clients.features import FEATURES, Feature, Workbench, value_filling_a_batch_of
from tests.clients.registry import CLIENTS

pytestmark = CLIENT_MARKS

OFFERED = [
    pytest.param(client.name, feature, id=f"{client.name}-{feature.id}")
    for client in CLIENTS.values()
    for feature in FEATURES.values()
    if not feature.needs & client.lacks and not feature.needs_cluster
]


@pytest.mark.parametrize(("client", "feature"), OFFERED)
def test_client_uses_the_broker(client: str, feature: Feature, clients: Clients, broker: BrokerProcess) -> None:
    feature.check(Workbench(clients.get(client), clients.helper, broker))


def test_values_fill_batches_to_the_byte() -> None:
    for batch_bytes in (1_000, 1_048_588):
        assert len(value_filling_a_batch_of(batch_bytes + 1)) == len(value_filling_a_batch_of(batch_bytes)) + 1
