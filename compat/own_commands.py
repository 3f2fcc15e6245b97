"""The commands of `tidelog` that visit a cluster, against Apache Kafka: they use only its public requests."""

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


def run(bootstrap: str, *arguments: str, code: int | None = 0, given: str = "") -> str:
    """What the command printed; for a failure, on standard error. None: the machine decides about the code."""
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", *arguments, "--bootstrap", bootstrap],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        input=given,
        check=False,
    )
    assert code is None or done.returncode == code, (
        f"{' '.join(arguments)} ended with {done.returncode}: {done.stdout}{done.stderr}"
    )
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
            wrong += [] if "there is no broker 77" in rejected else [rejected]
            return [*wrong, *_topics_and_records(broker.bootstrap), *_groups_and_health(broker.bootstrap)]
        finally:
            broker.kill()


def _topics_and_records(bootstrap: str) -> list[str]:
    def found(*arguments: str) -> Any:
        return json.loads(run(bootstrap, *arguments, "--json"))

    run(bootstrap, "topic", "create", "words", "--partitions", "1", "--set", "retention.ms=86400000")
    found("topic", "alter", "words", "--partitions", "2", "--unset", "retention.ms")
    found("config", "set", "topic", "words", "cleanup.policy=compact")
    settings = {each["name"]: each["value"] for each in found("config", "get", "topic", "words")}
    rejected = run(bootstrap, "config", "unset", "topic", "words", "retention.mss", code=1)
    found("config", "unset", "topic", "words", "cleanup.policy")
    lines = [
        {"key": "a", "value": "1", "headers": {"h": "x"}, "partition": 0},
        {"key": "a", "value": None, "partition": 1},
    ]
    given = "".join(f"{json.dumps(each)}\n" for each in lines)
    run(bootstrap, "produce", "words", "--input", "json", "--compression", "zstd", given=given)
    shown = run(bootstrap, "consume", "word*", "--since", "10m", "--until", "now", "--key", "a", "--json")
    values = sorted((each["partition"], each["value"]) for each in map(json.loads, shown.splitlines()))
    checks = {
        "settings": settings.get("cleanup.policy") == "compact" and "retention.ms" not in settings,
        "a name that is no setting": "has no setting retention.mss" in rejected,
        "records": values == [(0, "1"), (1, None)],
        "description": len(found("topic", "describe", "words")["partitions"]) == 2,
        "list": "words" in [each["name"] for each in found("topic", "list")],
        "perf": found("perf", "produce", "words", "--records", "100")["records"] == 100,
        "deletion": found("topic", "delete", "words")["deleted"],
    }
    return [f"wrong answer about: {name}" for name, holds in checks.items() if not holds]


def _groups_and_health(bootstrap: str) -> list[str]:
    def found(*arguments: str) -> Any:
        return json.loads(run(bootstrap, *arguments, "--json"))

    run(bootstrap, "consume", TOPIC, "--group", "readers", "--from-beginning", "--max-messages", "10")
    (listed,) = found("group", "list")
    reset = found("group", "reset-offsets", "readers", "--topic", TOPIC, "--to-latest", "--execute")
    described = found("group", "describe", "readers")
    checks = {
        "groups": "readers" in listed.values(),
        "reset offsets": reset["executed"] and all(each["lag"] == 0 for each in described["partitions"]),
        "deletion of a group": found("group", "delete", "readers")["deleted"],
        "transactions": found("transaction", "list") == [],
        "quotas": found("quota", "list") == [],
        "users": found("user", "list") == [],
        "permissions": "no authorizer" in run(bootstrap, "acl", "list", code=1),
        "health": found("status")["health"] == "healthy",
        "brokers": found("broker", "list")[0]["state"] == "up",
        "doctor": isinstance(json.loads(run(bootstrap, "doctor", "--json", code=None)), list),
    }
    return [f"wrong answer about: {name}" for name, holds in checks.items() if not holds]


def create(bootstrap: str, topic: NewTopic, *, brokers: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == brokers, "all brokers are there")
    admin.create_topics([topic])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(1000):
        producer.produce(TOPIC, b"x" * 1000, partition=number % 2)
    assert producer.flush(60) == 0
