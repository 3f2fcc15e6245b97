"""Test clusters with a foreign client: records, groups, transactions, kills and restarts, resets."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tidelog.config.loading import SettingsError
from tidelog.testing import Cluster, ClusterError

pytestmark = pytest.mark.clients

TIMEOUT_S = 60.0


def _quiet(kafka: Cluster) -> dict[str, Any]:
    return {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0, "topic.metadata.refresh.interval.ms": 1000}


def _produce(kafka: Cluster, topic: str, *values: bytes) -> None:
    producer = Producer({**_quiet(kafka), "acks": "all", "delivery.timeout.ms": 60_000})
    failures: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == []


def _consume(kafka: Cluster, topic: str, count: int, group: str = "readers") -> list[bytes | None]:
    consumer = Consumer({**_quiet(kafka), "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes | None] = []
    while len(values) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error() is None:
            values.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def _topics(kafka: Cluster) -> set[str]:
    return set(AdminClient(_quiet(kafka)).list_topics(timeout=TIMEOUT_S).topics)


@pytest.fixture(scope="module")
def one() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(brokers=3) as cluster:
        yield cluster


def test_a_client_writes_and_a_group_reads(one: Cluster) -> None:
    one.reset()
    _produce(one, "tides", b"low", b"high")
    assert _consume(one, "tides", 2) == [b"low", b"high"]


def test_transactions(one: Cluster) -> None:
    one.reset()
    producer = Producer({**_quiet(one), "transactional.id": "copier"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("tides", b"aborted")
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("tides", b"committed")
    producer.commit_transaction(TIMEOUT_S)
    assert _consume(one, "tides", 1) == [b"committed"]


def test_reset_leaves_no_topic_no_group_and_the_same_address(one: Cluster) -> None:
    address = one.bootstrap_servers
    _produce(one, "tides", b"old")
    _consume(one, "tides", 1)
    one.reset()
    assert one.bootstrap_servers == address
    assert _topics(one) == set()
    admin = AdminClient(_quiet(one))
    assert admin.list_consumer_groups().result(TIMEOUT_S).valid == []
    _produce(one, "tides", b"new")
    assert _consume(one, "tides", 1) == [b"new"]


def test_a_producer_goes_on_after_a_reset(one: Cluster) -> None:
    one.reset()
    producer = Producer({**_quiet(one), "acks": "all"})
    for _ in range(2):
        producer.produce("tides", b"value")
        assert producer.flush(TIMEOUT_S) == 0
        one.reset()


def test_three_brokers_know_each_other_and_replicate(three: Cluster) -> None:
    three.reset()
    _produce(three, "tides", b"value")
    metadata = AdminClient(_quiet(three)).list_topics(timeout=TIMEOUT_S)
    assert sorted(metadata.brokers) == [1, 2, 3] == three.running
    assert sorted(metadata.topics["tides"].partitions[0].replicas) == [1, 2, 3]


def test_no_acknowledged_record_is_lost_when_every_broker_is_killed_in_turn(three: Cluster) -> None:
    three.reset()
    expected = []
    for broker_id in (1, 2, 3):
        expected += [b"before %d" % broker_id, b"without %d" % broker_id]
        _produce(three, "tides", expected[-2])
        three.kill(broker_id)
        assert broker_id not in three.running
        _produce(three, "tides", expected[-1])
        three.start(broker_id)
    assert _consume(three, "tides", len(expected)) == expected


def test_a_single_broker_has_its_records_after_kill_and_restart(one: Cluster) -> None:
    one.reset()
    _produce(one, "tides", b"first")
    one.kill(1)
    one.start(1)
    one.restart(1)
    assert _consume(one, "tides", 1) == [b"first"]


def test_reset_starts_brokers_that_were_killed(three: Cluster) -> None:
    three.reset()
    three.kill(2)
    three.stop(3)
    three.reset()
    assert three.running == [1, 2, 3]


def test_files_on_request(tmp_path: Path) -> None:
    with Cluster(directory=tmp_path / "kafka", settings={"num.partitions": 2}) as kafka:
        _produce(kafka, "tides", b"value")
        kafka.kill(1)
        kafka.start(1)
        assert _consume(kafka, "tides", 1) == [b"value"]
        kafka.reset()
        assert _topics(kafka) == set()
        _produce(kafka, "heights", b"4.1")
    found = {path.name for path in (tmp_path / "kafka" / "broker-1").iterdir()}
    assert {"heights-0", "heights-1"} <= found
    assert "tides-0" not in found


def test_a_directory_with_files_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("text")
    with pytest.raises(ClusterError, match="is not empty"):
        Cluster(directory=tmp_path).open()
    assert (tmp_path / "precious").read_text() == "text"


def test_async_with_and_aiokafka() -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def main() -> list[bytes | None]:
        async with Cluster() as kafka:
            async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
                await producer.send_and_wait("tides", b"low")
            async with AIOKafkaConsumer(
                "tides", bootstrap_servers=kafka.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
            ) as consumer:
                return [(await consumer.getone()).value]

    assert asyncio.run(main()) == [b"low"]


def test_nothing_is_left_behind() -> None:
    threads = set(threading.enumerate())
    with Cluster(brokers=2) as kafka:
        kafka.kill(1)
        ports = [int(address.rpartition(":")[2]) for address in kafka.bootstrap_servers.split(",")]
    assert set(threading.enumerate()) <= threads
    for port in ports:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_closed_cluster_can_be_opened_again() -> None:
    cluster = Cluster()
    for _ in range(2):
        with cluster as kafka:
            _produce(kafka, "tides", b"value")
            assert AdminClient(_quiet(kafka)).list_topics(timeout=TIMEOUT_S).topics.keys() == {"tides"}


def test_two_clusters_beside_each_other(one: Cluster) -> None:
    one.reset()
    with Cluster() as other:
        _produce(one, "here", b"value")
        _produce(other, "there", b"value")
        assert (_topics(one), _topics(other)) == ({"here"}, {"there"})


def test_mistakes_get_one_sentence(one: Cluster) -> None:
    with pytest.raises(ValueError, match="at least one broker, not 0"):
        Cluster(brokers=0)
    with pytest.raises(ClusterError, match="does not run: use it in"):
        _ = Cluster().bootstrap_servers
    with pytest.raises(ClusterError, match="there is no broker 2; the brokers are 1 to 1"):
        one.kill(2)
    with pytest.raises(ClusterError, match="broker 1 runs already"):
        one.start(1)
    with pytest.raises(ClusterError, match="the cluster runs already"):
        one.open()
    threads = threading.active_count()
    with pytest.raises(SettingsError, match=r"num\.partition: unknown setting; did you mean num\.partitions\?"):
        Cluster(settings={"num.partition": 3}).open()
    assert threading.active_count() == threads


def test_watermarks_survive_a_kill(one: Cluster) -> None:
    one.reset()
    _produce(one, "tides", *[b"%d" % number for number in range(100)])
    one.kill(1)
    one.start(1)
    consumer = Consumer({**_quiet(one), "group.id": "g"})
    assert consumer.get_watermark_offsets(TopicPartition("tides", 0), timeout=TIMEOUT_S) == (0, 100)
    consumer.close()
