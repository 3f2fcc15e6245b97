"""Brokers in a background process: the same cluster, beside a test that keeps its own interpreter busy."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tidelog.testing import Cluster, ClusterError, RecordedRequest

pytestmark = pytest.mark.clients

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, process=True) as cluster:
        yield cluster


@pytest.fixture
def kafka(cluster: Cluster) -> Cluster:
    cluster.reset()
    return cluster


def _send(kafka: Cluster, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0, "retry.backoff.ms": 1})
    producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0


def test_everything_works_from_another_process(kafka: Cluster) -> None:
    rule = kafka.on("Produce", topic="tides").fail("NOT_ENOUGH_REPLICAS", times=2)
    _send(kafka, "tides", b"low")
    assert rule.hits == 2
    kafka.topic("tides").should_have(value="low", count=1)
    kafka.kill(2)
    assert kafka.running == [1]
    kafka.start(2)
    kafka.clock.advance(hours=1)
    assert kafka.groups() == {}


def test_functions_run_in_the_process_of_the_test(kafka: Cluster) -> None:
    processes = []

    def choose(request: RecordedRequest) -> str | None:
        processes.append(os.getpid())
        return "NOT_LEADER_OR_FOLLOWER" if len(processes) == 1 else None

    kafka.on("Produce").fail(choose)
    _send(kafka, "tides", b"low")
    assert processes == [os.getpid()] * 2


def test_a_function_that_fails_is_reported_by_the_next_call(kafka: Cluster) -> None:
    def choose(request: RecordedRequest) -> str | None:
        raise RuntimeError("a bug in the test")

    kafka.on("Produce").fail(choose)
    _send(kafka, "tides", b"low")
    with pytest.raises(ClusterError, match="RuntimeError: a bug in the test"):
        kafka.topics()
    kafka.topics()


def test_errors_are_those_of_the_cluster() -> None:
    with pytest.raises(ClusterError, match=r"did you mean num\.partitions\?"):
        Cluster(process=True, settings={"num.partition": 3}).open()


def test_files(tmp_path: Path) -> None:
    with Cluster(process=True, directory=tmp_path / "kafka") as kafka:
        _send(kafka, "tides", b"low")
    assert (tmp_path / "kafka" / "broker-1" / "tides-0").is_dir()
