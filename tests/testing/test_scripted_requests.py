"""Scripted requests with foreign clients: errors, delays, lost requests and answers, and the record of requests."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidelog.testing import Cluster, ClusterError, RecordedRequest

pytestmark = pytest.mark.clients

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def kafka(cluster: Cluster) -> Cluster:
    cluster.reset()
    return cluster


def _producer(kafka: Cluster, **settings: Any) -> Producer:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0, "retry.backoff.ms": 1, **given})


def _send(producer: Producer, topic: str, value: bytes) -> Any:
    """The error of the delivery, or None."""
    outcomes: list[Any] = []
    producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return outcomes[0]


def _read(kafka: Cluster, topic: str, group: str = "readers") -> bytes | None:
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            if message.error() is None:  # librdkafka also reports errors that it overcomes
                return message.value()
    finally:
        consumer.close()


def test_produce_fails_twice_and_is_retried(kafka: Cluster) -> None:
    rule = kafka.on("Produce", topic="tides").fail("NOT_ENOUGH_REPLICAS", times=2)
    assert _send(_producer(kafka, acks="all"), "tides", b"low") is None
    assert rule.hits == 2
    assert [request.fault for request in kafka.requests("Produce")] == ["fail NOT_ENOUGH_REPLICAS"] * 2 + [None]
    kafka.topic("tides").should_have(value="low", count=1)


def test_what_may_be_written_is_not_written_again_when_another_partition_refuses_for_now(kafka: Cluster) -> None:
    """librdkafka would continue in another epoch, everywhere, if batches behind the refused one were out of order."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic("tides", 2)])["tides"].result()
    producer = _producer(kafka, enable_idempotence=True, batch_num_messages=1, linger_ms=0)
    for partition in (0, 1):
        producer.produce("tides", b"first", partition=partition)
    assert producer.flush(TIMEOUT_S) == 0

    def written(partition: int) -> list[bytes | None]:
        return [record.value for record in kafka.topic("tides").records() if record.partition == partition]

    held_up = kafka.on("Produce", topic="tides", partition=0).fail("NOT_ENOUGH_REPLICAS")
    kafka.on("Produce", topic="tides", partition=0).lose_answer(times=1)
    producer.produce("tides", b"written", partition=0)
    while not held_up.hits:
        producer.poll(0.01)
    kafka.on("Produce", topic="tides", partition=1).fail("NOT_ENOUGH_REPLICAS", times=1)
    values = [b"%d" % number for number in range(5)]
    for value in values:
        producer.produce("tides", value, partition=1)
    while len(written(1)) < 1 + len(values):
        producer.poll(0.01)
    held_up.remove()
    assert producer.flush(TIMEOUT_S) == 0
    assert written(0) == [b"first", b"written"]
    assert written(1) == [b"first", *values]


def test_an_error_that_is_not_retriable_reaches_the_producer(kafka: Cluster) -> None:
    kafka.on("Produce").fail("TOPIC_AUTHORIZATION_FAILED")
    error = _send(_producer(kafka), "tides", b"low")
    assert error.name() == "TOPIC_AUTHORIZATION_FAILED"
    kafka.topic("tides").should_be_empty()


def test_only_the_topic_of_the_rule_fails(kafka: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.create_topics([NewTopic("bad", 1), NewTopic("good", 1)]).values():
        future.result(TIMEOUT_S)
    kafka.on("Produce", topic="bad").fail("INVALID_RECORD")
    producer = _producer(kafka, linger_ms=50)
    outcomes: dict[Any, Any] = {}
    for topic in ("bad", "good"):
        producer.produce(topic, b"value", on_delivery=lambda error, message: outcomes.update({message.topic(): error}))
    assert producer.flush(TIMEOUT_S) == 0
    assert outcomes["good"] is None
    assert outcomes["bad"].name() == "INVALID_RECORD"
    kafka.topic("good").should_have(count=1)
    kafka.topic("bad").should_be_empty()


def test_only_the_partition_of_the_rule_fails(kafka: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic("tides", 2)])["tides"].result(TIMEOUT_S)
    kafka.on("Produce", topic="tides", partition=1).fail("INVALID_RECORD")
    producer = _producer(kafka, linger_ms=50)
    outcomes: dict[Any, Any] = {}
    for partition in (0, 1):
        producer.produce(
            "tides",
            b"value",
            partition=partition,
            on_delivery=lambda error, message: outcomes.update({message.partition(): error}),
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert outcomes[0] is None
    assert outcomes[1].name() == "INVALID_RECORD"


def test_a_function_decides(kafka: Cluster) -> None:
    seen: list[RecordedRequest] = []

    def choose(request: RecordedRequest) -> str | None:
        seen.append(request)
        return "NOT_LEADER_OR_FOLLOWER" if len(seen) == 1 else None

    kafka.on("Produce").fail(choose)
    assert _send(_producer(kafka), "tides", b"low") is None
    assert [request.topics for request in seen] == [("tides",), ("tides",)]
    assert seen[0].partitions == (("tides", 0),)


def test_a_function_that_fails_is_reported_by_the_next_call(kafka: Cluster) -> None:
    def choose(request: RecordedRequest) -> str | None:
        raise RuntimeError("a bug in the test")

    kafka.on("Produce").fail(choose)
    assert _send(_producer(kafka), "tides", b"low") is None
    with pytest.raises(ClusterError, match=r"on\('Produce'\)\.fail\(\.\.\.\) failed: RuntimeError: a bug in the test"):
        kafka.topics()
    assert kafka.topics() == ["tides"]


def test_delay(kafka: Cluster) -> None:
    producer = _producer(kafka)
    assert _send(producer, "tides", b"warm-up") is None
    kafka.on("Produce").delay(0.3, times=1)
    begun = time.monotonic()
    assert _send(producer, "tides", b"low") is None
    assert time.monotonic() - begun >= 0.3


def test_delayed_requests_of_an_idempotent_producer_keep_their_order(kafka: Cluster) -> None:
    producer = _producer(kafka, enable_idempotence=True, linger_ms=0)
    assert _send(producer, "tides", b"warm-up") is None
    kafka.on("Produce").delay(0.2, times=1)
    for number in range(20):
        producer.produce("tides", b"%d" % number)
        producer.poll(0.01)
    assert producer.flush(TIMEOUT_S) == 0
    values = [record.value for record in kafka.topic("tides").records()]
    assert values == [b"warm-up", *(b"%d" % number for number in range(20))]


def test_a_dropped_request_runs_into_the_time_out_of_the_client(kafka: Cluster) -> None:
    producer = _producer(kafka, request_timeout_ms=500, socket_timeout_ms=600)
    assert _send(producer, "tides", b"warm-up") is None
    rule = kafka.on("Produce").drop(times=1)
    assert _send(producer, "tides", b"low") is None
    assert rule.hits == 1
    kafka.topic("tides").should_have(value=b"low", count=1)


def test_an_idempotent_producer_writes_once_although_the_answer_is_lost(kafka: Cluster) -> None:
    producer = _producer(kafka, enable_idempotence=True)
    assert _send(producer, "tides", b"warm-up") is None
    kafka.on("Produce").lose_answer(times=1)
    assert _send(producer, "tides", b"low") is None
    assert len(kafka.requests("Produce")) == 3
    kafka.topic("tides").should_have(value=b"low", count=1)


def test_disconnect(kafka: Cluster) -> None:
    producer = _producer(kafka)
    kafka.on("Produce").disconnect(times=2)
    assert _send(producer, "tides", b"low") is None


def test_fetch_and_coordinator_errors_are_overcome(kafka: Cluster) -> None:
    assert _send(_producer(kafka), "tides", b"low") is None
    kafka.on("Fetch", topic="tides").fail("NOT_LEADER_OR_FOLLOWER", times=1)
    kafka.on("FindCoordinator").fail("COORDINATOR_NOT_AVAILABLE", times=1)
    kafka.on("JoinGroup", group="readers").fail("COORDINATOR_LOAD_IN_PROGRESS", times=1)
    kafka.on("Heartbeat").fail("REBALANCE_IN_PROGRESS", times=1)
    assert _read(kafka, "tides") == b"low"
    faults = {request.api: request.fault for request in kafka.requests() if request.fault}
    assert faults.keys() >= {"Fetch", "FindCoordinator", "JoinGroup"}


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
def test_errors_in_the_session_of_a_consumer_that_names_no_partitions(kafka: Cluster) -> None:
    """kafka-python fetches in sessions: its later requests are empty."""
    from kafka import KafkaConsumer

    assert _send(_producer(kafka), "tides", b"low") is None
    consumer = KafkaConsumer(
        "tides", bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=50
    )
    assert next(consumer).value == b"low"
    consumer.poll(200)
    rule = kafka.on("Fetch", topic="tides").fail("NOT_LEADER_OR_FOLLOWER", times=2)
    while rule.hits < 2:
        assert consumer.poll(50) == {}
    assert any(not request.body["topics"] for request in kafka.requests("Fetch") if request.fault)
    assert _send(_producer(kafka), "tides", b"high") is None
    assert next(consumer).value == b"high"
    consumer.close()


def test_metadata_errors_leave_the_brokers_in_place(kafka: Cluster) -> None:
    assert _send(_producer(kafka), "tides", b"low") is None
    with kafka.on("Metadata", topic="tides").fail("LEADER_NOT_AVAILABLE"):
        metadata = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics("tides", TIMEOUT_S)
        assert list(metadata.brokers) == [1]
        assert "LEADER_NOT_AVAILABLE" in repr(metadata.topics["tides"].error)
    metadata = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics("tides", TIMEOUT_S)
    assert metadata.topics["tides"].error is None


def test_admin_errors(kafka: Cluster) -> None:
    kafka.on("CreateTopics", topic="tides").fail("POLICY_VIOLATION")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        admin.create_topics([NewTopic("tides", 1)])["tides"].result(TIMEOUT_S)
    assert kafka.topics() == []


def test_requests_are_recorded_with_what_they_are_about(kafka: Cluster) -> None:
    assert _send(_producer(kafka, client_id="till"), "tides", b"low") is None
    assert _read(kafka, "tides") == b"low"
    (produce,) = kafka.requests("Produce")
    assert (produce.client_id, produce.broker, produce.partitions) == ("till", 1, (("tides", 0),))
    assert produce.body["acks"] == -1
    assert produce.body["topic_data"][0]["partition_data"][0]["records"] > 61
    assert {request.groups for request in kafka.requests("JoinGroup")} == {("readers",)}
    assert kafka.requests("Produce", from_brokers=True) == []
    apis = [request.api for request in kafka.requests()]
    assert apis.index("ApiVersions") < apis.index("Produce") < apis.index("Fetch")
    kafka.reset()
    assert kafka.requests() == []


def test_mistakes_get_one_sentence(kafka: Cluster) -> None:
    with pytest.raises(ValueError, match="there is no request 'Produced'"):
        kafka.on("Produced")
    with pytest.raises(ValueError, match="there is no Kafka error 'NOT_ENOUGH'"):
        kafka.on("Produce").fail("NOT_ENOUGH")
