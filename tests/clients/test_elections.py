"""Elections as librdkafka, kafka-python and our own command line ask for them: preferred, and unclean."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.clients.broker import TidelogCluster, running
from tests.clients.conftest import CLIENT_MARKS
from tests.clients.driver import wait_until

pytestmark = CLIENT_MARKS

TOPIC = "orders"
PREFERRED, UNCLEAN = 0, 1
TIMEOUT_S = 60.0
FIRST, SECOND, THIRD = 1, 2, 3


def by_librdkafka(bootstrap: str, kind: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    named = [TopicPartition(TOPIC, 0)]
    for error in admin.elect_leaders(ElectionType(kind), named).result(TIMEOUT_S).values():
        assert error is None, error


def by_kafka_python(bootstrap: str, kind: int) -> None:
    from kafka.admin import KafkaAdminClient  # here, where its warnings are let pass

    admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    try:
        admin.elect_leaders(kind, {TOPIC: [0]})
    finally:
        admin.close()


def by_command_line(bootstrap: str, kind: int) -> None:
    command = [sys.executable, "-m", "tidelog", "partition", "elect", f"{TOPIC}:0", "--bootstrap", bootstrap]
    flags = ["--unclean", "--yes"] if kind == UNCLEAN else []
    done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TidelogCluster]:
    process = TidelogCluster(tmp_path, {"auto.leader.rebalance.enable": "false", "min.insync.replicas": "1"})
    with running(process):
        yield process


def leader_and_in_sync(cluster: TidelogCluster) -> tuple[int, set[int]]:
    """As the third broker reports, which lives all the time and has no replica."""
    admin = AdminClient({"bootstrap.servers": cluster.brokers[THIRD].bootstrap, "log_level": 0})
    found = admin.list_topics(TOPIC, timeout=TIMEOUT_S).topics[TOPIC].partitions[0]
    return found.leader, set(found.isrs)


def write(cluster: TidelogCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    producer.produce(TOPIC, b"value", partition=0)
    assert producer.flush(TIMEOUT_S) == 0


@pytest.mark.parametrize("elect", [by_librdkafka, by_kafka_python, by_command_line])
def test_leaders_are_elected_on_request(elect: Callable[[str, int], None], cluster: TidelogCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    wait_until(lambda: len(admin.list_topics(timeout=TIMEOUT_S).brokers) == len(cluster.brokers), "all are there")
    admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[FIRST, SECOND]])])[TOPIC].result(TIMEOUT_S)
    everybody = {FIRST, SECOND}
    wait_until(lambda: leader_and_in_sync(cluster) == (FIRST, everybody), "both are in sync")
    cluster.brokers[FIRST].kill()
    wait_until(lambda: leader_and_in_sync(cluster) == (SECOND, {SECOND}), "the second one leads")
    write(cluster)
    cluster.start_brokers([FIRST])
    wait_until(lambda: leader_and_in_sync(cluster) == (SECOND, everybody), "the first one is in sync again")
    elect(cluster.bootstrap, PREFERRED)
    wait_until(lambda: leader_and_in_sync(cluster)[0] == FIRST, "the preferred one leads")
    cluster.brokers[SECOND].kill()
    wait_until(lambda: leader_and_in_sync(cluster) == (FIRST, {FIRST}), "the second one is out of sync")
    write(cluster)
    cluster.brokers[FIRST].kill()
    cluster.start_brokers([SECOND])
    wait_until(lambda: leader_and_in_sync(cluster)[0] == -1, "nobody who has everything lives")
    elect(cluster.brokers[THIRD].bootstrap, UNCLEAN)
    wait_until(lambda: leader_and_in_sync(cluster) == (SECOND, {SECOND}), "the one that lives leads")
