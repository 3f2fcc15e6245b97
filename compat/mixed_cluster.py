"""Brokers of Tidelog and of Apache Kafka 3.9 in one cluster: either leads the other, either is the controller."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat.same_zookeeper import CHROOT, PARTITIONS, TIMEOUT_S, Trio, fill, is_whole
from compat.written_by_kafka import read_partitions
from tests.clients.broker import BROKER_IDS, TidelogProcess
from tests.clients.driver import Rejected, wait_until
from tests.processes.replicas import committed
from tools.apache_kafka import KAFKA_3, ApacheKafka, free_port
from tools.zookeeper import ZooKeeper

TOPIC = "mixed"
RECORDS_EACH_TIME = 200
KAFKA_BROKER = 1
SHORT_SESSIONS = {"zookeeper.session.timeout.ms": "3000"}
Broker = TidelogProcess | ApacheKafka


class MixedCluster:
    def __init__(self, directory: Path, zookeeper: str, kafkas: Sequence[int]) -> None:
        self.trio = Trio(directory, zookeeper)
        self.brokers: dict[int, Broker] = {
            broker_id: self.new_broker(broker_id, is_kafka=broker_id in kafkas) for broker_id in BROKER_IDS
        }
        self.admin = AdminClient({"bootstrap.servers": self.trio.bootstrap, "log_level": 0})
        self.places = [(TOPIC, partition) for partition in range(PARTITIONS)]

    def new_broker(self, broker_id: int, *, is_kafka: bool) -> Broker:
        settings = self.trio.settings(broker_id) | SHORT_SESSIONS
        port, directory = self.trio.ports[broker_id], self.trio.directories[broker_id]
        if is_kafka:
            return ApacheKafka(KAFKA_3, port, directory, "256m", settings, zookeeper="")
        return TidelogProcess(directory, settings, port)

    @property
    def controller(self) -> int:
        return int(self.admin.list_topics(timeout=10).controller_id)

    def leaders(self) -> set[int]:
        found = self.admin.list_topics(timeout=10).topics[TOPIC]
        return {partition.leader for partition in found.partitions.values()}

    def wait_until_whole(self) -> None:
        wait_until(lambda: is_whole(self.admin, [TOPIC]), f"{TOPIC} has all its replicas", TIMEOUT_S)

    def read(self) -> list[int]:
        """How many records of each partition come once, and in order."""
        found = read_partitions(self.trio.bootstrap, self.places, "read_uncommitted")
        for records in found.values():
            assert [record[0] for record in records] == list(range(len(records)))
        return [len(records) for records in found.values()]

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill()


def check_controller(controller: int, kafkas: Sequence[int], victim: int) -> None:
    """The broker that starts first is the controller. Another one is killed, and comes back."""
    with tempfile.TemporaryDirectory(prefix="compat-mixed-") as scratch:
        directory = Path(scratch)
        with ZooKeeper(free_port(), directory / "zookeeper") as zookeeper:
            cluster = MixedCluster(directory, zookeeper.connect_string + CHROOT, kafkas)
            try:
                for broker_id in sorted(BROKER_IDS, key=lambda each: each != controller):
                    cluster.brokers[broker_id].start()
                assert cluster.controller == controller
                lose(cluster, victim)
                assert cluster.controller == controller
                for broker in cluster.brokers.values():
                    broker.stop()
            finally:
                cluster.kill()
        assert_same_bytes(cluster)


def lose(cluster: MixedCluster, victim: int) -> None:
    wait_until(lambda: len(cluster.admin.list_topics(timeout=10).brokers) == len(BROKER_IDS), "all brokers are there")
    for future in cluster.admin.create_topics([NewTopic(TOPIC, PARTITIONS, len(BROKER_IDS))]).values():
        future.result(TIMEOUT_S)
    cluster.wait_until_whole()
    assert cluster.leaders() == set(BROKER_IDS)
    fill(cluster.trio.bootstrap, "before", cluster.places)
    cluster.brokers[victim].kill()
    wait_until(lambda: not {victim, -1} & cluster.leaders(), "others lead", TIMEOUT_S)
    fill(cluster.trio.bootstrap, "meanwhile", cluster.places)
    cluster.brokers[victim].start()
    cluster.wait_until_whole()
    fill(cluster.trio.bootstrap, "after", cluster.places)
    assert cluster.read() == [3 * RECORDS_EACH_TIME] * PARTITIONS


def assert_same_bytes(cluster: MixedCluster) -> None:
    for topic, partition in cluster.places:
        replicas = [
            committed(directory / "logs" / f"{topic}-{partition}", 3 * RECORDS_EACH_TIME)
            for directory in cluster.trio.directories.values()
        ]
        assert len(set(replicas)) == 1, f"the replicas of {topic}-{partition} differ"


def check() -> list[str]:
    wrong = []
    for controller, victim in ((KAFKA_BROKER, 2), (3, KAFKA_BROKER), (3, 2)):
        try:
            check_controller(controller, [KAFKA_BROKER], victim)
        except (AssertionError, TimeoutError, Rejected) as error:
            wrong.append(f"with broker {controller} as controller, broker {victim} killed: {error}"[:500])
    return wrong
