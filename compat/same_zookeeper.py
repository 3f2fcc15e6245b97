"""Tidelog and Apache Kafka 3.9 take turns as the brokers of one ZooKeeper and one set of log directories."""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from compat.written_by_kafka import Fields, differences, read_partitions
from tests.clients.broker import BROKER_IDS, TidelogProcess
from tests.clients.driver import ProducerOptions, Record, wait_until
from tests.clients.registry import CLIENTS
from tools.apache_kafka import KAFKA_3, ApacheKafka, free_port
from tools.zookeeper import ZooKeeper

CHROOT = "/compat"
PARTITIONS = 3
TIMEOUT_S = 60.0
Place = tuple[str, int]
Shapes = dict[str, frozenset[str]]
"""The fields of the JSON in each kind of node, with their types."""


class Trio:
    """Ports and directories of three brokers, of Kafka or of Tidelog."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        self.zookeeper = zookeeper
        self.directories = {broker_id: directory / f"broker-{broker_id}" for broker_id in BROKER_IDS}
        self.ports = {broker_id: free_port() for broker_id in BROKER_IDS}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def settings(self, broker_id: int) -> dict[str, str]:
        return {
            "broker.id": str(broker_id),
            "log.dirs": str(self.directories[broker_id] / "logs"),
            "zookeeper.connect": self.zookeeper,
            # Where the other replica has left already, nobody takes over however long one waits.
            "controlled.shutdown.retry.backoff.ms": "100",
        }


Turn = Callable[[Trio], Iterator[None]]


def tidelog(trio: Trio) -> Iterator[None]:
    yield from running(
        [
            TidelogProcess(directory, trio.settings(broker_id), trio.ports[broker_id])
            for broker_id, directory in trio.directories.items()
        ]
    )


def kafka(trio: Trio) -> Iterator[None]:
    yield from running(
        [
            ApacheKafka(KAFKA_3, trio.ports[broker_id], directory, "256m", trio.settings(broker_id), zookeeper="")
            for broker_id, directory in trio.directories.items()
        ]
    )


def running(brokers: Sequence[TidelogProcess] | Sequence[ApacheKafka]) -> Iterator[None]:
    """Started side by side, stopped one after the other, so that each hands its leaders on."""
    try:
        with ThreadPoolExecutor(len(brokers)) as starting:
            for started in [starting.submit(broker.start) for broker in brokers]:
                started.result()
        yield
        for broker in brokers:
            broker.stop()
    finally:
        for broker in brokers:
            broker.kill()


TURNS: Sequence[tuple[str, Turn]] = (
    ("tidelog-first", tidelog),
    ("kafka-second", kafka),
    ("tidelog-third", tidelog),
    ("kafka-last", kafka),
)


def check() -> list[str]:
    """What one of them finds otherwise than the other left it."""
    wrong: list[str] = []
    shapes: dict[str, Shapes] = {}
    left: dict[Place, list[Fields]] = {}
    with tempfile.TemporaryDirectory(prefix="compat-zookeeper-") as scratch:
        directory = Path(scratch)
        with ZooKeeper(free_port(), directory / "zookeeper") as zookeeper:
            trio = Trio(directory, zookeeper.connect_string + CHROOT)
            for name, turn in TURNS:
                with contextmanager(turn)(trio):
                    found, complaints = take_turn(name, trio.bootstrap, left)
                    shapes[name] = node_shapes(zookeeper.connect_string, name)
                wrong += [f"{name}: {complaint}" for complaint in complaints]
                left = found
    return wrong + differing_shapes(shapes["kafka-second"], shapes["tidelog-first"])


def take_turn(
    name: str, bootstrap: str, left: Mapping[Place, list[Fields]]
) -> tuple[dict[Place, list[Fields]], list[str]]:
    """Reads what is there, writes to it, adds topics of its own. Returns all that is there then."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = sorted({topic for topic, _partition in left})
    wait_until(lambda: is_whole(admin, topics), f"{name}: {topics} have leaders and all replicas", TIMEOUT_S)
    complaints = differences(left, read_partitions(bootstrap, list(left), "read_uncommitted")) if left else []
    created = [f"{name}-{factor}" for factor in range(1, len(BROKER_IDS) + 1)]
    wanted = [NewTopic(topic, PARTITIONS, factor) for factor, topic in enumerate(created, 1)]
    for future in admin.create_topics([*wanted, NewTopic(f"{name}-gone", PARTITIONS, 3)]).values():
        future.result(TIMEOUT_S)
    places = [(topic, partition) for topic in [*topics, *created] for partition in range(PARTITIONS)]
    fill(bootstrap, name, places)
    for future in admin.delete_topics([f"{name}-gone"]).values():
        future.result(TIMEOUT_S)
    wait_until(lambda: f"{name}-gone" not in admin.list_topics(timeout=10).topics, "the topic is gone")
    wait_until(lambda: is_whole(admin, created), f"{name}: {created} have leaders and all replicas", TIMEOUT_S)
    return read_partitions(bootstrap, places, "read_uncommitted"), complaints


def is_whole(admin: AdminClient, topics: Sequence[str]) -> bool:
    found = admin.list_topics(timeout=10)
    return len(found.brokers) == len(BROKER_IDS) and all(
        topic in found.topics
        and len(found.topics[topic].partitions) == PARTITIONS
        and all(
            partition.leader >= 0 and len(partition.isrs) == len(partition.replicas)
            for partition in found.topics[topic].partitions.values()
        )
        for topic in topics
    )


def fill(bootstrap: str, name: str, places: Sequence[Place], *, idempotent: bool = True) -> None:
    driver = CLIENTS["confluent-kafka"].connect(bootstrap)
    records = [Record(b"%s %d" % (name.encode(), number), key=b"%d" % (number % 5)) for number in range(200)]
    for topic, partition in places:
        driver.produce(topic, records, ProducerOptions(compression="lz4", idempotent=idempotent), partition)
    driver.close()


def node_shapes(connect_string: str, name: str) -> Shapes:
    """Of what is there now, but of topics only those that were made in this turn."""
    client = KazooClient(connect_string + CHROOT)
    client.start()
    try:
        shapes: dict[str, set[str]] = {}
        for path, data in walk(client, "/"):
            if "/topics/" in path and f"/topics/{name}" not in path:
                continue
            shapes.setdefault(kind_of(path), set()).update(fields_of(data))
        return {kind: frozenset(fields) for kind, fields in shapes.items()}
    finally:
        client.stop()
        client.close()


def walk(client: KazooClient, path: str) -> Iterator[tuple[str, bytes]]:
    yield path, client.get(path)[0] or b""
    for child in client.get_children(path):
        yield from walk(client, f"{path.rstrip('/')}/{child}")


def kind_of(path: str) -> str:
    """The path with its names and numbers taken out."""
    return re.sub(r"(?<=/topics/)[^/]+", "T", re.sub(r"\d+(?=/|$)", "N", path))


def fields_of(data: bytes) -> set[str]:
    try:
        found: Any = json.loads(data)
    except ValueError:
        return {"text"} if data else {"nothing"}
    if isinstance(found, dict):
        return {f"{key}: {type(value).__name__}" for key, value in found.items()}
    return {type(found).__name__}


OWN_FIELDS: Mapping[str, frozenset[str]] = {
    "/brokers/ids/N": frozenset({"directory_ids: list"}),
    "/brokers/topics/T/partitions/N/state": frozenset({"isr_epochs: list", "elr: list", "elr_epochs: list"}),
}
"""Optional fields that Tidelog adds: incarnations of in-sync and eligible replicas, ids of log directories (KIP-858,
KIP-903, KIP-966). Kafka passes over them when it reads, and leaves them out when it writes."""


def differing_shapes(kafkas: Shapes, ours: Shapes) -> list[str]:
    """Nodes that both have, with other fields in them."""
    both = kafkas.keys() & ours.keys()
    assert "/brokers/topics/T/partitions/N/state" in both, both
    return [
        f"{kind}: Kafka writes {sorted(kafkas[kind])}, Tidelog {sorted(ours[kind])}"
        for kind in sorted(both)
        if ours[kind] - OWN_FIELDS.get(kind, frozenset()) != kafkas[kind]
    ]
