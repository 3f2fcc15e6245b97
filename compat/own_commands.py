"""`tidelog partition` and `tidelog broker` against Apache Kafka: they use only its public requests."""

import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat.same_zookeeper import CHROOT, Trio, kafka
from tests.clients.driver import wait_until
from tools.apache_kafka import KAFKA_4, ApacheKafka, free_port
from tools.zookeeper import ZooKeeper

TOPIC = "orders"
TIME_LIMIT_S = 120


def run(bootstrap: str, *arguments: str, code: int = 0) -> str:
    """What the command printed; for a failure, on standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", *arguments, "--bootstrap", bootstrap],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == code, f"{' '.join(arguments)} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stderr if code else done.stdout


def partitions(bootstrap: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(bootstrap, "partition", "list", "--topic", TOPIC, "--json"))
    return found


def check_three() -> list[str]:
    with tempfile.TemporaryDirectory(prefix="compat-commands-") as scratch:
        directory = Path(scratch)
        with ZooKeeper(free_port(), directory / "zookeeper") as zookeeper:
            trio = Trio(directory, zookeeper.connect_string + CHROOT)
            with contextlib.contextmanager(kafka)(trio):
                return _moved(trio.bootstrap)


def _moved(bootstrap: str) -> list[str]:
    create(bootstrap, NewTopic(TOPIC, 3, replica_assignment=[[1, 2], [2, 1], [1, 2]]), brokers=3)
    shown = run(bootstrap, "partition", "move", "--add-broker", "3", "--dry-run")
    moved = run(bootstrap, "partition", "move", "--add-broker", "3", "--throttle", "50MB", "--yes")
    after = partitions(bootstrap)
    wrong = [] if sum(3 in each["replicas"] for each in after) == 2 else [f"{after} after\n{shown}{moved}"]
    run(bootstrap, "partition", "move", "--drain", "3", "--yes")
    if any(3 in each["replicas"] for each in partitions(bootstrap)):
        wrong.append("broker 3 was not drained")
    if "throttled" in run(bootstrap, "broker", "describe", "1") + run(bootstrap, "topic", "describe", TOPIC):
        wrong.append("the throttle was not removed")
    if run(bootstrap, "partition", "move", "--status") != "no partition is being moved\n":
        wrong.append("--status finds a move")
    run(bootstrap, "partition", "elect")
    rejected = run(bootstrap, "broker", "forget", "1", code=1)
    return wrong if "is up and cannot be forgotten" in rejected else [*wrong, rejected]


def check_one() -> list[str]:
    with tempfile.TemporaryDirectory(prefix="compat-commands-") as scratch:
        broker = ApacheKafka(KAFKA_4, 0, Path(scratch), "512m", {})
        broker.start()
        try:
            create(broker.bootstrap, NewTopic(TOPIC, 2, 1), brokers=1)
            wrong = [] if len(partitions(broker.bootstrap)) == 2 else ["not all partitions are listed"]
            if "is healthy" not in run(broker.bootstrap, "partition", "why", TOPIC, "0"):
                wrong.append("a healthy partition is not called so")
            run(broker.bootstrap, "broker", "describe", "1")
            if "nothing to move" not in run(broker.bootstrap, "partition", "move", "--balance", "--yes"):
                wrong.append("a single broker is not balanced")
            rejected = run(broker.bootstrap, "broker", "forget", "77", code=1)
            return wrong if "there is no broker 77" in rejected else [*wrong, rejected]
        finally:
            broker.kill()


def create(bootstrap: str, topic: NewTopic, *, brokers: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == brokers, "all brokers are there")
    admin.create_topics([topic])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(1000):
        producer.produce(TOPIC, b"x" * 1000, partition=number % 2)
    assert producer.flush(60) == 0
