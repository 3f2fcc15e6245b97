"""Rolling restart under Kafka's Java clients: no error reaches the application, leaders are in place afterwards."""

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from compat.command_line import TOOLS, ToolBox, described, tool
from tests.clients.broker import TidelogCluster
from tests.clients.driver import wait_until
from tools.apache_kafka import java_command

PARTITIONS = 6
RECORDS_PER_SECOND = 400
BALANCED_S = 10.0
STARTING_S = 90.0
"""Of two Java programs at once, on a busy machine."""
WORKING_S = 1.0
"""Between two restarts."""


WRITING = ("--acks", "-1", "--throughput", str(RECORDS_PER_SECOND), "--producer.config")


@contextmanager
def producer_config(directory: str) -> Iterator[str]:
    """What is Kafka's default: the tool switches it off."""
    file = Path(directory) / "producer.properties"
    file.write_text("retries=2147483647\nenable.idempotence=true\n")
    yield str(file)


class Events:
    """A tool that prints one JSON event per line."""

    def __init__(self, process: "subprocess.Popen[bytes]", file: Path) -> None:
        self._process = process
        self._file = file

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.all() if event["name"] == name]

    def all(self) -> list[dict[str, Any]]:
        lines = self._file.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def stop(self) -> None:
        """As Ctrl-C does: it finishes what it has begun."""
        self._process.terminate()
        self._process.wait(60)


@contextmanager
def running(version: str, main_class: str, arguments: Sequence[str], directory: str) -> Iterator[Events]:
    file = Path(directory) / f"{main_class}.out"
    command = java_command(version, f"{TOOLS}.{main_class}", *arguments, flags=["-Xmx256m", "-Dkafka.log.level=OFF"])
    with file.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
    try:
        yield Events(process, file)
    finally:
        process.kill()
        process.wait()


@tool("kafka-verifiable-producer and -consumer through a rolling restart: no error")
def is_restarted_in_turn(box: ToolBox, cluster: TidelogCluster) -> None:
    topic = f"{box.topic}-rolling"
    box.topics(
        *("--create", "--topic", topic, "--partitions", str(PARTITIONS), "--replication-factor", "3"),
        *("--config", "min.insync.replicas=2"),
    )
    where = ("--bootstrap-server", box.bootstrap, "--topic", topic)
    with (
        TemporaryDirectory(prefix="compat-rolling-") as directory,
        producer_config(directory) as config,
        running(box.version, "VerifiableProducer", (*where, *WRITING, config), directory) as producer,
        running(box.version, "VerifiableConsumer", (*where, "--group-id", topic), directory) as consumer,
    ):
        wait_until(lambda: bool(consumer.named("records_consumed")), "the consumer reads", STARTING_S)
        for broker_id, broker in cluster.brokers.items():
            broker.stop()
            time.sleep(WORKING_S)
            cluster.start_brokers([broker_id])
            wait_until(
                lambda: not described(box.topics("--describe", "--under-replicated-partitions")), "replicas are in sync"
            )
        wait_until(lambda: _are_leaders_preferred(box, topic), "leaders are balanced", BALANCED_S)
        producer.stop()
        sent = len(producer.named("producer_send_success"))
        wait_until(lambda: _read(consumer) >= sent, f"the consumer has read {sent} records")
        consumer.stop()
        errors = producer.named("producer_send_error")
        assert errors == [], errors[:3]
        failed = [event for event in consumer.named("offsets_committed") if not event["success"]]
        assert failed == [], failed[:3]
        figures = {"sent": sent, "read": _read(consumer), "in the log": sum(end_offsets(box, topic).values())}
        assert len(set(figures.values())) == 1, figures
    box.topics("--delete", "--topic", topic)


def _read(consumer: Events) -> int:
    return sum(event["count"] for event in consumer.named("records_consumed"))


def _are_leaders_preferred(box: ToolBox, topic: str) -> bool:
    found = described(box.topics("--describe", "--topic", topic))
    return all(leader == replicas[0] for leader, replicas, _ in found.values())


def end_offsets(box: ToolBox, topic: str) -> dict[str, int]:
    printed = box.run("GetOffsetShell", "--topic", topic)
    return {line.rsplit(":", 1)[0]: int(line.rsplit(":", 1)[1]) for line in printed.split() if line.count(":") == 2}
