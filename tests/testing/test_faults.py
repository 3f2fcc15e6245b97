"""Faults by name: paused brokers, cut connections, full, slow and lost disks, and a clock that moves."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidelog.testing import Cluster, ClusterError

pytestmark = pytest.mark.clients

TIMEOUT_S = 60.0
SESSION_S = 10
"""Longer than the session of a broker."""


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[int, Cluster]]:
    with Cluster(1) as one, Cluster(3) as three:
        yield {1: one, 3: three}


@pytest.fixture
def one(clusters: dict[int, Cluster]) -> Cluster:
    clusters[1].reset()
    return clusters[1]


@pytest.fixture
def three(clusters: dict[int, Cluster]) -> Cluster:
    clusters[3].reset()
    return clusters[3]


def _settings(kafka: Cluster, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "log_level": 0,
        "topic.metadata.refresh.interval.ms": 500,
        "socket.timeout.ms": 1000,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def _send(kafka: Cluster, topic: str, value: bytes, **more: Any) -> Any:
    """The error of the delivery, or None."""
    producer = Producer(_settings(kafka, acks="all", request_timeout_ms=900, **more))
    outcomes: list[Any] = []
    producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return outcomes[0]


def _create(kafka: Cluster, topic: str, replicas: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    configs = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, 1, replicas, config=configs)])[topic].result(TIMEOUT_S)


def _leader(kafka: Cluster, topic: str) -> tuple[int, list[int]]:
    """Leader and in-sync replicas."""
    metadata = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(topic, timeout=TIMEOUT_S)
    partition = metadata.topics[topic].partitions[0]
    return partition.leader, sorted(partition.isrs)


def _wait_for_in_sync_replicas(kafka: Cluster, expected: list[int]) -> None:
    """Brokers learn of changes one after the other, some seconds later."""
    deadline = time.monotonic() + TIMEOUT_S
    while _leader(kafka, "tides")[1] != expected:
        assert time.monotonic() < deadline
        kafka.clock.advance(seconds=1)


def test_a_paused_broker_does_not_answer_and_goes_on_later(one: Cluster) -> None:
    assert _send(one, "tides", b"before") is None
    one.pause(1)
    error = _send(one, "tides", b"during", message_timeout_ms=500)
    assert error.name() in ("_MSG_TIMED_OUT", "_TIMED_OUT")
    one.resume(1)
    assert _send(one, "tides", b"after") is None
    one.topic("tides").should_have(value="before", count=1)
    one.topic("tides").should_have(value="after", count=1)


def test_a_paused_leader_is_replaced_when_its_session_has_run_out(three: Cluster) -> None:
    _create(three, "tides", 3, min_insync_replicas="2")
    assert _send(three, "tides", b"before") is None
    leader, in_sync = _leader(three, "tides")
    assert in_sync == [1, 2, 3]
    three.pause(leader)
    three.clock.advance(seconds=SESSION_S)
    assert _send(three, "tides", b"during") is None
    three.resume(leader)
    assert _send(three, "tides", b"after") is None
    assert [record.value for record in three.topic("tides").records()] == [b"before", b"during", b"after"]


def test_pause_and_resume_refuse_what_makes_no_sense(one: Cluster) -> None:
    with pytest.raises(ClusterError, match="broker 1 is not paused"):
        one.resume(1)
    one.pause(1)
    with pytest.raises(ClusterError, match="broker 1 is paused already"):
        one.pause(1)
    one.kill(1)
    one.start(1)
    assert _send(one, "tides", b"value") is None


def test_clients_are_cut_off_and_healed(one: Cluster) -> None:
    assert _send(one, "tides", b"before") is None
    one.cut(1, "clients")
    assert _send(one, "tides", b"during", message_timeout_ms=500) is not None
    one.heal(1, "clients")
    assert _send(one, "tides", b"after") is None
    one.topic("tides").should_have(value="after", count=1)


def test_answers_that_were_cut_off_arrive_after_the_cut(one: Cluster) -> None:
    """A consumer that waits for records gets them on the same connection."""
    assert _send(one, "tides", b"before") is None
    consumer = Consumer({**_settings(one, group_id="g", auto_offset_reset="earliest"), "socket.timeout.ms": 60_000})
    consumer.subscribe(["tides"])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    one.cut(1, "clients")
    time.sleep(0.2)
    one.heal()
    assert _send(one, "tides", b"after") is None
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == b"after"
    consumer.close()


def test_a_follower_that_is_cut_off_leaves_the_in_sync_replicas_and_comes_back(three: Cluster) -> None:
    _create(three, "tides", 3, min_insync_replicas="2")
    leader, _ = _leader(three, "tides")
    follower = leader % 3 + 1
    three.cut(leader, follower)
    producer = Producer(_settings(three, acks="all", enable_idempotence=True))
    producer.produce("tides", b"during")
    while not three.requests("Produce"):
        producer.poll(0.01)
    three.clock.advance(seconds=60)  # replica.lag.time.max.ms is 30 s
    assert producer.flush(TIMEOUT_S) == 0
    _wait_for_in_sync_replicas(three, sorted({1, 2, 3} - {follower}))
    three.heal()
    _wait_for_in_sync_replicas(three, [1, 2, 3])


def test_requests_of_brokers_are_scripted_and_recorded_apart(three: Cluster) -> None:
    _create(three, "tides", 3, min_insync_replicas="2")
    leader, _ = _leader(three, "tides")
    rule = three.on("Fetch", topic="tides", broker=leader, from_brokers=True).fail("NOT_LEADER_OR_FOLLOWER", times=4)
    assert _send(three, "tides", b"value") is None
    assert rule.hits == 4
    fetches = three.requests("Fetch", from_brokers=True)
    assert {request.from_broker for request in fetches if request.broker == leader} == {1, 2, 3} - {leader}
    assert three.requests("Fetch") == []


def test_a_broker_that_is_cut_off_from_everything_is_replaced(three: Cluster) -> None:
    _create(three, "tides", 3)
    leader, _ = _leader(three, "tides")
    three.cut(leader)
    three.clock.advance(seconds=SESSION_S)
    assert _send(three, "tides", b"during") is None
    assert three.topic("tides").records()[0].value == b"during"
    three.heal()
    assert _send(three, "tides", b"after") is None
    three.topic("tides").should_have(count=2)


def test_cut_says_what_it_takes(three: Cluster) -> None:
    with pytest.raises(ClusterError, match="other= is the id of a broker, 'clients' or 'store', not 'client'"):
        three.cut(1, "client")  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match="there is no broker 4"):
        three.cut(1, 4)
    with pytest.raises(ClusterError, match="cannot be cut off from itself"):
        three.cut(1, 1)


def test_a_full_disk_ends_the_broker_and_the_others_go_on(three: Cluster) -> None:
    _create(three, "tides", 3, min_insync_replicas="1")
    leader, _ = _leader(three, "tides")
    three.fill_disk(leader)
    assert _send(three, "tides", b"value", enable_idempotence=True) is None
    assert three.running == sorted({1, 2, 3} - {leader})
    three.repair_disk(leader)
    three.start(leader)
    three.topic("tides").should_have(value="value", count=1)


def test_a_full_disk_of_files(tmp_path: Path) -> None:
    with Cluster(directory=tmp_path / "kafka") as kafka:
        assert _send(kafka, "tides", b"before") is None
        kafka.fill_disk(1)
        assert _send(kafka, "tides", b"during", message_timeout_ms=1000) is not None
        assert kafka.running == []
        kafka.repair_disk(1)
        kafka.start(1)
        kafka.topic("tides").should_have(value="before", count=1)


def test_a_lost_disk_is_filled_again_from_the_others(three: Cluster) -> None:
    _create(three, "tides", 3)
    assert _send(three, "tides", b"value") is None
    leader, _ = _leader(three, "tides")
    three.lose_disk(leader)
    assert leader not in three.running
    three.start(leader)
    three.topic("tides").should_have(value="value", count=1)


def test_a_lost_disk_of_a_single_broker_loses_its_records(one: Cluster) -> None:
    assert _send(one, "tides", b"value") is None
    one.lose_disk(1)
    one.start(1)
    one.topic("tides").should_be_empty()


def test_a_slow_disk(one: Cluster) -> None:
    assert _send(one, "tides", b"warm-up") is None
    one.slow_disk(1, 0.3)
    begun = time.monotonic()
    assert _send(one, "tides", b"slow") is None
    assert time.monotonic() - begun >= 0.3
    one.slow_disk(1, 0)


def test_retention_without_waiting(one: Cluster) -> None:
    _create(one, "tides", 1, retention_ms="86400000", segment_ms="3600000")
    assert _send(one, "tides", b"old") is None
    one.clock.advance(days=3)
    assert one.topic("tides").records() == []
    assert _send(one, "tides", b"new") is None
    one.topic("tides").should_have(count=1)


def test_the_transaction_of_a_silent_producer_times_out(one: Cluster) -> None:
    producer = Producer(_settings(one, transactional_id="till", transaction_timeout_ms=30_000))
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("tides", b"open")
    producer.flush(TIMEOUT_S)
    (transaction,) = one.transactions()
    assert (transaction.transactional_id, transaction.partitions) == ("till", (("tides", 0),))
    assert one.topic("tides").records() == []
    assert [record.value for record in one.topic("tides").records(committed=False)] == [b"open"]
    one.clock.advance(minutes=1)
    assert one.transactions() == []
    assert one.topic("tides").records() == []
    assert [record.value for record in one.topic("tides").records(committed=False)] == [b"open"]


def test_the_session_of_a_silent_member_times_out(one: Cluster) -> None:
    assert _send(one, "tides", b"value") is None
    consumer = Consumer(_settings(one, group_id="readers", auto_offset_reset="earliest", session_timeout_ms=45_000))
    consumer.subscribe(["tides"])
    assert consumer.poll(TIMEOUT_S) is not None
    consumer.commit(asynchronous=False)
    group = one.groups()["readers"]
    assert (group.state, len(group.members), group.committed) == ("Stable", 1, {("tides", 0): 1})
    assert group.members[0].partitions == (("tides", 0),)
    one.cut(1, "clients")  # else its next heartbeat lets it join again
    one.clock.advance(seconds=50)
    assert one.groups()["readers"].members == ()
    one.heal()
    consumer.close()


def test_time_moves_forward_only(one: Cluster) -> None:
    with pytest.raises(ValueError, match="time moves forward"):
        one.clock.advance(seconds=-1)
    before_ms = one.clock.now_ms
    one.clock.advance(hours=1)
    assert one.clock.now_ms - before_ms >= 3_600_000


def test_three_idle_brokers_stay_together_while_an_hour_passes(three: Cluster) -> None:
    _create(three, "tides", 3)
    assert _send(three, "tides", b"value") is None
    before = _leader(three, "tides")
    three.clock.advance(hours=1)
    assert _leader(three, "tides") == before
    assert three.running == [1, 2, 3]
    assert _send(three, "tides", b"value") is None


def test_a_reset_undoes_all_faults(three: Cluster) -> None:
    three.pause(1)
    three.cut(2)
    three.fill_disk(3)
    three.on("Metadata").drop()
    three.clock.advance(hours=1)
    three.reset()
    assert three.running == [1, 2, 3]
    assert abs(three.clock.now_ms / 1000 - time.time()) < 60
    assert _send(three, "tides", b"value") is None
