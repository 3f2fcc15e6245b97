"""A cluster of three brokers as a user meets it: ready when it says so, alive when one dies, whole when it is back."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.cli.client import WAIT_S, consume, produce
from tests.cli.local_cluster import LocalCluster, local_cluster
from tests.cli.process import TIME_LIMIT_S, tidelog
from tidelog.cluster.topic_names import is_internal

PAUSE_S = 0.05


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path / "data", brokers=3) as found:
        yield found


def only_partition(cluster: LocalCluster) -> dict[str, Any]:
    """But for those of internal topics, which clients bring along by asking for coordinators."""
    (found,) = [each for each in cluster.status()["partitions"] if not is_internal(each["topic"])]
    return dict(found)


def wait_until_whole(cluster: LocalCluster) -> dict[str, Any]:
    """Until every replica is in sync and level with its leader."""
    deadline = time.monotonic() + TIME_LIMIT_S
    while True:
        found = only_partition(cluster)
        if sorted(found["isr"]) == [1, 2, 3] and set(found["lag"].values()) == {0}:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(PAUSE_S)


def produce_once(bootstrap: str, topic: str) -> None:
    """A write with acks=all that may not be retried once it was refused."""
    rejected: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "message.send.max.retries": 0})
    producer.produce(topic, "first", on_delivery=lambda error, _: rejected.append(error))
    assert producer.flush(WAIT_S) == 0
    assert rejected == [None]


def test_first_write_with_all_acknowledgements_succeeds_at_once(cluster: LocalCluster) -> None:
    said = cluster.up().splitlines()
    assert said[-1] == f"bootstrap: {cluster.bootstrap}"
    assert sorted(line.split(" (pid")[0] for line in said[:3]) == [
        f"broker {number} is ready: 127.0.0.1:{cluster.port + number - 1}" for number in (1, 2, 3)
    ]
    produce_once(cluster.bootstrap, "greetings")
    found = cluster.status()
    assert {broker["id"]: broker["state"] for broker in found["brokers"]} == {1: "up", 2: "up", 3: "up"}
    assert found["controller"] in (1, 2, 3)
    (partition,) = found["partitions"]
    assert sorted(partition["replicas"]) == sorted(partition["isr"]) == [1, 2, 3]
    cluster.run("down")
    cluster.up()
    produce_once(cluster.bootstrap, "greetings")


def test_killed_leader_is_replaced_and_comes_back_in_sync(cluster: LocalCluster) -> None:
    cluster.up()
    produce(cluster.bootstrap, "greetings", "one")
    leader = only_partition(cluster)["leader"]
    cluster.run("kill", str(leader))
    produce(cluster.bootstrap, "greetings", "two")
    found = only_partition(cluster)
    assert found["leader"] not in (leader, None)
    assert leader not in found["isr"]
    assert found["lag"][str(leader)] is None
    (reason,) = found["out_of_sync"]
    assert reason["replica"] == leader
    assert f"replica {leader} out of sync" in reason["reason"]
    assert cluster.states()[leader] == "down"
    cluster.run("start", str(leader))
    assert wait_until_whole(cluster)["high_watermark"] == 2
    assert consume(cluster.bootstrap, "greetings", 2) == ["one", "two"]


def test_tools_find_the_cluster_in_the_data_directory_whichever_broker_is_killed(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDELOG_BOOTSTRAP", raising=False)
    monkeypatch.setenv("TIDELOG_DATA", str(cluster.data))
    cluster.up()
    assert tidelog("topic", "create", "greetings").returncode == 0
    for number in (1, 2, 3):
        cluster.run("kill", str(number))
        assert tidelog("produce", "greetings", stdin=f"without {number}\n").returncode == 0
        cluster.run("start", str(number))
    read = tidelog("consume", "greetings", "--from-beginning", "--max-messages", "3")
    assert sorted(read.stdout.splitlines()) == ["without 1", "without 2", "without 3"]


def test_up_again_starts_only_what_died(cluster: LocalCluster) -> None:
    cluster.up()
    pids = [cluster.pid(number) for number in (1, 2, 3)]
    os.kill(cluster.pid(2), signal.SIGKILL)
    os.kill(cluster.pid(3), signal.SIGKILL)
    cluster.up()
    assert cluster.states() == {1: "up", 2: "up", 3: "up"}
    assert cluster.pid(1) == pids[0]
    assert {cluster.pid(2), cluster.pid(3)}.isdisjoint(pids)


def test_all_killed_at_once_and_started_again_have_everything(cluster: LocalCluster) -> None:
    cluster.up()
    produce(cluster.bootstrap, "greetings", "one", "two", "three")
    for number in (1, 2, 3):
        os.kill(cluster.pid(number), signal.SIGKILL)
    cluster.up()
    produce_once(cluster.bootstrap, "greetings")
    assert consume(cluster.bootstrap, "greetings", 4) == ["one", "two", "three", "first"]
    wait_until_whole(cluster)


def test_down_stops_all_in_good_order(cluster: LocalCluster) -> None:
    cluster.up()
    produce(cluster.bootstrap, "greetings", "one")
    controller = cluster.status()["controller"]
    said = cluster.run("down").splitlines()
    assert said[-2:] == [f"broker {controller} stopped", f"all brokers of {cluster.data} have stopped"]
    for number in (1, 2, 3):
        assert (cluster.data / f"broker-{number}" / ".kafka_cleanshutdown").exists()
        assert "Traceback" not in cluster.log(number)


def test_port_of_the_second_broker_in_use_starts_none(cluster: LocalCluster) -> None:
    with socket.create_server(("127.0.0.1", cluster.port + 1)):
        said = cluster.rejection("up", "--port", str(cluster.port))
    assert said.startswith(f"broker 2 cannot listen on 127.0.0.1:{cluster.port + 1}: Address already in use")
    assert not cluster.data.exists()


def test_broker_that_cannot_start_takes_those_started_with_it_along(cluster: LocalCluster) -> None:
    cluster.up()
    cluster.run("down")
    (cluster.data / "broker-2" / "meta.properties").write_text("version=0\ncluster.id=AnotherClusterAAAAAAAA\n")
    said = cluster.rejection("up", "--detach").removeprefix("broker 2 did not start: ")
    assert said.startswith(f"log dir {cluster.data / 'broker-2'} belongs to cluster.id=AnotherClusterAAAAAAAA")
    assert cluster.states() == {1: "down", 2: "down", 3: "down"}
