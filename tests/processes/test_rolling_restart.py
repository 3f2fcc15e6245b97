"""Brokers are stopped and started again one after the other under load: no client gets an error."""

import gc
from collections.abc import Callable

import pytest

from tests.clients.conftest import CLIENT_MARKS
from tests.clients.registry import CLIENTS
from tests.processes.cluster import BROKERS, Cluster, wait_for
from tests.processes.feeder import Feeder
from tests.processes.history import read_all
from tests.processes.load import PARTITIONS, TOPIC, create_topic, under_load
from tests.processes.replicas import assert_replicas_identical
from tidelog.cluster import znodes

MAX_SILENCE_S = 20.0
"""Less than a client would wait for a leader that goes without saying so, more than a busy machine takes."""
BALANCED_S = 60.0
MANY_PARTITIONS = 30


def restart_in_turn(cluster: Cluster, wait_for_more: Callable[[], None], partitions: int) -> None:
    for broker_id in BROKERS:
        broker = cluster.brokers[broker_id]
        wait_for_more()
        broker.ask_to_stop()
        broker.wait_until_stopped()
        assert "controlled shutdown: all leaders have moved" in broker.output
        wait_for_more()
        cluster.start([broker_id])
        for partition in range(partitions):
            cluster.wait_for_state(TOPIC, partition, lambda found: found.in_sync == frozenset(BROKERS))
    wait_for(lambda: has_preferred_leaders(cluster, partitions), lambda: "leaders are not balanced", BALANCED_S)


def has_preferred_leaders(cluster: Cluster, partitions: int) -> bool:
    found = cluster.coordination.read(znodes.topic_path(TOPIC))
    assert found is not None
    return all(
        cluster.state(TOPIC, partition).leader == found["partitions"][str(partition)][0]
        for partition in range(partitions)
    )


def test_leaders_are_balanced_soon_after_all_brokers_have_started(cluster: Cluster) -> None:
    """The first to come leads everything; nobody waits for the next check in five minutes (R40)."""
    create_topic(cluster, TOPIC, MANY_PARTITIONS)
    cluster.stop()
    cluster.start()
    wait_for(lambda: has_preferred_leaders(cluster, MANY_PARTITIONS), lambda: "leaders are not balanced", BALANCED_S)


def test_rolling_restart_reaches_no_client(cluster: Cluster) -> None:
    with under_load(cluster) as load:
        restart_in_turn(cluster, load.writer.wait_for_more, PARTITIONS)
    assert load.reader.errors == []
    assert load.writer.longest_silence_s() < MAX_SILENCE_S


@pytest.mark.parametrize("coordination", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", [pytest.param(name, marks=CLIENT_MARKS) for name in ("aiokafka", "kafka-python")])
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # kafka-python drops refused connections
def test_rolling_restart_reaches_no_other_client(name: str, cluster: Cluster) -> None:
    create_topic(cluster, TOPIC, partitions=1)
    client = CLIENTS[name].connect(cluster.bootstrap)
    try:
        writer = client.open_writer(TOPIC, idempotent=True)
        feeder = Feeder(writer)
        try:
            restart_in_turn(cluster, lambda: wait_for_more(cluster), 1)
        finally:
            feeder.stop()
            report = writer.close()
        assert report.failed == []
        assert report.acknowledged == report.sent
        assert [one.value for one in client.consume(TOPIC, 0, 0, len(report.sent))] == report.sent
    finally:
        client.close()
        del client
        gc.collect()
    cluster.stop()
    assert_replicas_identical(broker.log_dir for broker in cluster.brokers.values())


def wait_for_more(cluster: Cluster) -> None:
    def count() -> int:
        return len(read_all(cluster.bootstrap, TOPIC, 1)[0])

    before = count()
    wait_for(lambda: count() > before + 30, lambda: "nothing more is written")
