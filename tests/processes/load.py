"""A cluster under load: what every test here does before and after its own disturbance."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.processes.cluster import BROKERS, Cluster, PartitionState
from tests.processes.history import FollowingReader, IdempotentWriter, check, read_all
from tests.processes.replicas import assert_replicas_identical
from tidelog.cluster.topic_names import is_internal
from tidelog.types import TopicPartition

TOPIC = "tides"
PARTITIONS = 3


@dataclass
class Load:
    cluster: Cluster
    writer: IdempotentWriter
    reader: FollowingReader

    def state(self, partition: int = 0) -> PartitionState:
        return self.cluster.state(TOPIC, partition)

    def leader(self, partition: int = 0) -> int:
        return self.state(partition).leader

    def led_by(self, broker_id: int) -> list[int]:
        return [partition for partition in range(PARTITIONS) if self.leader(partition) == broker_id]

    def wait_until_others_lead(self, broker_id: int) -> None:
        for partition in range(PARTITIONS):
            self.cluster.wait_for_state(TOPIC, partition, lambda found: found.leader not in (broker_id, -1))

    def wait_until_out_of_sync(self, broker_id: int, partitions: list[int] | range = range(PARTITIONS)) -> None:
        for partition in partitions:
            self.cluster.wait_for_state(TOPIC, partition, lambda found: broker_id not in found.in_sync)

    def wait_until_whole(self) -> None:
        for partition in range(PARTITIONS):
            self.cluster.wait_for_state(
                TOPIC, partition, lambda found: found.in_sync == frozenset(BROKERS) and found.leader in BROKERS
            )


def create_topic(cluster: Cluster, name: str = TOPIC, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, partitions, len(BROKERS))])[name].result(30)


@contextmanager
def under_load(cluster: Cluster) -> Iterator[Load]:
    """Writes and reads while the test does its worst; then all must be whole, complete and the same everywhere."""
    create_topic(cluster)
    with (
        FollowingReader(cluster.bootstrap, TOPIC, PARTITIONS) as reader,
        IdempotentWriter(cluster.bootstrap, TOPIC, PARTITIONS) as writer,
    ):
        load = Load(cluster, writer, reader)
        writer.wait_for_more()
        yield load
        writer.wait_for_more()
    load.wait_until_whole()
    check(writer, read_all(cluster.bootstrap, TOPIC, PARTITIONS), reader)
    cluster.stop()
    found = assert_replicas_identical(broker.log_dir for broker in cluster.brokers.values())
    assert {key: count for key, count in found.items() if not is_internal(key.topic)} == {
        TopicPartition(TOPIC, partition): len(writer.sent[partition]) for partition in range(PARTITIONS)
    }
    assert_no_surprises(cluster)


def assert_no_surprises(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        surprises = [line for line in broker.output.splitlines() if " ERROR " in line or "Traceback" in line]
        assert surprises == [], f"broker {broker.broker_id}"
