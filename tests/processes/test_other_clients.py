"""The failover of a leader as other clients than librdkafka see it."""

import gc

import pytest

from tests.clients.conftest import CLIENT_MARKS
from tests.clients.driver import Writer
from tests.clients.registry import CLIENTS
from tests.processes.cluster import BROKERS, Cluster, wait_for
from tests.processes.feeder import Feeder
from tests.processes.history import read_all
from tests.processes.load import create_topic
from tests.processes.replicas import assert_replicas_identical

pytestmark = [
    *CLIENT_MARKS,
    # kafka-python drops the sockets of refused connections without closing them.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

TOPIC = "tides"


def records_in(cluster: Cluster) -> list[bytes]:
    (log,) = read_all(cluster.bootstrap, TOPIC, 1).values()
    return [log[offset] for offset in sorted(log)]


def fail_over_under(writer: Writer, cluster: Cluster) -> None:
    feeder = Feeder(writer)
    try:
        wait_for(lambda: len(records_in(cluster)) > 30, lambda: "nothing was written")
        leader = cluster.state(TOPIC, 0).leader
        cluster.brokers[leader].kill()
        cluster.wait_for_state(TOPIC, 0, lambda found: found.leader not in (leader, -1))
        count = len(records_in(cluster))
        wait_for(lambda: len(records_in(cluster)) > count + 30, lambda: "nothing was written after the failover")
        cluster.start([leader])
        cluster.wait_for_state(TOPIC, 0, lambda found: found.in_sync == frozenset(BROKERS))
    finally:
        feeder.stop()


@pytest.mark.parametrize("coordination", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", ["kafka-python", "aiokafka"])
def test_idempotent_producer_of_another_client_loses_and_repeats_nothing(name: str, cluster: Cluster) -> None:
    create_topic(cluster, TOPIC, partitions=1)
    client = CLIENTS[name].connect(cluster.bootstrap)
    try:
        writer = client.open_writer(TOPIC, idempotent=True)
        try:
            fail_over_under(writer, cluster)
        finally:
            report = writer.close()
        assert report.failed == []
        assert report.acknowledged == report.sent
        assert records_in(cluster) == report.sent
        read = client.consume(TOPIC, 0, 0, len(report.sent))
        assert [one.value for one in read] == report.sent
    finally:
        client.close()
        del client
        gc.collect()  # while the sockets that kafka-python dropped are still forgiven
    cluster.stop()
    assert_replicas_identical(broker.log_dir for broker in cluster.brokers.values())
