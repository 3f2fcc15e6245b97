"""Certificates and their authority are exchanged on three brokers, one after the other, while clients write and read.

Brokers and clients are processes and clients as they are used; not one error may reach the application.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from tests.certificates import Authority, Certificate
from tests.clients.broker import BROKER_IDS, TidelogProcess
from tools.apache_kafka import free_port

pytestmark = [pytest.mark.clients, pytest.mark.processes]

TOPIC, PARTITIONS = "t", 6
TIMEOUT_S = 120.0
LISTENERS = ("clients", "brokers")


class Cluster:
    """Three brokers with TLS on a listener for clients and on one between brokers, which asks for certificates."""

    def __init__(self, directory: Path, certificate: Certificate) -> None:
        self.ports = {each: {name: free_port() for name in LISTENERS} for each in BROKER_IDS}
        self.processes = [
            TidelogProcess(
                directory / f"broker-{broker_id}",
                {
                    "broker.id": str(broker_id),
                    "coordination.store": str(directory / "coordination.sqlite"),
                    "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
                    "listener.security.protocol.map": "CLIENTS:SSL,BROKERS:SSL",
                    "inter.broker.listener.name": "BROKERS",
                    "listener.name.brokers.ssl.client.auth": "required",
                    "ssl.keystore.location": str(certificate.location),
                    "ssl.truststore.location": str(certificate.authority),
                    "min.insync.replicas": "3",  # a follower that cannot connect holds up all writes
                    "broker.session.timeout.ms": "60000",
                    "replica.lag.time.max.ms": "60000",
                },
                ports["clients"],
            )
            for broker_id, ports in self.ports.items()
        ]
        self.bootstrap = ",".join(each.bootstrap for each in self.processes)

    @contextmanager
    def running(self) -> Iterator["Cluster"]:
        with ExitStack() as stack:
            for process in self.processes:
                stack.callback(process.kill)
                process.launch()
            for process in self.processes:
                process.wait_until_it_listens()
            yield self
            for process in self.processes:
                process.ask_to_stop()
            for process in self.processes:
                process.wait_until_stopped()

    def client(self, trusted: Path, **settings: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(trusted),
            **settings,
        }


class Load:
    """A producer with acks=all and a consumer, which run all the time."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.errors: list[str] = []
        self.acknowledged: list[bytes] = []
        self.consumed: list[bytes] = []
        self.written_by_others = 0
        common: dict[str, Any] = {"error_cb": self._on_error, "log_level": 0}
        self._producer = Producer({**settings, **common, "acks": "all", "linger.ms": 5})
        reading = {"group.id": "g", "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**settings, **common, **reading})
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._write, self._read)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _on_error(self, error: KafkaError) -> None:
        """Of the client itself. That a busy machine answers late, and the client tries again, is nobody's error."""
        if error.code() != KafkaError._TIMED_OUT:
            self.errors.append(str(error))

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged.append(message.value() or b"")

    def _write(self) -> None:
        number = 0
        while not self._is_over.is_set():
            self._producer.produce(TOPIC, b"%d" % number, on_delivery=self._on_delivery)
            self._producer.poll(0.01)
            number += 1
        assert self._producer.flush(TIMEOUT_S) == 0

    def _read(self) -> None:
        self._consumer.subscribe([TOPIC])
        deadline = None
        while deadline is None or (self._is_something_left() and time.monotonic() < deadline):
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is not None:
                self.errors.append(str(message.error()))
            elif message is not None:
                self.consumed.append(message.value() or b"")
            if deadline is None and self._is_over.is_set() and not self._threads[0].is_alive():
                deadline = time.monotonic() + TIMEOUT_S
        self._consumer.close()

    def _is_something_left(self) -> bool:
        return len(self.consumed) < len(self.acknowledged) + self.written_by_others

    def wait_for_more(self) -> None:
        """Records that are written from now on reach the consumer."""
        wanted = len(self.acknowledged) + 50
        wait_until(lambda: len(self.consumed) >= wanted or bool(self.errors))


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def alter(admin: AdminClient, broker_id: int, changes: dict[str, str]) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in changes.items()]
    resource = ConfigResource(ResourceType.BROKER, str(broker_id), incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S).values():
        future.result(TIMEOUT_S)


def exchange(cluster: Cluster, admin: AdminClient, name: str, value: Path, is_done: Callable[[int], bool]) -> None:
    """Broker after broker, both listeners."""
    for broker_id, ports in cluster.ports.items():
        alter(admin, broker_id, {f"listener.name.{listener}.{name}": str(value) for listener in LISTENERS})
        for port in ports.values():
            wait_until(partial(is_done, port))


def in_sync(admin: AdminClient) -> set[int]:
    """Numbers of in-sync replicas of the partitions."""
    found = admin.list_topics(TOPIC, timeout=TIMEOUT_S).topics[TOPIC]
    return {len(partition.isrs) for partition in found.partitions.values()}


def accepts(port: int, trusted: Path, certificate: Certificate) -> bool:
    """Whether each side trusts the other. In TLS 1.2 the client hears of a refusal in its handshake."""
    context = ssl.create_default_context(cafile=str(trusted))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate.location)
    try:
        with (
            socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1"),
        ):
            return True
    except (ssl.SSLError, ConnectionError):
        return False


def test_a_new_authority_on_three_brokers_under_load(tmp_path: Path) -> None:
    old_authority, new_authority = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    old, new = old_authority.sign("old-broker"), new_authority.sign("new-broker")
    both = tmp_path / "both.pem"
    both.write_bytes(old.authority.read_bytes() + new.authority.read_bytes())
    with Cluster(tmp_path, old).running() as cluster:
        admin = AdminClient(cluster.client(both))
        new_topic = NewTopic(TOPIC, PARTITIONS, len(BROKER_IDS))
        admin.create_topics([new_topic], request_timeout=TIMEOUT_S)[TOPIC].result(TIMEOUT_S)
        between = [ports["brokers"] for ports in cluster.ports.values()]
        with Load(cluster.client(both)) as load:
            load.wait_for_more()
            exchange(cluster, admin, "ssl.truststore.location", both, lambda port: accepts(port, both, old))
            wait_until(lambda: all(accepts(port, both, new) for port in between))
            load.wait_for_more()
            by_new = partial(accepts, trusted=new.authority, certificate=new)
            exchange(cluster, admin, "ssl.keystore.location", new.location, by_new)
            load.wait_for_more()
            exchange(cluster, admin, "ssl.truststore.location", new.authority, by_new)
            wait_until(lambda: not any(accepts(port, both, old) for port in between))
            for broker_id in BROKER_IDS:  # followers connect again, with what is there now
                alter(admin, broker_id, {"num.replica.fetchers": "2"})
            load.wait_for_more()
            newcomer = Producer(cluster.client(new.authority))
            newcomer.produce(TOPIC, b"newcomer")
            assert newcomer.flush(TIMEOUT_S) == 0
            load.written_by_others = 1
        assert load.errors == []
        assert sorted(load.consumed) == sorted([*load.acknowledged, b"newcomer"])
        wait_until(lambda: in_sync(admin) == {len(BROKER_IDS)})
