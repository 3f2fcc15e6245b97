"""Apache Kafka 3.9 with ZooKeeper is replaced by Tidelog broker by broker, and back, under load (docs/migration.md)."""

import tempfile
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat.mixed_cluster import Broker, MixedCluster
from compat.same_zookeeper import CHROOT, PARTITIONS, TIMEOUT_S, is_whole
from tests.clients.broker import BROKER_IDS
from tests.clients.driver import Rejected, wait_until
from tests.processes.history import FollowingReader, IdempotentWriter, read_all
from tests.processes.history import check as check_history
from tests.processes.replicas import committed
from tools.apache_kafka import free_port
from tools.zookeeper import ZooKeeper

TOPIC = "tides"
MIN_IN_SYNC = {"min.insync.replicas": "2"}
PATIENT = {"delivery.timeout.ms": 120_000}


def check() -> list[str]:
    with tempfile.TemporaryDirectory(prefix="compat-migration-") as scratch:
        directory = Path(scratch)
        with ZooKeeper(free_port(), directory / "zookeeper") as zookeeper:
            connect = zookeeper.connect_string + CHROOT
            try:
                return _migrate(directory, connect)
            except (AssertionError, TimeoutError, Rejected) as error:
                return [f"{type(error).__name__}: {error}"[:1000]]


def _migrate(directory: Path, connect: str) -> list[str]:
    """Both are the same brokers to ZooKeeper: ids, ports and log directories stay."""
    kafkas = MixedCluster(directory, connect, BROKER_IDS)
    running: dict[int, Broker] = dict(kafkas.brokers)
    try:
        for broker in running.values():
            broker.start()
        create_topic(kafkas.admin)
        bootstrap = kafkas.trio.bootstrap
        with (
            FollowingReader(bootstrap, TOPIC, PARTITIONS) as reader,
            IdempotentWriter(bootstrap, TOPIC, PARTITIONS, PATIENT) as writer,
        ):
            for is_kafka in (False, True):
                for broker_id in BROKER_IDS:
                    writer.wait_for_more()
                    replace_broker(kafkas, running, broker_id, is_kafka=is_kafka)
            writer.wait_for_more()
        check_history(writer, read_all(bootstrap, TOPIC, PARTITIONS), reader)
        assert reader.errors == [], reader.errors[:3]
        for broker in running.values():
            broker.stop()
    finally:
        for broker in running.values():
            broker.kill()
    return different_replicas(kafkas, writer)


def create_topic(admin: AdminClient) -> None:
    wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == len(BROKER_IDS), "all brokers are there")
    topic = NewTopic(TOPIC, PARTITIONS, len(BROKER_IDS), config=MIN_IN_SYNC)
    admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
    wait_until(lambda: is_whole(admin, [TOPIC]), "the topic has all its replicas", TIMEOUT_S)


def replace_broker(cluster: MixedCluster, running: dict[int, Broker], broker_id: int, *, is_kafka: bool) -> None:
    running[broker_id].stop()
    running[broker_id] = cluster.new_broker(broker_id, is_kafka=is_kafka)
    running[broker_id].start()
    what = f"all replicas are in sync with broker {broker_id} of {'Kafka' if is_kafka else 'Tidelog'}"
    wait_until(lambda: is_whole(cluster.admin, [TOPIC]), what, TIMEOUT_S)


def different_replicas(cluster: MixedCluster, writer: IdempotentWriter) -> list[str]:
    return [
        f"the replicas of {TOPIC}-{partition} differ"
        for partition in range(PARTITIONS)
        if len(
            {
                committed(directory / "logs" / f"{TOPIC}-{partition}", len(writer.sent[partition]))
                for directory in cluster.trio.directories.values()
            }
        )
        > 1
    ]
