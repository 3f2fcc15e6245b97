"""The coordination store is lost while the log directories are whole: no record is."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.cli.client import WAIT_S, consume
from tests.cli.local_cluster import LocalCluster, local_cluster
from tests.cli.process import TIME_LIMIT_S

RECORDS = [f"record {number}" for number in range(1000)]
SESSION_TIMEOUT_MS = 3000
PAUSE_S = 0.2


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path / "data", brokers=3) as found:
        yield found


def lose_store(cluster: LocalCluster) -> None:
    for path in cluster.data.glob("coordination.sqlite*"):
        path.unlink()


def produce(address: str, topic: str, *values: str) -> None:
    """Idempotent: who is given the id of an earlier producer is refused, or taken for it."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    failures: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(WAIT_S) == 0
    assert failures == [None] * len(values)


def test_records_are_there_after_the_store_was_removed_between_down_and_up(cluster: LocalCluster) -> None:
    cluster.up()
    produce(cluster.bootstrap, "orders", *RECORDS)
    cluster.run("down")
    lose_store(cluster)
    cluster.up()
    produce(cluster.bootstrap, "orders", "after")
    assert consume(cluster.bootstrap, "orders", len(RECORDS) + 1) == [*RECORDS, "after"]
    (partition,) = [each for each in cluster.status()["partitions"] if each["topic"] == "orders"]
    assert sorted(partition["isr"]) == sorted(partition["replicas"]) == [1, 2, 3]
    for number in (1, 2, 3):
        assert "earlier topic" not in cluster.log(number)


def test_a_store_that_is_removed_while_brokers_run_suspends_them_until_there_is_another(cluster: LocalCluster) -> None:
    cluster.up("--set", f"broker.session.timeout.ms={SESSION_TIMEOUT_MS}")
    produce(cluster.bootstrap, "orders", *RECORDS)
    (cluster.data / "coordination.sqlite").unlink()
    wait_for_states(cluster, {1: "suspended", 2: "suspended", 3: "suspended"})
    found = cluster.status()
    assert {each["leader"] for each in found["partitions"]} == {None}
    assert "coordination.sqlite: the file is missing" in found["brokers"][0]["suspension"]
    assert "brokers 1,2,3 suspended: the coordination store cannot be reached" in cluster.report()
    cluster.run("kill", "2")
    cluster.run("start", "2")  # makes a new store, which the others then find
    wait_for_states(cluster, {1: "up", 2: "up", 3: "up"})
    produce(cluster.bootstrap, "orders", "after")
    assert consume(cluster.bootstrap, "orders", len(RECORDS) + 1) == [*RECORDS, "after"]
    assert strays(cluster) == []


def test_a_store_that_is_removed_with_the_locks_of_its_sessions_is_filled_again(cluster: LocalCluster) -> None:
    """Without the locks the brokers take each other for dead, end the sessions, and join again."""
    cluster.up("--set", f"broker.session.timeout.ms={SESSION_TIMEOUT_MS}")
    produce(cluster.bootstrap, "orders", *RECORDS)
    lose_store(cluster)
    wait_for(lambda: (cluster.data / "coordination.sqlite").exists(), lambda: "no broker made a new store")
    wait_for_states(cluster, {1: "up", 2: "up", 3: "up"})
    produce(cluster.bootstrap, "orders", "after")
    assert consume(cluster.bootstrap, "orders", len(RECORDS) + 1) == [*RECORDS, "after"]
    assert strays(cluster) == []


def test_a_start_without_the_logs_of_one_broker_is_refused_with_a_sentence(cluster: LocalCluster) -> None:
    cluster.up()
    produce(cluster.bootstrap, "orders", *RECORDS)
    cluster.run("down")
    lose_store(cluster)
    shutil.rmtree(cluster.data / "broker-2")
    said = cluster.rejection("up", "--detach")
    assert "did not start: " in said
    assert said.count("\n") == 0
    assert ("broker 2 held replicas, and its log directories are new" in said) or ("belongs to cluster.id=" in said)
    assert cluster.states() == {1: "down", 2: "down", 3: "down"}
    assert strays(cluster) == []


def wait_for_states(cluster: LocalCluster, expected: dict[int, str]) -> None:
    wait_for(lambda: cluster.states() == expected, lambda: str(cluster.states()))


def wait_for(condition: Callable[[], bool], describe: Callable[[], str]) -> None:
    deadline = time.monotonic() + TIME_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, describe()
        time.sleep(PAUSE_S)


def strays(cluster: LocalCluster) -> list[Path]:
    """Whatever was set aside or is to be deleted."""
    return [*cluster.data.glob("broker-*/*-stray"), *cluster.data.glob("broker-*/*-delete")]
